"""`apportion plan`: what would be done now, in a cluster or with the objects of files, and why the others wait."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import click
import msgspec
from msgspec.structs import replace

from console.boards import Change, draw_changes
from console.manifests import Manifests, load, optional_files_option
from console.output import TABLE, columns, output_option, show, terminal_width
from console.reviewing import Labels, Reviewer, in_turn, namespace_labels, overlaid
from console.simulation.devices import recut
from console.simulation.report import problems
from console.simulation.story import opening
from policies.annotations import PlacedSlice, Placement
from policies.boards import Board
from policies.decision import Decision, Planned
from policies.settings import DEFAULTS
from policies.settle import settle
from policies.view import View

UNSERVED: Final = ("denied", "waiting")


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of a pod now.

    Attributes:
        outcome: `released`, `evicted`, `relabelled`, `denied`, `planned` (it waits, and has its place) or `waiting`.
        node: where it is planned; empty if nowhere. A released pod goes where the scheduler puts it.
        reason: PascalCase code; empty where none is needed.
        message: a sentence: why it waits, goes or is denied.
    """

    outcome: str
    node: str = ""
    reason: str = ""
    message: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that would be done now.

    Attributes:
        pods: by namespace/name, in the order in which they were decided.
        boards: those that change, by node and index.
        problems: what was not understood or not taken into account: (object, message).
    """

    pods: dict[str, Fate]
    boards: tuple[Change, ...]
    problems: tuple[tuple[str, str], ...]

    @property
    def flawed(self) -> bool:
        """Return whether anybody is left without a place, or anything was not understood."""
        return bool(self.problems) or any(fate.outcome in UNSERVED for fate in self.pods.values())


@click.command()
@optional_files_option
@click.option("--cluster", is_flag=True, help="Add the objects of the files to those of the cluster.")
@click.option("--kubeconfig", help="The same, of this kubeconfig; else $KUBECONFIG or ~/.kube/config.")
@output_option
@click.pass_context
def plan(context: click.Context, files: Sequence[BinaryIO], cluster: bool, kubeconfig: str | None, output: str) -> None:
    """Show what would be done now: which pods are released, evicted or kept waiting, and how boards are cut.

    Nothing is changed. Without files the cluster is asked; with files only they count, unless --cluster or
    --kubeconfig is given: then they are added to the cluster, in place of their namesakes. Pods of files that run
    nowhere are taken as newly created. Only the first step is shown; `simulate` plays out what follows.

    Exit status: 0 if everybody has a place or will have one, 1 if somebody has none or something is not understood,
    2 if the input cannot be read, be it files or the cluster.

    \b
    Examples:
      apportion plan
      apportion plan -f pod.yaml --cluster
      apportion plan -f cluster.yaml -f pods.yaml -o json
    """
    manifests = load(files)
    below, labels = _asked(kubeconfig) if cluster or kubeconfig or not files else (View(), {})
    report = planned(manifests, below, labels)
    if output == TABLE:
        click.echo(text(report, terminal_width()))
    else:
        show(_data(report), output)
    context.exit(1 if report.flawed else 0)


def planned(manifests: Manifests, below: View, labels: Labels) -> Report:
    """Return what would be done in a cluster to which manifests are added; `labels` are those of its namespaces.

    Raises UnreadableManifests.
    """
    labels = {**labels, **namespace_labels(manifests)}
    admit = in_turn(Reviewer.of(below, labels), lambda above: overlaid(below, above))
    world = opening(manifests, admit, below.now)
    view = replace(overlaid(below, world.view()), now=max(below.now, world.view().now))
    decision = settle(view, DEFAULTS)
    denied = {
        pod.key: Fate(outcome="denied", message="; ".join(pod.denied.splitlines()))
        for pod in world.pods.values()
        if pod.denied
    }
    return Report(
        pods=denied | dict(_fates(decision)),
        boards=tuple(_changes(view, decision)),
        problems=tuple(problems(view, manifests)),
    )


def text(report: Report, width: int | None = None) -> str:
    """Return the report for people; for a terminal of so many columns, or of any number."""
    rows = [("POD", "OUTCOME", "NODE", "REASON")]
    rows += [(key, fate.outcome, fate.node or "-", fate.message) for key, fate in report.pods.items()]
    paragraphs = [
        columns(rows, left=4, width=width) if report.pods else "nobody to release, evict or serve",
        draw_changes(report.boards, width) or "no board changes",
        "\n".join(f"{about}: {message}" for about, message in report.problems),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _asked(kubeconfig: str | None) -> tuple[View, Labels]:
    from console.snapshot import connected, namespaces, read  # a quarter of a second, which no file needs

    with connected(kubeconfig) as client:
        return read(client).view, namespaces(client)


def _fates(decision: Decision) -> Iterator[tuple[str, Fate]]:
    for relabel in decision.relabel:
        yield relabel.pod, Fate(outcome="relabelled", message=f"is {relabel.capacity}")
    for release in decision.ungate:
        kept_off = f"kept off {', '.join(release.avoid)}" if release.avoid else ""
        yield release.pod, Fate(outcome="released", message=kept_off)
    for evict in decision.evict:
        yield evict.pod, Fate(outcome="evicted", reason=evict.reason, message=evict.message)
    for one in decision.waiting:
        place = decision.planned.get(one.pod)
        outcome, node = ("planned", place.node) if place else ("waiting", "")
        yield one.pod, Fate(outcome=outcome, node=node, reason=one.reason, message=one.message)


def _changes(view: View, decision: Decision) -> Iterator[Change]:
    """Yield the boards whose layout is ordered now, or has been ordered and is not there yet."""
    ordered = {layout.node: layout.target for layout in decision.layouts}
    for node in sorted(view.nodes, key=lambda node: node.name):
        for board in node.boards:
            target = ordered.get(node.name, {}).get(board.index, node.target(board))
            after = replace(board, slices=tuple(recut(board, target)))
            if sorted(after.slices, key=_place) != sorted(board.slices, key=_place):
                yield Change(node.name, board, _with_pods(after, node.name, decision.planned))


def _with_pods(board: Board, node: str, planned: dict[str, Planned]) -> Board:
    """Return a board with the pods on its free slices that are planned there."""
    pods: dict[Placement, list[str]] = defaultdict(list)
    for key, place in planned.items():
        for index, placement in place.slices if place.node == node else ():
            if index == board.index:
                pods[placement].append(key)
    slices = tuple(
        item if item.used or not pods[item.placement] else replace(item, pod=pods[item.placement].pop(0))
        for item in board.slices
    )
    return replace(board, slices=slices)


def _place(item: PlacedSlice) -> tuple[int, str, bool]:
    return -1 if item.start is None else item.start, item.profile, item.used


def _data(report: Report) -> object:
    """Return the report as data: nodes with those of their boards that change."""
    nodes: dict[str, list[object]] = {}
    for change in report.boards:
        board = change.before
        shown = {"index": board.index, "mode": board.mode, "before": _slices(board), "after": _slices(change.after)}
        nodes.setdefault(change.node, []).append(shown)
    return {
        "pods": report.pods,
        "nodes": {name: {"gpus": boards} for name, boards in nodes.items()},
        "problems": [{"object": about, "message": message} for about, message in report.problems],
    }


def _slices(board: Board) -> list[dict[str, object]]:
    return [{"profile": item.profile, "start": item.start, "used": item.used, "pod": item.pod} for item in board.slices]
