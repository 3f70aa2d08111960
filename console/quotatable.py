"""Quotas as tables show them: what each governs, uses and may use, and who borrows from whom."""

from collections.abc import Iterator, Sequence
from typing import Final

from console.amounts import shown
from console.loans import loans
from console.output import columns, wrapped
from policies.decision import QuotaStatus

_HEAD: Final = ("QUOTA", "USED", "MIN", "MAX", "BORROWED", "LENT")


def quota_paragraphs(quotas: Sequence[QuotaStatus], width: int | None) -> Iterator[str]:
    """Yield the table of quotas, and the loans between them, as far as there are any."""
    if quotas:
        yield _table(quotas, width)
    lent = [
        f"{one.borrower} borrows {shown(one.resource, one.amount)} {one.resource} from {one.lender}"
        for one in loans(quotas)
    ]
    if lent:
        yield "\n".join(wrapped(sentence, width) for sentence in lent)


def _table(quotas: Sequence[QuotaStatus], width: int | None) -> str:
    """Return a line for each resource of each quota, below a line that says what the quota governs."""
    rows = [_HEAD, *(row for one in quotas for row in _rows(one))]
    head, *figures = columns(rows).splitlines()
    below = iter(figures)
    lines = [head]
    for one in quotas:
        governs = ", ".join(one.governs) or f"nothing: {one.reason}"
        lines.append(wrapped(f"{one.key} governs {governs}", width))
        lines += [next(below) for _ in _rows(one)]
    return "\n".join(lines)


def _rows(one: QuotaStatus) -> Sequence[tuple[str, ...]]:
    figures = (one.used, one.min, one.max, one.borrowed, one.lent)
    return [
        (f"  {name}", *(shown(name, each[name]) if name in each else "-" for each in figures))
        for name in sorted({*one.min, *one.max})
    ]
