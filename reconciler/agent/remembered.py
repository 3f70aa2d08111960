"""What is known of boards that do not answer: what they were when they last did, by our report and by what pods hold.

That a driver's call fails says nothing of what is on a board. Its slices cannot serve then, but they have not gone: pods hold
them, and the kubelet has to go on knowing them.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from policies.annotations import BoardInventory, PlacedSlice
from policies.placement import bin_gb
from reconciler.agent.driver import WHOLE, Slice, order_key, unanswered
from reconciler.agent.rules import numbered


def known_boards(boards: Iterable[BoardInventory], reported: Iterable[BoardInventory]) -> tuple[BoardInventory, ...]:
    """Return boards with all that is known of them, where the driver does not tell it now.

    Which one a board is that has not told its UUID is known if it is the only one; of several it does not matter, since none
    can be used, so the index decides as far as it can.

    Args:
        boards: as the driver has them.
        reported: as we reported them last.
    """
    boards = tuple(boards)
    uuids = {board.uuid for board in boards}
    known = {board.uuid: board for board in reported if board.uuid != unanswered(board.index).uuid}
    silent = {board.index: board for board in known.values() if board.uuid not in uuids}
    found: list[BoardInventory] = []
    for board in boards:
        if board.uuid != unanswered(board.index).uuid:
            found.append(_completed(board, known.get(board.uuid)))
        elif silent:
            one = silent.pop(board.index if board.index in silent else min(silent))
            found.append(replace(one, index=board.index, fault=board.fault))
        else:
            found.append(board)
    return tuple(found)


def known_slices(held: Collection[Slice], reported: Iterable[PlacedSlice]) -> tuple[Slice, ...]:
    """Return the slices of a board that has not answered since we started: what pods hold of it, and what was reported.

    A report may have one MIG slice several times, once for each turn on it.
    """
    present = sorted((item for item in held if item != WHOLE), key=order_key)
    placements = Counter(item.placement for item in reported if item.start is not None or bin_gb(item.profile))
    once = Counter({item: count if item.start is None else 1 for item, count in placements.items()})
    return (*present, *numbered(once - Counter(item.placement for item in present), present))


def _completed(board: BoardInventory, known: BoardInventory | None) -> BoardInventory:
    if known is None or not board.fault:
        return board
    if board.mig_capable is None:  # it has not been described
        return replace(known, index=board.index, fault=board.fault)
    return replace(board, mig=known.mig if board.mig is None else board.mig)
