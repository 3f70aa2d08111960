"""Layouts of one board: what fits beside slices that may not move, and where it is best put.

A MIG layout is a set of profiles at legal starts, without overlap, within the board's compute slices and each
profile's `max`; counts alone do not decide (3g + 4 x 1g exists only with the 3g at start 4). Memory units are bits
of an integer. An MPS layout is a list of whole GB whose sum the board's nominal GB hold, of at most `max_clients`.

Everything here is a function of hashable values and remembered, so that asking again costs a look-up.
"""

import re
from collections import Counter
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from policies import names
from policies.annotations import PlacedSlice, Placement, by_start, listed
from policies.catalogue import BoardModel, canonical_profile
from policies.geometry import Geometry, Placements, Profiles, Taken, Way, geometry_of

_BIN: Final = re.compile(r"([1-9]\d*)gb")
_REMEMBERED: Final = 1 << 16  # entries; some 20 MiB when full, more than the layouts of a large cluster


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """The best layout for wanted slices on a board.

    Attributes:
        placed: where the wanted slices lie, sorted; some of them may be free slices that exist already.
        kept: the other free slices, which stay, sorted.
        destroyed: free slices that must go.
        created: wanted slices that do not exist yet.
        starts: starts left beside fixed and placed slices, by plain profile, largest first; empty for MPS.
    """

    placed: Placements
    kept: Placements
    destroyed: int
    created: int
    starts: tuple[int, ...]


def resource_of(profile: str) -> str:
    """Return the resource that announces a slice: `3g.20gb` is `nvidia.com/mig-3g.20gb`, `10gb` `nvidia.com/gpu-10gb`.

    What an agent reports under another name is no slice, but a board as a whole, or in turns: `gpu` is `nvidia.com/gpu`.
    """
    if _BIN.fullmatch(profile):
        return names.MPS_RESOURCE + profile
    return names.mig_resource(profile) if size_of(profile)[1] else names.NVIDIA_PREFIX + profile


@lru_cache(maxsize=4096)
def profile_of(resource: str) -> str:
    """Return the profile that a MIG or MPS resource announces. Raises ValueError for any other resource."""
    if resource.startswith(names.MIG_RESOURCE):
        return canonical_profile(resource.removeprefix(names.MIG_RESOURCE))
    if resource.startswith(names.MPS_RESOURCE):
        return resource.removeprefix(names.MPS_RESOURCE)
    raise ValueError(
        f"{resource!r} is neither a MIG slice ({names.MIG_RESOURCE}...) nor an MPS slice ({names.MPS_RESOURCE}...)"
    )


@lru_cache(maxsize=4096)
def size_of(profile: str) -> tuple[int, int]:
    """Return (GB, compute slices) of a profile by its name; an MPS slice has no compute slices."""
    compute, _, memory = profile.rpartition("g.")
    digits = memory.partition("gb")[0]
    return int(digits) if digits.isdecimal() else 0, int(compute) if compute.isdecimal() else 0


def largest_first(profile: str) -> tuple[int, int, str]:
    """Return the key by which profiles are listed, the largest first, by GB, then by compute slices."""
    gigabytes, compute = size_of(profile)
    return -gigabytes, -compute, profile


def fits(model: BoardModel, mode: str, fixed: Placements, wanted: Profiles) -> bool:
    """Return whether a board in that mode can hold all wanted slices beside the fixed ones.

    A fixed slice whose place is unknown (a profile that the model lacks, MIG without start) leaves room for nothing.
    """
    return _fits(model, mode, fixed, tuple(sorted(wanted)))


@lru_cache(maxsize=4096)
def is_made(model: BoardModel, mode: str, profile: str) -> bool:
    """Return whether an empty board in that mode can hold a slice of a profile."""
    return _fits(model, mode, (), (profile,))


@lru_cache(maxsize=_REMEMBERED)
def capacity_for(model: BoardModel, mode: str, fixed: Placements, profile: str) -> int:
    """Return how many slices of one profile a board could have beside the fixed ones, free ones being destroyed."""
    count = 0
    while _fits(model, mode, fixed, (profile,) * (count + 1)):
        count += 1
    return count


def arrange(
    model: BoardModel, mode: str, fixed: Placements, wanted: Profiles, free: Placements = ()
) -> Arrangement | None:
    """Return the best layout that holds the wanted slices beside the fixed ones, or None if there is none.

    Best is: fewest of the `free` slices destroyed; fewest created; most starts left beside fixed and placed ones for the
    largest profile, then the next (a lone 1g goes to 6, a lone 3g to 4); the same beside the kept ones too; lowest starts.
    """
    return _arrange(model, mode, fixed, tuple(sorted(wanted)), listed(free))


def to_hold(model: BoardModel, mode: str, held: Placements, free: Placements) -> Placement | None:
    """Return which of some free slices of one profile a pod had best hold, by the planner's rule; None if that knows none.

    The one beside which and the held ones most starts are left for the largest profile, then the next; the lowest of equals.
    """
    found = arrange(model, mode, held, tuple({item.profile for item in free}), free)
    return found.placed[0] if free and found and not found.created else None


def beside(model: BoardModel, mode: str, fixed: Placements, placements: Placements) -> Placements:
    """Return those of some placements, which go together, that can be had beside fixed slices, where they are."""
    if mode == names.MIG:
        geometry = geometry_of(model)
        taken = geometry.occupied(fixed)
        return listed(geometry.keep(taken, placements)[0]) if taken else ()
    had: list[Placement] = []
    for placement in placements:
        if fits(model, mode, fixed, tuple(item.profile for item in (*had, placement))):
            had.append(placement)
    return tuple(had)


