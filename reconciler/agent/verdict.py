"""What the agent says of its node as a whole, in one condition: whether every board can be cut, and all that is wrong."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from policies import names
from reconciler.agent.boards import BoardState
from reconciler.agent.fixed.target import still_held
from reconciler.agent.neighbours import neighbours
from reconciler.agent.node import NodeState
from reconciler.agent.pace import Pace


class Verdict(msgspec.Struct, frozen=True):
    """What the node's condition says.

    Attributes:
        ok: whether every board can be cut.
        reason: PascalCase, of policies.names.
        message: for a person.
    """

    ok: bool
    reason: str
    message: str


NOT_OURS: Final = Verdict(
    ok=False,
    reason=names.NOT_PARTITIONED,
    message=f"the node has no label {names.PARTITIONING_LABEL} any more: its boards are not ours to cut",
)


def verdict(
    node: NodeState,
    boards: Collection[BoardState],
    announced: Collection[str],
    met: Iterable[tuple[str, str]],
    pace: Pace,
) -> Verdict:
    """Return all that is wrong with a node, with the reason of what stands first.

    Args:
        node: the node.
        boards: its boards as they are.
        announced: the resources that are ours here.
        met: what the pass has met with besides, as (reason, message).
        pace: which boards have failed.
    """
    faults = [(names.NODE_UNREADABLE, fault) for fault in node.faults]
    if not node.mode:
        faults.append((NOT_OURS.reason, NOT_OURS.message))
    faults += _failed(boards, pace)
    faults += met
    faults += _foreign(boards)
    faults += neighbours(node, announced)
    faults += _pending(boards)
    if not faults:
        return Verdict(ok=True, reason=names.BOARDS_READY, message="")
    return Verdict(ok=False, reason=faults[0][0], message="; ".join(message for _, message in faults))


def _failed(boards: Iterable[BoardState], pace: Pace) -> Iterator[tuple[str, str]]:
    for board in boards:
        if why := board.inventory.fault:
            yield names.BOARD_FAILED, f"{_called(board)}: {why}"
        elif why := pace.failure(board.inventory.uuid):  # a process that it names may have gone
            yield names.BOARD_FAILED, f"{_called(board)}: {why}, when it was last tried"


def _foreign(boards: Iterable[BoardState]) -> Iterator[tuple[str, str]]:
    """Yield which slices pods hold by devices of other plugins; that a board is held as a whole is its fault."""
    for board in boards:
        for held in board.foreign:
            if held.item is not None:
                yield names.ANOTHER_PLUGIN, f"{_called(board)}: {held}"


def _pending(boards: Iterable[BoardState]) -> Iterator[tuple[str, str]]:
    for board in boards:
        if board.fixed and (held := still_held(board.fixed, board.slices, board.used)):
            why = f"waits for the pods that hold {', '.join(map(str, held))} to end"
            yield names.LAYOUT_PENDING, f"{_called(board)}: {why}"


def _called(board: BoardState) -> str:
    return f"GPU {board.inventory.index} ({board.inventory.uuid})"
