"""The second act of the demo: a team borrows what another leaves unused, and gives it back when it is claimed."""

from typing import Final

import click

from console.output import terminal_width
from console.sandbox.errors import SandboxError
from console.sandbox.lifecycle import Sandbox
from console.sandbox.script import create, documents
from console.sandbox.watching import PodWatch
from console.snapshot import read
from console.status import report_of, text
from kube.client import Client
from policies import names
from policies.view import PodView

LENDER: Final = "research"
BORROWER: Final = "training"
WAIT_S: Final = 30.0


def lend(sandbox: Sandbox) -> None:
    """Tell the story. Raises SandboxError, KubectlError, TimeoutError, ApiError or Unreachable where it does not happen."""
    manifests = dict(documents("lending.yaml"))
    click.echo("\nSecond act. Two teams own half a board each, and lend each other what they leave unused:\n")
    for team in (LENDER, BORROWER):
        sandbox.kubectl("create", "namespace", team)
        create(sandbox, team, manifests[team])
    with PodWatch(sandbox, BORROWER) as theirs, PodWatch(sandbox, LENDER) as ours:
        create(sandbox, BORROWER, manifests["train"])
        theirs.wait_for("four pods run", lambda pods: sum(pod.running for pod in pods) == 4, WAIT_S)
        theirs.wait_for("two of them borrow", lambda pods: len(_borrowing(pods)) == 2, WAIT_S)
        click.echo(f"\n{BORROWER} runs four pods. Two of them borrow what {LENDER} does not use:\n")
        _show(sandbox)
        before = theirs.all()
        called = create(sandbox, LENDER, manifests["experiment"])
        ours.wait("experiment", lambda pod: pod is not None and pod.running, WAIT_S)
        took = ours.ran["experiment"] - called
        click.echo(f"  experiment runs {took * 1000:.0f} ms after kubectl was called (a simulated victim ends at once)")
        theirs.wait_for("one comes back and waits", lambda pods: any(pod.waiting[1] for pod in pods), WAIT_S)
        there = {pod.uid for pod in theirs.all()}
        gone = [pod for pod in before if pod.uid not in there]
        if len(gone) != 1 or gone[0] not in _borrowing(before):
            raise SandboxError(f"not one borrowed pod has gone, but {', '.join(pod.key for pod in gone) or 'none'}")
        click.echo(
            f"\nOf the borrowed pods the youngest has gone, {gone[0].name}. Its owner made it again, and it waits:\n"
        )
        _show(sandbox)
        click.echo(sandbox.kubectl("get", "events", "-n", BORROWER, "--field-selector", f"reason={names.RECLAIMED}"))


def _borrowing(pods: tuple[PodView, ...]) -> list[PodView]:
    return [pod for pod in pods if pod.running and pod.capacity == names.OVER_QUOTA]


def _show(sandbox: Sandbox) -> None:
    """Show what `apportion status` shows."""
    client = Client.load(str(sandbox.kubeconfig), user_agent="apportion-sandbox")
    try:
        view = read(client).view
    finally:
        client.close()
    click.echo("$ apportion status")
    click.echo(f"{text(report_of(view), terminal_width())}\n")
