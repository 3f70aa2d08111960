"""The profiles of one model of board as bits: which MIG layouts exist, and what each leaves room for.

Memory units are bits of an integer, so that "does it overlap" is one `&`. So is "is there enough of it": compute slices,
media engines and how often a profile may still occur are parts of another integer, each with a bit on top that is lost
where too much is taken. Source of the rules: NVIDIA's MIG user guide; a layout is legal if no units overlap, compute slices
and media engines suffice and no profile exceeds its `max`.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from policies.annotations import Placement, by_start, listed
from policies.catalogue import MEDIA, BoardModel

_REMEMBERED: Final = 1 << 14  # ways to take memory units; a board of eight has 256, few of which occur
_PART: Final = 24  # bits of a part of a budget, more than all slices that a board could be said to have take of it
_ENOUGH: Final = 1 << _PART - 1  # the bit on top

Profiles = tuple[str, ...]
"""Names of profiles, one for each slice, in any order."""

Placements = tuple[Placement, ...]


class Shape(msgspec.Struct, frozen=True):
    """A profile as bits.

    Attributes:
        name: its name.
        compute: compute slices that it takes.
        units: memory units that it takes.
        cost: what it takes of the budget.
        guards: the bits that the budget has as long as there is enough of what this profile takes.
        places: for each legal start, lowest first, the memory units taken, and the placement.
    """

    name: str
    compute: int
    units: int
    cost: int
    guards: int
    places: tuple[tuple[int, Placement], ...]


class Taken(msgspec.Struct, frozen=True):
    """What is taken of a board: memory units as bits, and what is left of the budget."""

    units: int
    left: int

    def beside(self, shape: Shape, mask: int = 0) -> "Taken":
        """Return what is taken with one more slice, which takes these memory units."""
        return Taken(self.units | mask, self.left - shape.cost)

    def allows(self, shape: Shape) -> bool:
        """Return whether compute slices, media engines and `max` permit one more, wherever it lies."""
        return (self.left - shape.cost) & shape.guards == shape.guards


class Way(msgspec.Struct, frozen=True, eq=False):
    """A way to place some slices.

    Attributes:
        placed: where they lie, sorted.
        taken: what is taken then.
        starts: the starts left then for each plain profile, largest first.
    """

    placed: Placements
    taken: Taken
    starts: tuple[int, ...]


class Geometry(msgspec.Struct, frozen=True, eq=False):
    """The profiles of a model as bits. There is one of each model.

    Attributes:
        empty: what is taken of an empty board.
        shapes: the profiles by name.
        plain: those without suffix, largest first.
    """

    empty: Taken
    shapes: dict[str, Shape]
    plain: tuple[Shape, ...]

    def occupied(self, placements: Placements) -> Taken | None:
        """Return what slices occupy, or None if the place of one is unknown."""
        return _occupied(self, placements)

    def starts_left(self, taken: Taken) -> tuple[int, ...]:
        """Return the starts left for each plain profile, largest first."""
        return _starts_left(self, taken)

    def layouts(self, taken: Taken, wanted: Profiles) -> Iterator[tuple[Placements, Taken]]:
        """Yield every way to place wanted slices, with what is taken then; equal slices are not swapped."""
        shapes: list[Shape] = []
        left = taken
        for name in wanted:
            shape = self.shapes.get(name)
            if shape is None or not left.allows(shape):
                return
            left = left.beside(shape)
            shapes.append(shape)
        shapes.sort(key=lambda shape: (-shape.units, -shape.compute, shape.name))
        for placed, units in _place(shapes, 0, taken.units, ()):
            yield placed, Taken(units, left.left)

    def ways(self, taken: Taken, wanted: Profiles) -> tuple[Way, ...]:
        """Return every way to place wanted slices, given sorted; equal slices are not swapped."""
        return _ways(self, taken, wanted)

    def keep(self, taken: Taken, free: Placements) -> tuple[list[Placement], Taken]:
        """Return the largest part of the free slices that can stay, with what is taken then."""
        # Free slices lie side by side, so those that meet nothing taken compete only for compute slices and `max` (as to
        # media engines, what is taken leaves room for each or for none): the cheapest first is the most; of equals the
        # longest.
        kept: list[Placement] = []
        for shape, mask, item in _cheapest_first(self, free):
            if not taken.units & mask and taken.allows(shape):
                taken = taken.beside(shape, mask)
                kept.append(item)
        return kept, taken


@lru_cache(maxsize=_REMEMBERED)
def _occupied(geometry: Geometry, placements: Placements) -> Taken | None:
    taken = geometry.empty
    for item in placements:
        shape = geometry.shapes.get(item.profile)
        if shape is None or item.start is None:
            return None
        # Where a driver has put a slice at a start that the table lacks, its units are taken all the same.
        taken = taken.beside(shape, _mask(shape.units, item.start))
    return taken


@lru_cache(maxsize=_REMEMBERED)
def _ways(geometry: Geometry, taken: Taken, wanted: Profiles) -> tuple[Way, ...]:
    return tuple(
        [Way(listed(placed), then, _starts_left(geometry, then)) for placed, then in geometry.layouts(taken, wanted)]
    )


@lru_cache(maxsize=_REMEMBERED)
def _cheapest_first(geometry: Geometry, free: Placements) -> tuple[tuple[Shape, int, Placement], ...]:
    """Return those of some slices that could stay at all, with the memory units of each, those that take least first."""
    known: list[tuple[Shape, int, Placement]] = []
    for item in free:
        shape = geometry.shapes.get(item.profile)
        if shape is not None and item.start is not None:
            known.append((shape, _mask(shape.units, item.start), item))
    return tuple(sorted(known, key=lambda one: (one[0].compute, -one[0].units, by_start(one[2]))))


@lru_cache(maxsize=_REMEMBERED)
def _starts_left(geometry: Geometry, taken: Taken) -> tuple[int, ...]:
    units = taken.units
    return tuple(
        [sum([not units & mask for mask, _ in shape.places]) if taken.allows(shape) else 0 for shape in geometry.plain]
    )


def _mask(units: int, start: int) -> int:
    """Return so many memory units from a start on, as bits."""
    return ((1 << units) - 1) << start


def _place(shapes: list[Shape], index: int, units: int, placed: Placements) -> Iterator[tuple[Placements, int]]:
    if index == len(shapes):
        yield placed, units
        return
    shape = shapes[index]
    previous = placed[-1] if index and shapes[index - 1] is shape else None
    for mask, placement in shape.places:
        if not units & mask and (previous is None or placement > previous):
            yield from _place(shapes, index + 1, units | mask, (*placed, placement))


@lru_cache(maxsize=256)
def geometry_of(model: BoardModel) -> Geometry:
    """Return the profiles of a model as bits; one without MIG has none."""
    budget = [model.compute, MEDIA]  # and for each profile that has a `max`, how often it may occur
    shapes: dict[str, Shape] = {}
    for profile in model.profiles:
        takes = [profile.compute, profile.media]
        if profile.max:
            takes += [0] * (len(budget) - len(takes)) + [1]
            budget.append(min(profile.max, _ENOUGH - 1))
        parts = (0, 1, len(takes) - 1)
        shapes[profile.name] = Shape(
            name=profile.name,
            compute=profile.compute,
            units=profile.memory_units,
            cost=sum(amount << _PART * part for part, amount in enumerate(takes)),
            guards=sum(_ENOUGH << _PART * part for part in set(parts)),
            places=tuple(
                (_mask(profile.memory_units, start), Placement(profile.name, start)) for start in sorted(profile.starts)
            ),
        )
    plain = [shapes[profile.name] for profile in model.profiles if profile.plain]
    plain.sort(key=lambda shape: (-shape.units, -shape.compute, shape.name))
    left = sum(_ENOUGH + amount << _PART * part for part, amount in enumerate(budget))
    return Geometry(Taken(0, left), shapes, tuple(plain))
