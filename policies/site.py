"""A node as admission sees it: what its boards are, how they are cut, and what it announces.

Much smaller than the node: kinds of boards and layouts are shared between all nodes that have equal ones.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

import msgspec

from policies import names
from policies.annotations import Placement
from policies.boards import Board
from policies.catalogue import UNKNOWN, BoardModel
from policies.model import Taint
from policies.needs import is_slice
from policies.placement import bin_gb, capacity_for, lay_out, profile_of, resource_of
from policies.view import NodeView

_REMEMBERED: Final = 1 << 14  # layouts of boards; a large cluster has a few hundred different ones


UNBOUNDED: Final = 1 << 31
"""Slices where nobody knows how many there are at most."""


class BoardKind(msgspec.Struct, frozen=True, cache_hash=True):
    """Boards of one model in one mode.

    Attributes:
        mode: how they are divided.
        model: what they can do.
        called: the resource that announces all that is on them, where a file calls it so that it names no slice and is
            not what turns are called by themselves (docs/adr/0024); else empty.
    """

    mode: str
    model: BoardModel
    called: str = ""

    def makes(self, resource: str) -> bool:
        """Return whether such a board can ever be cut so that it announces a slice resource."""
        if self.mode == names.TIMESLICING:
            return resource == names.GPU_SHARED and not self.called
        if self.mode == names.MIG:
            return resource.startswith(names.MIG_RESOURCE) and self.model.profile(profile_of(resource)) is not None
        gigabytes = bin_gb(profile_of(resource)) if resource.startswith(names.MPS_RESOURCE) else None
        return gigabytes is not None and gigabytes <= self.model.nominal_gb

    @property
    def order(self) -> tuple[str, str, int, str]:
        """Return the key by which kinds are sorted."""
        return self.mode, self.model.name, self.model.memory_mib, self.called


class BoardCut(msgspec.Struct, frozen=True, cache_hash=True):
    """How a board is cut, as far as it decides what can be had from it.

    Attributes:
        kind: of the board.
        fixed: slices in use; None if the board cannot be cut now.
        free: profiles of free slices, where the board cannot be cut.
    """

    kind: BoardKind
    fixed: tuple[Placement, ...] | None
    free: tuple[str, ...] = ()


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What of a node decides which pods it may serve and with what. It seldom changes.

    Attributes:
        labels: its labels.
        taints: its taints.
        up: Ready and not cordoned.
        managed: labelled for partitioning; else what it announces is another plugin's.
        kinds: of its boards, each once, sorted; empty where it is not managed.
        announced: slice resources in its capacity that its boards do not explain.
        whole: whether nvidia.com/gpu is in its capacity.
        unable: why its agent can do nothing; empty if it does not say so.
    """

    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    up: bool
    managed: bool
    kinds: tuple[BoardKind, ...]
    announced: frozenset[str]
    whole: bool
    unable: str = ""


class Cuts(msgspec.Struct, frozen=True, cache_hash=True):
    """How all boards of a node are cut, by index."""

    boards: tuple[BoardCut, ...] = ()


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A node as admission sees it.

    Attributes:
        name: its name.
        traits: what seldom changes.
        cuts: how its boards are cut now.
    """

    name: str
    traits: Traits
    cuts: Cuts = Cuts()


@lru_cache(maxsize=_REMEMBERED)
def room(cuts: Cuts, kind: BoardKind, profile: str) -> int:
    """Return how many slices of a profile can be had now from a node's boards of a kind: free, or cut anew."""
    return sum(_room(cut, profile) for cut in cuts.boards if cut.kind == kind)


@lru_cache(maxsize=_REMEMBERED)
def most(cuts: Cuts, resource: str) -> int:
    """Return how many slices of a resource a node could have at a time if its boards held nothing else."""
    return sum(_most(cut.kind, resource) for cut in cuts.boards)


@lru_cache(maxsize=_REMEMBERED)
def held(cuts: Cuts) -> Counter[tuple[BoardKind, str]]:
    """Return how many slices of each profile are in use on a node's boards of each kind, where they can be cut."""
    return Counter((cut.kind, item.profile) for cut in cuts.boards for item in cut.fixed or ())


def site_of(node: NodeView) -> Site | None:
    """Return a node as admission sees it; None if it has neither GPUs nor slices."""
    # What is on a board of which nothing else is known, the node announces, and that is all that is to be had there.
    cuts = _shared(Cuts(tuple(_cut(board) for board in node.boards if board.model != UNKNOWN)))
    kinds = tuple(sorted({cut.kind for cut in cuts.boards}, key=lambda kind: kind.order))
    announced = frozenset(
        name
        for name, amount in node.capacity.items()
        # A node of ours goes on naming resources that it no longer has; another plugin may be about to come back.
        if (name == names.GPU_SHARED or is_slice(name))
        and (amount > 0 or not node.managed)
        and not any(kind.makes(name) for kind in kinds)
    )
    whole = node.capacity.get(names.GPU, 0) > 0
    if not (node.managed or announced or whole):
        return None
    traits = Traits(
        labels=node.labels,
        taints=node.taints,
        up=node.ready and not node.cordoned,
        managed=node.managed,
        kinds=kinds,
        announced=announced,
        whole=whole,
        unable=node.unable,
    )
    return Site(name=node.name, traits=traits, cuts=cuts)


# ---------------------------------------------------------------------------------------------------------------------


def _cut(board: Board) -> BoardCut:
    kind = _one(BoardKind(board.mode, board.model, _called(board)))
    slices = board.slices or (lay_out(board.model, board.mode, board.counted) if board.counted else ())
    if board.cuttable and slices is not None:
        return BoardCut(kind, tuple(item.placement for item in slices if item.used))
    return BoardCut(kind, None, tuple(sorted(item.profile for item in board.slices if not item.used)))


def _called(board: Board) -> str:
    """Return the one resource that announces all of a board's slices, if it names no slice, nor turns as such; else ""."""
    resources = {resource_of(profile) for profile in {item.profile for item in board.slices}}
    name = next(iter(resources)) if len(resources) == 1 else names.GPU_SHARED
    return "" if name == names.GPU_SHARED or is_slice(name) else name


@cache
def _one(kind: BoardKind) -> BoardKind:
    """Return the one object for equal kinds, so that a thousand nodes share a dozen models."""
    return kind


@lru_cache(maxsize=_REMEMBERED)
def _shared(cuts: Cuts) -> Cuts:
    """Return the one object for equal cuts, so that nodes which are cut alike share it."""
    return cuts


@cache
def _most(kind: BoardKind, resource: str) -> int:
    if not kind.makes(resource):
        return 0
    if kind.mode == names.TIMESLICING:
        return UNBOUNDED  # into how many parts is the node's own affair
    return capacity_for(kind.model, kind.mode, (), profile_of(resource))


@lru_cache(maxsize=_REMEMBERED)
def _room(cut: BoardCut, profile: str) -> int:
    if cut.kind.mode == names.TIMESLICING:
        return 1
    if cut.fixed is None:
        return cut.free.count(profile)
    return capacity_for(cut.kind.model, cut.kind.mode, cut.fixed, profile)
