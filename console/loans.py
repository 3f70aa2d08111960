"""Who borrows from whom. Quotas lend into one pot, in proportion to what stands unused; here that pot is paired off."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from console.amounts import shown
from policies import names
from policies.decision import QuotaStatus
from policies.quantity import Amounts
from policies.settings import QuotaSettings
from policies.view import NodeView

_NODES_OFFER: Final = ("cpu", "memory", "ephemeral-storage")


class Loan(msgspec.Struct, frozen=True, kw_only=True):
    """What one quota has of another's.

    Attributes:
        resource: of which.
        borrower: namespace/name of the quota that uses more than its min.
        lender: namespace/name of one that uses less.
        amount: how much, in thousandths.
    """

    resource: str
    borrower: str
    lender: str
    amount: int


def loans(statuses: Iterable[QuotaStatus]) -> Iterator[Loan]:
    """Yield the loans by resource; borrowers and lenders are paired in the order of their names.

    What is borrowed beyond all that is lent (mins were lowered, say) has no lender and is left out.
    """
    everybody = sorted(statuses, key=lambda status: status.key)
    for resource in sorted({name for status in everybody for name in status.borrowed}):
        lent = {status.key: status.lent[resource] for status in everybody if status.lent.get(resource)}
        for status in everybody:
            wanted = status.borrowed.get(resource, 0)
            for lender, left in list(lent.items()):
                taken = min(wanted, left)
                if taken:
                    yield Loan(resource=resource, borrower=status.key, lender=lender, amount=taken)
                    wanted, lent[lender] = wanted - taken, left - taken


def promised_beyond(
    statuses: Iterable[QuotaStatus], nodes: Iterable[NodeView], settings: QuotaSettings
) -> Iterator[str]:
    """Yield a sentence for each resource of which the mins add up to more than all nodes have (pain Q26).

    Of other resources than CPU, memory and GPUs nobody knows here what the nodes could have.
    """
    mins: dict[str, int] = {}
    for status in statuses:
        for name, least in status.min.items() if status.ready else ():
            mins[name] = mins.get(name, 0) + least
    there = _capacity(nodes, settings)
    for name, total in sorted(mins.items()):
        if total > there.get(name, total):
            yield (
                f"the mins of all quotas add up to {shown(name, total)} {name}, the nodes have "
                f"{shown(name, there[name])}: not every quota can have its min at the same time"
            )


def _capacity(nodes: Iterable[NodeView], settings: QuotaSettings) -> Amounts:
    total: dict[str, int] = dict.fromkeys((*_NODES_OFFER, names.GPU, names.GPU_MEMORY_QUOTA), 0)
    for node in nodes:
        for name in _NODES_OFFER:
            total[name] += node.allocatable.get(name, 0)
        whole = node.allocatable.get(names.GPU, 0) if not node.boards else 0
        total[names.GPU] += whole + 1000 * len(node.boards)
        total[names.GPU_MEMORY_QUOTA] += whole * settings.gpu_memory_gb
        total[names.GPU_MEMORY_QUOTA] += sum(1000 * board.model.nominal_gb for board in node.boards)
    return total
