"""`apportion status`: quotas with who borrows from whom, boards with their slices, and what waits, in a cluster."""

from collections.abc import Iterable, Sequence

import click
import msgspec

from console.boards import draw
from console.loans import Loan, loans, promised_beyond, written
from console.output import TABLE, output_option, show
from console.snapshot import connected, kubeconfig_option, read
from policies.decision import Decision, QuotaStatus
from policies.quota import amount
from policies.settings import DEFAULTS
from policies.settle import settle
from policies.view import NodeView, View


@click.command()
@kubeconfig_option
@output_option
@click.pass_context
def status(context: click.Context, kubeconfig: str | None, output: str) -> None:
    """Show the quotas and boards of a cluster: who uses what, who borrows from whom, who waits and why.

    Exit status: 0 if all is well, 1 if a quota is not in force or more is promised than there is.

    \b
    Example:
      apportion status --kubeconfig ~/.kube/config
    """
    with connected(kubeconfig) as client:
        view = read(client).view
    decision = settle(view, DEFAULTS)
    problems = [
        *(f"{one.kind} {one.key}: {one.reason}: {one.message}" for one in decision.quotas if not one.ready),
        *promised_beyond(decision.quotas, view.nodes, DEFAULTS.quota),
    ]
    if output == TABLE:
        click.echo("\n\n".join(paragraphs(view, decision, problems)))
    else:
        show(_data(view, decision, problems), output)
    context.exit(1 if problems else 0)


def _data(view: View, decision: Decision, problems: Sequence[str]) -> object:
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
        "leaving": {pod.key: pod.evicted_for for pod in view.pods if pod.evicted_for and pod.terminating},
        "waiting": {one.pod: {"reason": one.reason, "message": one.message} for one in decision.waiting},
        "problems": list(problems),
    }  # fmt: skip


def paragraphs(view: View, decision: Decision, problems: Sequence[str]) -> Iterable[str]:
    """Yield what there is to tell, one paragraph for each kind of thing."""
    if decision.quotas:
        yield columns([_HEAD, *(row for one in decision.quotas for row in _rows(one))])
    lent = [f"{one.borrower} borrows {_said(one)} from {one.lender}" for one in loans(decision.quotas)]
    if lent:
        yield "\n".join(lent)
    if drawn := draw(_sorted(view.nodes)):
        yield drawn
    leaving = [f"{pod.key} ends, for {pod.evicted_for}" for pod in view.pods if pod.evicted_for and pod.terminating]
    if leaving:
        yield "\n".join(sorted(leaving))
    if decision.waiting:
        yield "\n".join(f"{one.pod} waits ({one.reason}): {one.message}" for one in decision.waiting)
    if problems:
        yield "\n".join(problems)
    if not (decision.quotas or drawn or decision.waiting):
        yield "no quotas, no boards of ours, and nobody waits"


_HEAD = ("QUOTA", "GOVERNS", "RESOURCE", "USED", "MIN", "MAX", "BORROWED", "LENT")


def _rows(one: QuotaStatus) -> Iterable[tuple[str, ...]]:
    governs = ",".join(one.governs) or f"nothing: {one.reason}"
    for name in sorted({*one.min, *one.max}):
        figures = (one.used, one.min, one.max, one.borrowed, one.lent)
        yield (one.key, governs, name, *(amount(name, each[name]) if name in each else "-" for each in figures))


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows with their columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _said(loan: Loan) -> str:
    return f"{amount(loan.resource, loan.amount)} {loan.resource}"


def _sorted(nodes: Iterable[NodeView]) -> list[NodeView]:
    return sorted(nodes, key=lambda node: node.name)
