"""The second act of the demo: a team borrows what another leaves unused, and gives it back when it is claimed.

Each number that is told follows from lending.yaml, and has been waited for or looked up before it is told.
"""

from typing import Final

import click

from console.answer import explain_pod
from console.output import terminal_width
from console.sandbox.errors import SandboxError
from console.sandbox.lifecycle import Sandbox
from console.sandbox.script import create, documents
from console.sandbox.watching import PodWatch
from console.snapshot import read
from console.status import report_of
from console.status import text as status_text
from console.why import text as why_text
from kube.client import Client
from policies import names
from policies.settings import DEFAULTS
from policies.settle import settle
from policies.view import PodView, View

LENDER: Final = "research"
BORROWER: Final = "training"
WAIT_S: Final = 30.0


def lend(sandbox: Sandbox) -> None:
    """Tell the story. Raises SandboxError, KubectlError, TimeoutError, ApiError or Unreachable where it does not happen."""
    manifests = dict(documents("lending.yaml"))
    click.echo(
        "\nSecond act: quota. Two teams share the board of 40 GB. Each owns 20 GB of it, its `min`: it can have as much"
        "\nwhenever it asks, and what it leaves unused the other may borrow.\n"
    )
    for team in (LENDER, BORROWER):
        sandbox.kubectl("create", "namespace", team)
        create(sandbox, team, manifests[team])
    with PodWatch(sandbox, BORROWER) as theirs, PodWatch(sandbox, LENDER) as ours:
        create(sandbox, BORROWER, manifests["train"])
        theirs.wait_for("four pods run", lambda pods: sum(pod.running for pod in pods) == 4, WAIT_S)
        theirs.wait_for("two of them borrow", lambda pods: len(_borrowing(pods)) == 2, WAIT_S)
        click.echo(
            f"\nFour pods of 10 GB run, where {BORROWER} owns 20 GB. So two of them run on what {LENDER} leaves unused;"
            f"\nthey are over-quota, which says that they may be evicted:\n"
        )
        _kubectl(sandbox, "get", "pods", "-n", BORROWER, "-L", names.CAPACITY_LABEL)
        _status(sandbox)
        before = theirs.all()
        click.echo(f"The board is full. Now {LENDER} asks for 10 of its 20 GB:\n")
        called = create(sandbox, LENDER, manifests["experiment"])
        ours.wait("experiment", lambda pod: pod is not None and pod.running, WAIT_S)
        took = ours.ran["experiment"] - called
        click.echo(f"  experiment runs {took * 1000:.0f} ms after kubectl was called (a simulated victim ends at once)")
        theirs.wait_for("one comes back and waits", lambda pods: any(pod.waiting[1] for pod in pods), WAIT_S)
        victim = _victim(before, theirs.all())
        click.echo(
            f"\n10 GB were lacking, so one pod of 10 GB had to go: {victim.name}, the younger of the two that"
            "\nborrowed (of equal age, the first by name). All others went on. The Event on it says for whom it went:\n"
        )
        _kubectl(sandbox, "get", "events", "-n", BORROWER, "--field-selector", f"reason={names.RECLAIMED}")
        click.echo(f"Its owner made it again, and the new pod waits until {BORROWER} may borrow again:\n")
        _status(sandbox)
        _why(sandbox, next(pod.key for pod in theirs.all() if pod.waiting[1]))


def _victim(before: tuple[PodView, ...], after: tuple[PodView, ...]) -> PodView:
    """Return the one pod that has gone. Raises SandboxError unless it is the one that had to."""
    gone = [pod for pod in before if pod.uid not in {each.uid for each in after}]
    due = min(_borrowing(before), key=lambda pod: (-pod.created, pod.name))
    if gone != [due]:
        raise SandboxError(f"not {due.name} alone has gone, but {', '.join(pod.name for pod in gone) or 'nobody'}")
    return due


def _borrowing(pods: tuple[PodView, ...]) -> list[PodView]:
    return [pod for pod in pods if pod.running and pod.capacity == names.OVER_QUOTA]


def _kubectl(sandbox: Sandbox, *arguments: str) -> None:
    """Show a call of kubectl and what it prints."""
    click.echo(f"$ kubectl {' '.join(arguments)}\n{sandbox.kubectl(*arguments)}")


def _status(sandbox: Sandbox) -> None:
    """Show what `apportion status` shows."""
    report = report_of(_view(sandbox))
    click.echo(f"$ apportion status\n{status_text(report, terminal_width())}\n")


def _why(sandbox: Sandbox, key: str) -> None:
    """Show what `apportion why` shows of a pod that is there."""
    view = _view(sandbox)
    pod = next(each for each in view.pods if each.key == key)
    answer = explain_pod(pod, view, settle(view, DEFAULTS))
    click.echo(f"$ apportion why {key}\n{why_text(answer, terminal_width())}\n")


def _view(sandbox: Sandbox) -> View:
    client = Client.load(str(sandbox.kubeconfig), user_agent="apportion-sandbox")
    try:
        return read(client).view
    finally:
        client.close()
