"""`apportion why POD`: why a pod waits, the arithmetic of its quota, and what would have to happen."""

from collections.abc import Iterator
from typing import Final

import click
import msgspec

from console.amounts import shown
from console.answer import Answer, Dimension, explain_pod
from console.output import TABLE, columns, output_option, show, terminal_width, wrapped
from console.snapshot import connected, kubeconfig_option, read
from kube.client import Client
from kube.errors import NotFound
from kube.resource import PODS
from policies.model import Pod
from policies.quantity import amount
from policies.settings import DEFAULTS
from policies.settle import settle
from policies.view import PodView


@click.command()
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True, help="Where POD names none itself.")
@kubeconfig_option
@output_option
def why(pod: str, namespace: str, kubeconfig: str | None, output: str) -> None:
    """Say why a pod waits, and what its quota has to do with it.

    POD is a name, or namespace/name. Where a quota governs it: each resource's arithmetic, and what would have to
    happen. GUARANTEED is what the quota may take back above its min: its min's share of what stands unused in all mins.

    Exit status: 0 if the pod is there, 1 if not, 2 if the cluster cannot be read.

    \b
    Example:
      apportion why team-a/train-0
    """
    key = pod if "/" in pod else f"{namespace}/{pod}"
    with connected(kubeconfig) as client:
        view = read(client).view
        seen = next((each for each in view.pods if each.key == key), None)
        scheduler = _scheduler_says(client, seen) if seen and seen.released else ""
    if seen is None:
        raise click.ClickException(
            f"{key}: no such pod, or one that has ended, or one that asks for no GPU where no quota governs"
        )
    answer = msgspec.structs.replace(explain_pod(seen, view, settle(view, DEFAULTS)), scheduler=scheduler)
    if output == TABLE:
        click.echo(text(answer, terminal_width()))
    else:
        show(_data(answer), output)


def text(answer: Answer, width: int | None = None) -> str:
    """Return the answer for people; for a terminal of so many columns, or of any number."""
    return "\n".join(_lines(answer, width))


def _scheduler_says(client: Client, pod: PodView) -> str:
    """Return why the scheduler finds no node for a pod, from its condition, which no decision reads; "" if it says nothing."""
    try:
        found = msgspec.json.decode(client.get(PODS.path(pod.namespace, pod.name)), type=Pod)
    except NotFound:  # gone since the cluster was read
        return ""
    conditions = (found.status and found.status.conditions) or ()
    said = (one.message for one in conditions if one.type == "PodScheduled" and one.status == "False")
    return next(said, None) or ""


def _data(answer: Answer) -> object:
    """Return the answer as data: amounts are canonical quantities."""
    return {
        **msgspec.to_builtins(answer),
        "dimensions": [
            {
                what: amount(each.resource, value) if isinstance(value, int) else value
                for what, value in msgspec.structs.asdict(each).items()
            }
            for each in answer.dimensions
        ],
    }


_HEAD: Final = ("  RESOURCE", "ASKS", "USED", "MIN", "MAX", "ALL USE", "GUARANTEED")


def _lines(answer: Answer, width: int | None) -> Iterator[str]:
    def indented(text: str) -> str:
        return wrapped(f"  {text}", width, "    ")

    yield f"{answer.pod} {answer.state}"
    if answer.reason:
        yield indented(f"{answer.reason}: {answer.message}")
    if answer.scheduler:
        yield indented(f"the scheduler: {answer.scheduler}")
    if answer.slices:
        asked = ", ".join(f"{count} {resource}" for resource, count in answer.slices.items())
        yield indented(f"asks for {asked}{answer.place and f'; {answer.place}'}")
    if answer.quota:
        counts = f", and counts{answer.when and f', when {answer.when}'}:" if answer.dimensions else ""
        yield ""
        yield wrapped(f"{answer.quota} governs it{counts}", width)
    if answer.dimensions:
        yield columns([_HEAD, *map(_row, answer.dimensions)])
        yield from (indented(f"{each.resource}: {each.verdict}") for each in answer.dimensions)
    if answer.evictions:
        yield "\nTo be evicted for it:"
        yield from (indented(f"{pod}: {message}") for pod, message in answer.evictions.items())
    if answer.leaving:
        yield ""
        yield wrapped(f"On its way out for it: {', '.join(answer.leaving)}", width)


def _row(each: Dimension) -> tuple[str, ...]:
    def said(thousandths: int | None) -> str:
        return "-" if thousandths is None else shown(each.resource, thousandths)

    together = "-" if each.all_mins is None else f"{said(each.all_used)} of {said(each.all_mins)}"
    own = (each.asks, each.used, each.min, each.max)
    return f"  {each.resource}", *map(said, own), together, said(each.guaranteed)
