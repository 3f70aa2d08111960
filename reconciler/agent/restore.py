"""What a board has lost: slices that pods hold, or that we have reported, and that the driver does not know any more.

A reboot takes all GPU instances, and so does the reset of a board; MIG mode and placements it can have stay. A slice that
we have announced goes only by being withdrawn, so what went otherwise is made again, at its place, before any order is
looked at (docs/adr/0023).
"""

from collections import Counter
from collections.abc import Collection, Iterable

from policies import names
from policies.annotations import BoardInventory, PlacedSlice
from policies.boards import inventory_model
from reconciler.agent.driver import Slice, order_key
from reconciler.agent.rules import numbered, rejection


def missing(
    board: BoardInventory,
    mode: str,
    present: Collection[Slice],
    held: Collection[Slice],
    reported: Iterable[PlacedSlice],
) -> tuple[Slice, ...]:
    """Return the slices to be made again, in this order: first those that pods hold, then those that none held.

    Slices of a mode in which the board is not, and those for which there is no room any more, cannot come back.

    Args:
        board: the board.
        mode: how it is to be used.
        present: what the driver has, complete.
        held: slices of this board that pods hold, by the kubelet.
        reported: what we reported of it last.
    """
    if mode not in (names.MIG, names.MPS) or (mode == names.MIG) is not bool(board.mig):
        return ()
    lost = sorted(set(held) - set(present), key=order_key)
    known = [*present, *lost]
    promised = Counter(item.placement for item in reported if not item.withdrawn)
    lost += numbered(promised - Counter(item.placement for item in known), known)
    model, there = inventory_model(board), [item.placement for item in present]
    again: list[Slice] = []
    for item in lost:
        if (item.start is None) is (mode == names.MPS) and rejection(model, there, item.placement) is None:
            there.append(item.placement)
            again.append(item)
    return tuple(again)
