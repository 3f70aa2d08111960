"""A board as the planner sees it: slices that may not move, slices that are free or on their way."""

from collections import Counter
from functools import lru_cache
from typing import Final

import msgspec

from policies import names
from policies.boards import Board
from policies.catalogue import BoardModel
from policies.geometry import Placements, by_start

_REMEMBERED: Final = 1 << 16  # boards; some 20 MiB when full, more than a large cluster has

UNKNOWN: Final = BoardModel(name="", memory_mib=0, nominal_gb=0)
"""A board of which we know nothing, so that nothing can be made on it."""


class Face(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What decides what a board can bear: boards with the same are one class for the planner.

    Attributes:
        model: what it can do; UNKNOWN where the slices are another tool's.
        mode: its mode.
        rigid: nothing may be created or destroyed on it now.
        fixed: slices that may not move or go: used, promised, or (on a rigid board) all.
        open: those of them that nobody holds.
        coming: those of `open` that do not exist yet: the board is being cut.
        free: slices that exist, that nobody holds and that may go.
    """

    model: BoardModel
    mode: str
    rigid: bool
    fixed: Placements = ()
    open: Placements = ()
    coming: Placements = ()
    free: Placements = ()


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A board as the planner sees it.

    Attributes:
        index: NVML's index; -1 for the slices of a node whose boards are not ours to know.
        face: what it can bear, as good as always one object for all boards that are alike.
        existing: all that exists, withdrawn slices included, sorted: the basis of a new layout.
        leaving: free or open slices that pods on their way out still hold, so that they cannot go yet.
    """

    index: int
    face: Face
    existing: Placements = ()
    leaving: Placements = ()


@lru_cache(maxsize=_REMEMBERED)
def once(face: Face) -> Face:
    """Return the one object for equal faces, so that telling that boards are alike costs nothing."""
    return face


def left_over(board: Board) -> bool:
    """Return whether a board bears slices of a mode that it is no longer in: given away as they are, nothing beside them."""
    return any((item.start is None) != (board.mode == names.MPS) for item in board.slices)


@lru_cache(maxsize=_REMEMBERED)
def plot_of(board: Board, in_flight: bool, ordered: Placements | None, protected: frozenset[str]) -> Plot:
    """Return the board with its slices sorted into fixed and free; `ordered` is the layout that it is about to have."""
    used = [item.placement for item in board.slices if item.used]
    idle = [item.placement for item in board.slices if not item.used and not item.withdrawn]
    rigid = in_flight or not board.cuttable or left_over(board) or board.mode not in (names.MIG, names.MPS)
    if rigid:
        target = Counter(used + idle) if ordered is None else Counter(ordered)
        opened = sorted((target - Counter(used)).elements(), key=by_start)
    else:
        opened = sorted((placement for placement in idle if placement.profile in protected), key=by_start)
    face = Face(
        model=board.model,
        mode=board.mode,
        rigid=rigid,
        fixed=tuple(sorted(used + opened, key=by_start)),
        open=tuple(opened),
        coming=tuple(sorted((Counter(opened) - Counter(idle)).elements(), key=by_start)) if opened else (),
        free=() if rigid else tuple(sorted((item for item in idle if item.profile not in protected), key=by_start)),
    )
    existing = tuple(sorted((item.placement for item in board.slices), key=by_start))
    return Plot(index=board.index, face=once(face), existing=existing)


def unused(board: Board, then: Board) -> Placements:
    """Return the slices of a board that are used now and are not then."""
    used, still = (Counter(item.placement for item in each.slices if item.used) for each in (board, then))
    return tuple(sorted((used - still).elements(), key=by_start))
