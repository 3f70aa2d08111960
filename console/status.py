"""`apportion status`: quotas with who borrows from whom, boards with their slices, and what waits, in a cluster."""

import logging
import sys
from collections.abc import Iterable

import click
import msgspec
import structlog

from console.amounts import written
from console.boards import draw
from console.following import Following
from console.loans import loans, promised_beyond
from console.output import TABLE, output_option, show, terminal_width, wrapped
from console.quotatable import quota_paragraphs
from console.screen import Screen
from console.snapshot import connected, kubeconfig_option, read
from policies.decision import Decision
from policies.hindrances import silence
from policies.quantity import amount
from policies.settings import DEFAULTS
from policies.settle import settle
from policies.view import NodeView, View


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at one moment: what there is, what is decided from it, and what is wrong with it."""

    view: View
    decision: Decision
    problems: tuple[str, ...]


@click.command()
@click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Show it again whenever it changes, until Ctrl-C; as JSON a line for each state, as YAML a document.",
)
@kubeconfig_option
@output_option
@click.pass_context
def status(context: click.Context, watch: bool, kubeconfig: str | None, output: str) -> None:
    """Show the quotas and boards of a cluster, and who waits.

    That is who uses what, who borrows from whom, how the boards are cut, and why pods wait.

    Exit status: 0 if all is well (with --watch, whatever is seen), 1 if a quota is not in force, more is promised than
    there is or a board cannot be cut that nobody has fixed or shares in turns, 2 if the cluster cannot be read.

    \b
    Example:
      apportion status --watch
    """
    if watch:
        _watch(kubeconfig, output)
        return
    with connected(kubeconfig) as client:
        report = report_of(read(client).view)
    if output == TABLE:
        click.echo(text(report, terminal_width()))
    else:
        show(_data(report), output)
    context.exit(1 if report.problems else 0)


def report_of(view: View) -> Report:
    """Return what there is to tell of a cluster."""
    decision = settle(view, DEFAULTS)
    problems = (
        *(f"{one.kind} {one.key}: {one.reason}: {one.message}" for one in decision.quotas if not one.ready),
        *promised_beyond(decision.quotas, view.nodes, DEFAULTS.quota),
        *(problem for node in sorted(view.nodes, key=lambda node: node.name) for problem in _of_node(node, view.now)),
    )
    return Report(view=view, decision=decision, problems=problems)


def _of_node(node: NodeView, now: float) -> Iterable[str]:
    """Yield why boards of a node cannot be cut, and what of it is not understood."""
    if node.unable or node.overdue(now):
        yield silence([node])
    yield from (f"node {node.name}: {fault}" for fault in node.faults)
    for board in node.boards:
        if board.broken and board.fault not in node.faults:
            yield f"node {node.name}: GPU {board.index}: {board.fault}"


def text(report: Report, width: int | None = None) -> str:
    """Return all there is to tell, for people; for a terminal of so many columns, or of any number."""
    return "\n\n".join(_paragraphs(report, width))


def _watch(kubeconfig: str | None, output: str) -> None:
    """Show a cluster until Ctrl-C, which is no failure."""
    # What becomes of a watch stands beside what is shown, if it is worth a warning.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    screen = Screen(output)
    try:
        with connected(kubeconfig) as client, Following(client) as following:
            for picture in following.pictures():
                report = report_of(picture.view)
                screen.show(text(report, terminal_width()) if output == TABLE else _data(report))
    except KeyboardInterrupt:
        return


def _data(report: Report) -> object:
    view, decision = report.view, report.decision
    return {
        "quotas": {
            one.key: {
                "kind": one.kind,
                "namespaces": list(one.governs),
                "ready": one.ready,
                "reason": one.reason,
                **{what: written(getattr(one, what)) for what in ("min", "max", "used", "borrowed", "lent", "guaranteed")},
            }
            for one in decision.quotas
        },
        "loans": [
            {**msgspec.to_builtins(loan), "amount": amount(loan.resource, loan.amount)} for loan in loans(decision.quotas)
        ],
        "nodes": {node.name: {"gpus": [msgspec.to_builtins(board.slices) for board in node.boards]} for node in view.nodes},
        "leaving": _leaving(view),
        "waiting": {one.pod: {"reason": one.reason, "message": one.message} for one in decision.waiting},
        "problems": list(report.problems),
    }  # fmt: skip


def _leaving(view: View) -> dict[str, str]:
    """Return the pods that are on their way out, with those for whom they go."""
    return {pod.key: pod.evicted_for for pod in view.pods if pod.evicted_for and pod.terminating}


def _paragraphs(report: Report, width: int | None) -> Iterable[str]:
    """Yield what there is to tell, one paragraph for each kind of thing."""
    view, decision = report.view, report.decision

    def lines(sentences: Iterable[str]) -> str:
        return "\n".join(wrapped(sentence, width) for sentence in sentences)

    yield from quota_paragraphs(decision.quotas, width)
    if drawn := draw(sorted(view.nodes, key=lambda node: node.name), width):
        yield drawn
    if leaving := _leaving(view):
        claimants = {pod.key for pod in view.pods if pod.gated and not pod.terminating}
        yield lines(
            f"{pod} ends, for {claimant}{', whose quota counts it' if claimant in claimants else ''}"
            for pod, claimant in sorted(leaving.items())
        )
    if decision.waiting:
        yield lines(f"{one.pod} waits ({one.reason}): {one.message}" for one in decision.waiting)
    if report.problems:
        yield lines(report.problems)
    if not (decision.quotas or drawn or decision.waiting):
        yield "no quotas, no boards of ours, and nobody waits"
