"""Draw boards in a terminal: one line of slices and one of the pods in them, as wide as what they take.

    gpu-1  0 mig  |1g.5gb |1g.5gb |. . . . . . . .|3g.20gb                        |
                  |web/a  |-      |               |ml/train                       |

Memory units set the width for MIG, nominal GB for MPS. `.` is room that is not cut, `-` a slice that is free.
"""

from collections.abc import Iterable
from typing import Final

from policies import names
from policies.annotations import PlacedSlice
from policies.boards import Board
from policies.placement import bin_gb
from policies.view import NodeView

WIDTH: Final = 64  # columns of a whole board; with its name it fits 80


def draw(nodes: Iterable[NodeView]) -> str:
    """Return the boards of the nodes, two lines each, in the order of nodes and indexes; empty without boards."""
    boards = [(node.name, board) for node in nodes for board in node.boards]
    longest = max((len(name) for name, _ in boards), default=0)
    lines: list[str] = []
    for name, board in boards:
        head = f"{name:{longest}} {board.index:>2} {board.mode:4} "
        above, below = _bars(board)
        lines += [head + above, " " * len(head) + below]
    return "\n".join(lines)


def _bars(board: Board) -> tuple[str, str]:
    """Return the line of profiles and the line of pods."""
    above, below = "|", "|"
    position = 0
    total = board.model.memory_units if board.mode == names.MIG else board.model.nominal_gb
    for item, start, length in _stretches(board):
        if start > position:
            above += _cell(". " * WIDTH, start - position, total)
            below += _cell("", start - position, total)
        above += _cell(item.profile, length, total)
        below += _cell("withdrawn" if item.withdrawn else item.pod or ("used" if item.used else "-"), length, total)
        position = start + length
    if position < total:
        above += _cell(". " * WIDTH, total - position, total)
        below += _cell("", total - position, total)
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


def _cell(text: str, length: int, total: int) -> str:
    """Return text cut or padded to its share of the width, closed by a bar; at least two columns wide."""
    width = max(2, WIDTH * length // total)
    return f"{text[: width - 1]:{width - 1}}|"
