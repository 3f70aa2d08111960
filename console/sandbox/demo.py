"""`apportion sandbox demo`: the main job, told on a real control plane in a minute. Two acts: slices, and their lending.

Every step waits for what it claims; the first that does not happen ends the story with exit status 1.
"""

import logging
import secrets
import time
from typing import Final

import click
import structlog

from console.boards import draw
from console.output import terminal_width
from console.sandbox.apiclient import Refused
from console.sandbox.command import name_option
from console.sandbox.errors import SandboxError
from console.sandbox.lending import lend
from console.sandbox.lifecycle import Sandbox, attach, hold, launch
from console.sandbox.nodes import parse_nodes
from console.sandbox.progress import Progress
from console.sandbox.readiness import list_nodes
from console.sandbox.script import create, documents
from console.sandbox.watching import PodWatch
from kube.errors import ApiError, Unreachable
from policies.view import PodView, view_node

NODES: Final = "a100-40=1,t4=1"
NAMESPACE: Final = "demo"
WAIT_S: Final = 30.0


@click.command()
@name_option
@click.option("--keep", is_flag=True, help="Leave the sandbox up, called --name, and print its kubeconfig's path.")
def demo(name: str, keep: bool) -> None:
    """Show pods getting slices, and teams that lend each other slices.

    \b
    Example, to go on by hand afterwards:
      apportion sandbox demo --keep
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    progress, nodes = Progress(), parse_nodes(NODES)
    if keep:
        launch(name, nodes, progress, lifeline=None)
        _tell(attach(name))
        click.echo(f"The sandbox stays up: export KUBECONFIG={attach(name).kubeconfig}")
        click.echo(f"`apportion sandbox down --name {name}` ends it.")
        return
    # A name of its own, since it ends with the story: a sandbox of the user's may be running.
    with hold(f"demo-{secrets.token_hex(4)}", nodes, progress) as sandbox:
        _tell(sandbox)


def _tell(sandbox: Sandbox) -> None:
    """Tell the story on a running sandbox. Raises SandboxError at the first thing that does not happen."""
    try:
        sandbox.kubectl("create", "namespace", NAMESPACE)
        with PodWatch(sandbox, NAMESPACE) as pods:
            _story(sandbox, pods)
        sandbox.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--grace-period=0", "--force")
        lend(sandbox)
    except (SandboxError, Refused, ApiError, Unreachable, OSError) as error:
        raise SandboxError(f"the demo stops here: {error}") from error


def _story(sandbox: Sandbox, pods: PodWatch) -> None:
    manifests = dict(documents("demo.yaml"))
    large = manifests.pop("large")
    click.echo(
        "\nTwo nodes with a simulated GPU each; nothing is cut yet. Five pods will ask in five ways, a sixth will not fit.\n"
    )
    _draw(sandbox)
    took: dict[str, float] = {}
    for name, manifest in manifests.items():
        called = create(sandbox, NAMESPACE, manifest)
        pods.wait(name, _runs, WAIT_S)
        took[name] = pods.ran[name] - called
        click.echo(f"  {name} runs {took[name] * 1000:.0f} ms after kubectl was called")
    click.echo("\nEach runs on a slice of its own, cut while the others went on:\n")
    _draw(sandbox)
    create(sandbox, NAMESPACE, large)
    pods.wait("large", lambda pod: pod is not None and bool(pod.waiting[1]), WAIT_S)
    waiting = pods.get("large")
    click.echo(f"  large waits: {waiting.waiting[1] if waiting else ''}")
    click.echo("\nNow half ends. Its slice goes, and the board is cut again for large:\n")
    before = {name: pods.get(name) for name in manifests if name != "half"}
    ended = time.monotonic()
    # What a program that exits leaves behind; kwok's pods run no program that could.
    sandbox.kubectl(
        "patch", "pod", "half", "-n", NAMESPACE, "--subresource=status", "-p", '{"status":{"phase":"Succeeded"}}'
    )
    pods.wait("large", _runs, WAIT_S)
    took["large"] = pods.ran["large"] - ended
    _draw(sandbox)
    disturbed = [name for name, pod in before.items() if not _same(pod, pods.get(name))]
    if disturbed:
        raise SandboxError(f"{', '.join(disturbed)} did not go on undisturbed")
    click.echo("All others went on undisturbed. From `kubectl create` (which takes most of it) to running:\n")
    for name, seconds in took.items():
        note = "  (from the end of half)" if name == "large" else ""
        click.echo(f"  {name:10} {seconds * 1000:>6.0f} ms{note}")
    click.echo()


def _draw(sandbox: Sandbox) -> None:
    with sandbox.client() as client:
        click.echo(draw(map(view_node, list_nodes(client)), terminal_width()) + "\n")


def _runs(pod: PodView | None) -> bool:
    return pod is not None and pod.running


def _same(before: PodView | None, now: PodView | None) -> bool:
    return before is not None and now is not None and before.uid == now.uid and now.running
