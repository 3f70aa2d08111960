"""A board as the planner sees it: slices that may not move, slices that are free or on their way."""

from collections import Counter
from functools import lru_cache
from typing import Final

import msgspec

from policies import names
from policies.annotations import listed
from policies.boards import Board
from policies.catalogue import BoardModel
from policies.geometry import Placements
from policies.placement import fits, is_made

_REMEMBERED: Final = 1 << 16  # boards; some 20 MiB when full, more than a large cluster has


class Face(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What decides what a board can bear: boards with the same are one class for the planner.

    Attributes:
        model: what it can do; UNKNOWN where the slices are another tool's.
        mode: its mode.
        rigid: nothing may be created or destroyed on it now.
        busy: its node has an order to carry out first: what is planned on the board comes after that, upon its outcome.
        fixed: slices that may not move or go: used, promised, or (on a rigid board) all.
        open: those of them that nobody holds.
        free: slices that nobody holds and that may go.
        coming: those of `open` and `free` that do not exist yet: the board is being cut.
    """

    model: BoardModel
    mode: str
    rigid: bool
    busy: bool = False
    fixed: Placements = ()
    open: Placements = ()
    free: Placements = ()
    coming: Placements = ()


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


@lru_cache(maxsize=_REMEMBERED)
def gives(face: Face, profile: str) -> bool:
    """Return whether a board has a slice that nobody holds, or a place for one if what is free there goes."""
    if profile in [item.profile for item in face.open]:
        return True
    return (
        not face.rigid
        and is_made(face.model, face.mode, profile)
        and fits(face.model, face.mode, face.fixed, (profile,))
    )


def left_over(board: Board) -> bool:
    """Return whether a board bears slices of a mode that it is no longer in: given away as they are, nothing beside them."""
    return any((item.start is None) != (board.mode == names.MPS) for item in board.slices)


@lru_cache(maxsize=_REMEMBERED)
def plot_of(
    board: Board, protected: frozenset[str], busy: bool = False, silent: bool = False, ordered: Placements | None = None
) -> Plot:
    """Return the board with its slices sorted into fixed and free.

    Args:
        board: the board.
        protected: profiles whose slices may not go.
        busy: its node has an order to carry out.
        silent: which nobody carries out.
        ordered: the layout that the board is about to have by that; None if it stays as it is.
    """
    used = [item.placement for item in board.slices if item.used]
    idle = [item.placement for item in board.slices if not item.used and not item.withdrawn]
    rigid = silent or not board.cuttable or left_over(board) or board.mode not in (names.MIG, names.MPS)
    left = idle if ordered is None else list((Counter(ordered) - Counter(used)).elements())
    opened = listed([item for item in left if rigid or item.profile in protected])
    face = Face(
        model=board.model,
        mode=board.mode,
        rigid=rigid,
        busy=busy,
        fixed=listed([*used, *opened]),
        open=opened,
        free=listed([item for item in left if not (rigid or item.profile in protected)]),
        coming=() if ordered is None else listed((Counter(left) - Counter(idle)).elements()),
    )
    return Plot(index=board.index, face=once(face), existing=board.layout)


def unused(board: Board, then: Board) -> Placements:
    """Return the slices of a board that are used now and are not then."""
    used, still = (Counter(item.placement for item in each.slices if item.used) for each in (board, then))
    return listed((used - still).elements())
