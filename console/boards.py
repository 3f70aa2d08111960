"""Draw boards in a terminal: one line of slices and one of the pods in them, as wide as what they take.

    gpu-1  0 mig  |1g.5gb |1g.5gb |. . . . . . . .|3g.20gb                        |
                  |web/a  |-      |               |ml/train                       |

Memory units set the width for MIG, nominal GB for MPS. `.` is room that is not cut, `-` a slice that is free, `~`
stands for the middle of a name that is too long, `?` for whatever else a board has of which nobody can read how large it
is. `fixed` marks a board whose layout a file says: it is not cut. Devices on which pods take turns have equal parts of
their slice, or of what the others leave of the board. A change is drawn as the board before and after, where `-` marks
the slices that go and `+` those that are new:

    gpu-1  0 mig  |-1g.5gb|1g.5gb |. . . . . . . . . . . . . . . . . . . . . . . .|
                  |-      |web/a  |                                               |
               -> |. . . .|1g.5gb |+2g.10gb       |. . . . . . . . . . . . . . . .|
                  |       |web/a  |ml/train       |                               |
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final

import msgspec

from policies import names
from policies.annotations import PlacedSlice, Placement
from policies.boards import Board
from policies.placement import bin_gb
from policies.view import NodeView

WIDTH: Final = 64  # columns of a whole board; with a short name it fits 80
_NARROWEST: Final = 24
_UNCUT: Final = ". "
_STEP: Final = 8  # so that eighths of a board stand below each other at every width
_NONE: Final[Mapping[Placement, int]] = {}


class Change(msgspec.Struct, frozen=True):
    """A board of a node as it is, and as it would be."""

    node: str
    before: Board
    after: Board


def draw(nodes: Iterable[NodeView], columns: int | None = None) -> str:
    """Return the boards of the nodes, two lines each, in the order of nodes and indexes; empty without boards.

    They are as narrow as it needs to fit so many columns, if it can.
    """
    boards = [(node.name, board) for node in nodes for board in node.boards]
    heads, width = _heads(boards, columns)
    lines: list[str] = []
    for head, (_, board) in zip(heads, boards, strict=True):
        lines += _pair(head, _bars(board, width))
    return "\n".join(lines)


def draw_changes(changes: Iterable[Change], columns: int | None = None) -> str:
    """Return boards before and after, four lines each, as `draw` does."""
    changes = list(changes)
    heads, width = _heads([(change.node, change.before) for change in changes], columns)
    lines: list[str] = []
    for head, change in zip(heads, changes, strict=True):
        before, after = (Counter(board.layout) for board in (change.before, change.after))
        lines += _pair(head, _bars(change.before, width, "-", before - after))
        lines += _pair(f"{'-> ':>{len(head)}}", _bars(change.after, width, "+", after - before))
    return "\n".join(lines)


def _heads(boards: Sequence[tuple[str, Board]], columns: int | None) -> tuple[list[str], int]:
    """Return what stands before each board (node, board), all equally long, and how wide a board may be."""
    longest = max((len(name) for name, _ in boards), default=0)
    kinds = [f"{board.mode}{' fixed' if board.fixed else ''}" for _, board in boards]
    widest = max(4, *map(len, kinds)) if kinds else 0
    heads = [
        f"{name:{longest}} {board.index:>2} {kind:{widest}} " for (name, board), kind in zip(boards, kinds, strict=True)
    ]
    room = WIDTH if columns is None else columns - max(map(len, heads), default=0) - 1
    return heads, min(WIDTH, max(_NARROWEST, room // _STEP * _STEP))


def _pair(head: str, bars: tuple[str, str]) -> tuple[str, str]:
    return head + bars[0], " " * len(head) + bars[1]


def _bars(board: Board, width: int, mark: str = "", marked: Mapping[Placement, int] = _NONE) -> tuple[str, str]:
    """Return the line of profiles and the line of pods; so many of the slices that nobody uses bear a mark."""

    def cell(text: str, length: int) -> str:
        """Return text shortened or padded to its share of the width, closed by a bar; at least two columns wide."""
        room = max(2, width * length // total) - 1
        return f"{_shortened(text, room):{room}}|"

    above, below = "|", "|"
    position = 0
    left = Counter(marked)
    # Of what it bears: until they are gone, slices are there of a mode in which a board no longer is.
    units = any(board.model.profile(item.profile) for item in board.slices) if board.slices else board.mode == names.MIG
    total = board.model.memory_units if units else board.model.nominal_gb
    readable = total > 0
    total = total or sum(_length(board, item) or 1 for item in board.slices)
    for item, start, length in _stretches(board, total):
        if start > position:
            above += cell(_UNCUT * width, start - position)
            below += cell("", start - position)
        bears = not item.used and left[item.placement] > 0
        left[item.placement] -= bears
        above += cell(f"{mark if bears else ''}{item.profile}", length)
        below += cell("withdrawn" if item.withdrawn else item.pod or ("used" if item.used else "-"), length)
        position = start + length
    if position < total:
        above += cell(_UNCUT * width, total - position)
        below += cell("", total - position)
    return (above, below) if readable else (f"{above}?|", f"{below} |")


def _stretches(board: Board, total: int) -> Iterable[tuple[PlacedSlice, int, int]]:
    """Yield each slice with its start and length, in memory units or GB, from left to right.

    Where slices have no start they follow each other. Turns on one slice have equal parts of it; turns on a slice that
    is not told have equal parts of the widest room that the others leave.
    """
    turns = [item for item in board.slices if _length(board, item) is None]
    cells: list[tuple[PlacedSlice, int, int]] = []
    position = 0
    for placement, items in groupby(
        (item for item in board.slices if item not in turns), key=lambda item: item.placement
    ):
        group, length = [*items], _length(board, placement) or 0
        if placement.start is None:
            cells += [(item, position + length * number, length) for number, item in enumerate(group)]
        else:
            cells += _parts(group, placement.start, length)
        position = cells[-1][1] + cells[-1][2]
    ends = [0, *(start + length for _, start, length in cells)]
    gaps = zip(ends, [*(start for _, start, _ in cells), total], strict=True)
    start, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    return sorted([*cells, *_parts(turns, start, end - start)], key=lambda cell: cell[1:])


def _parts(items: Sequence[PlacedSlice], start: int, length: int) -> list[tuple[PlacedSlice, int, int]]:
    """Return slices with equal parts of a stretch."""
    bounds = [start + length * number // len(items) for number in range(len(items) + 1)] if items else []
    return [(item, first, last - first) for item, (first, last) in zip(items, pairwise(bounds), strict=True)]


def _length(board: Board, item: PlacedSlice | Placement) -> int | None:
    profile = board.model.profile(item.profile)
    return profile.memory_units if profile else bin_gb(item.profile)


def _shortened(text: str, room: int) -> str:
    """Return text as it fits; of a name more of the end, by which pods of one owner differ."""
    if len(text) <= room or text.startswith(_UNCUT):
        return text[:room]
    first = (room - 1) // 3
    return f"{text[:first]}~{text[len(text) - (room - 1 - first) :]}"