def lay_out(model: BoardModel, mode: str, counted: tuple[tuple[str, bool], ...]) -> tuple[PlacedSlice, ...] | None:
    """Return places for slices of which only the counts are known: (profile, used) pairs, as nos reports them.

    Of equal slices those are taken to be used that leave most starts beside them. None if no layout holds the counts.
    """
    everything = arrange(model, mode, (), tuple(profile for profile, _ in counted))
    held = tuple(profile for profile, used in counted if used)
    used = everything and arrange(model, mode, (), held, everything.placed)
    if everything is None or used is None:
        return None
    free = Counter(everything.placed) - Counter(used.placed)
    placed = [PlacedSlice(profile=item.profile, start=item.start, used=True) for item in used.placed]
    placed += [PlacedSlice(profile=item.profile, start=item.start, used=False) for item in free.elements()]
    return tuple(sorted(placed, key=lambda item: by_start(item.placement)))


# MIG ------------------------------------------------------------------------------------------------------------------


def _arrange_mig(model: BoardModel, fixed: Placements, wanted: Profiles, free: Placements) -> Arrangement | None:
    geometry = geometry_of(model)
    taken = geometry.occupied(fixed)
    there = frozenset(free)
    ways = [_rated(geometry, there, free, way) for way in geometry.ways(taken, wanted)] if taken else []
    if not ways:
        return None
    if len(ways) > 1:
        best = min([way.rank for way in ways])
        ways = [way for way in ways if way.rank == best]
        ways = [min(ways, key=lambda way: way.finer_rank(geometry))] if len(ways) > 1 else ways
    (way,) = ways
    destroyed, created, _ = way.rank
    return Arrangement(
        placed=way.way.placed, kept=listed(way.kept), destroyed=destroyed, created=created, starts=way.way.starts
    )


class _Rated(NamedTuple):
    """A way to place wanted slices, and what becomes of the free ones.

    Attributes:
        rank: how good it is, the lowest is best: slices destroyed, slices created, minus the starts that are left.
        way: the way.
        kept: the free slices that stay.
        whole: what is taken with these.
    """

    rank: tuple[int, int, tuple[int, ...]]
    way: Way
    kept: list[Placement]
    whole: Taken

    def finer_rank(self, geometry: Geometry) -> tuple[object, ...]:
        """Return how good it is among equals, of which none is like another."""
        return tuple([-left for left in geometry.starts_left(self.whole)]), [
            *map(by_start, (*self.way.placed, *listed(self.kept)))
        ]


def _rated(geometry: Geometry, there: frozenset[Placement], free: Placements, way: Way) -> _Rated:
    kept, whole = geometry.keep(way.taken, free) if free else ([], way.taken)
    reused = len(there.intersection(way.placed)) if free else 0
    rank = len(free) - reused - len(kept), len(way.placed) - reused, tuple([-left for left in way.starts])
    return _Rated(rank, way, kept, whole)


# MPS ------------------------------------------------------------------------------------------------------------------


def bin_gb(profile: str) -> int | None:
    """Return the GB of an MPS slice (`10gb` is 10), or None for another profile."""
    match = _BIN.fullmatch(profile)
    return int(match[1]) if match else None


def _bins(profiles: Profiles) -> list[int] | None:
    sizes = [bin_gb(profile) for profile in profiles]
    return None if None in sizes else [size for size in sizes if size is not None]


def _arrange_mps(model: BoardModel, fixed: Placements, wanted: Profiles, free: Placements) -> Arrangement | None:
    taken = _bins((*(item.profile for item in fixed), *wanted))
    if taken is None:
        return None
    spare_gb, spare_clients = model.nominal_gb - sum(taken), model.max_clients - len(taken)
    if spare_gb < 0 or spare_clients < 0:
        return None
    exist = Counter(item.profile for item in free)
    reused = exist & Counter(wanted)
    # Keeping the smallest keeps the most; a free slice of unknown size cannot be kept.
    others = sorted((size, profile) for profile in (exist - reused).elements() if (size := bin_gb(profile)) is not None)
    kept: list[Placement] = []
    for size, profile in others:
        if size <= spare_gb and len(kept) < spare_clients:
            spare_gb -= size
            kept.append(Placement(profile))
    return Arrangement(
        placed=tuple(Placement(profile) for profile in wanted),
        kept=listed(kept),
        destroyed=len(free) - reused.total() - len(kept),
        created=len(wanted) - reused.total(),
        starts=(),
    )


# Both -----------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_REMEMBERED)
def _fits(model: BoardModel, mode: str, fixed: Placements, wanted: Profiles) -> bool:
    if mode == names.MPS:
        return _arrange_mps(model, fixed, wanted, ()) is not None
    geometry = geometry_of(model)
    taken = geometry.occupied(fixed) if mode == names.MIG else None
    return taken is not None and next(geometry.layouts(taken, wanted), None) is not None


@lru_cache(maxsize=_REMEMBERED)
def _arrange(model: BoardModel, mode: str, fixed: Placements, wanted: Profiles, free: Placements) -> Arrangement | None:
    if mode == names.MPS:
        return _arrange_mps(model, fixed, wanted, free)
    return _arrange_mig(model, fixed, wanted, free) if mode == names.MIG else None
