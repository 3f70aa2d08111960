"""Draw boards in a terminal: one line of slices and one of the pods in them, as wide as what they take.

    gpu-1  0 mig  |1g.5gb |1g.5gb |. . . . . . . .|3g.20gb                        |
                  |web/a  |-      |               |ml/train                       |

Memory units set the width for MIG, nominal GB for MPS. `.` is room that is not cut, `-` a slice that is free, `~`
stands for the middle of a name that is too long.
"""

from collections.abc import Iterable
from typing import Final

from policies import names
from policies.annotations import PlacedSlice
from policies.boards import Board
from policies.placement import bin_gb
from policies.view import NodeView

WIDTH: Final = 64  # columns of a whole board; with a short name it fits 80
_NARROWEST: Final = 24
_UNCUT: Final = ". "
_STEP: Final = 8  # so that eighths of a board stand below each other at every width


def draw(nodes: Iterable[NodeView], columns: int | None = None) -> str:
    """Return the boards of the nodes, two lines each, in the order of nodes and indexes; empty without boards.

    They are as narrow as it needs to fit so many columns, if it can.
    """
    boards = [(node.name, board) for node in nodes for board in node.boards]
    longest = max((len(name) for name, _ in boards), default=0)
    heads = [f"{name:{longest}} {board.index:>2} {board.mode:4} " for name, board in boards]
    room = WIDTH if columns is None else columns - max(map(len, heads), default=0) - 1
    width = min(WIDTH, max(_NARROWEST, room // _STEP * _STEP))
    lines: list[str] = []
    for head, (_, board) in zip(heads, boards, strict=True):
        above, below = _bars(board, width)
        lines += [head + above, " " * len(head) + below]
    return "\n".join(lines)


def _bars(board: Board, width: int) -> tuple[str, str]:
    """Return the line of profiles and the line of pods."""

    def cell(text: str, length: int) -> str:
        """Return text shortened or padded to its share of the width, closed by a bar; at least two columns wide."""
        room = max(2, width * length // total) - 1
        return f"{_shortened(text, room):{room}}|"

    above, below = "|", "|"
    position = 0
    total = board.model.memory_units if board.mode == names.MIG else board.model.nominal_gb
    for item, start, length in _stretches(board):
        if start > position:
            above += cell(_UNCUT * width, start - position)
            below += cell("", start - position)
        above += cell(item.profile, length)
        below += cell("withdrawn" if item.withdrawn else item.pod or ("used" if item.used else "-"), length)
        position = start + length
    if position < total:
        above += cell(_UNCUT * width, total - position)
        below += cell("", total - position)
    return above, below


def _stretches(board: Board) -> Iterable[tuple[PlacedSlice, int, int]]:
    """Yield each slice with its start and length, in memory units or GB; one after another where they have no start."""
    position = 0
    for item in board.slices:
        profile = board.model.profile(item.profile)
        length = profile.memory_units if profile else bin_gb(item.profile)
        if length is not None:
            yield item, position if item.start is None else item.start, length
            position += length


def _shortened(text: str, room: int) -> str:
    """Return text as it fits; of a name more of the end, by which pods of one owner differ."""
    if len(text) <= room or text.startswith(_UNCUT):
        return text[:room]
    first = (room - 1) // 3
    return f"{text[:first]}~{text[len(text) - (room - 1 - first) :]}"
