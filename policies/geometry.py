"""The profiles of one model of board as bits: which MIG layouts exist, and what each leaves room for.

Memory units are bits of an integer, so that "does it overlap" is one `&`. Source of the rules: NVIDIA's MIG user
guide; a layout is legal if no units overlap, compute slices and media engines suffice and no profile exceeds its `max`.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from policies.annotations import Placement, by_start
from policies.catalogue import MEDIA, BoardModel

_REMEMBERED: Final = 1 << 14  # ways to take memory units; a board of eight has 256, few of which occur

Profiles = tuple[str, ...]
"""Names of profiles, one for each slice, in any order."""

Placements = tuple[Placement, ...]


class Shape(msgspec.Struct, frozen=True):
    """A profile as bits: (start, memory units taken) for each legal start, lowest first."""

    name: str
    compute: int
    units: int
    max: int
    media: int
    masks: tuple[tuple[int, int], ...]


class Taken(msgspec.Struct, frozen=True):
    """What is taken of a board: memory units as bits, compute slices, media engines, and the profiles that lie on it."""

    units: int = 0
    compute: int = 0
    media: int = 0
    profiles: Profiles = ()

    def beside(self, shape: Shape, mask: int = 0) -> "Taken":
        """Return what is taken with one more slice, which takes these memory units."""
        return Taken(
            self.units | mask, self.compute + shape.compute, self.media + shape.media, (*self.profiles, shape.name)
        )


class Geometry(msgspec.Struct, frozen=True, eq=False):
    """The profiles of a model as bits; `plain` are those without suffix, largest first. There is one of each model."""

    compute: int
    shapes: dict[str, Shape]
    plain: tuple[Shape, ...]

    def occupied(self, placements: Placements) -> Taken | None:
        """Return what slices occupy, or None if the place of one is unknown."""
        taken = Taken()
        for item in placements:
            shape = self.shapes.get(item.profile)
            if shape is None or item.start is None:
                return None
            # Where a driver has put a slice at a start that the table lacks, its units are taken all the same.
            taken = taken.beside(shape, _mask(shape.units, item.start))
        return taken

    def allows(self, taken: Taken, shape: Shape) -> bool:
        """Return whether compute slices, media engines and `max` permit one more, wherever it lies."""
        return (
            taken.compute + shape.compute <= self.compute
            and taken.media + shape.media <= MEDIA
            and not (shape.max and taken.profiles.count(shape.name) >= shape.max)
        )

    def starts_left(self, taken: Taken) -> tuple[int, ...]:
        """Return the starts left for each plain profile, largest first."""
        return tuple(
            [
                left if left and self.allows(taken, shape) else 0
                for shape, left in zip(self.plain, _starts_beside(self, taken.units), strict=True)
            ]
        )

    def layouts(self, taken: Taken, wanted: Profiles) -> Iterator[tuple[Placements, Taken]]:
        """Yield every way to place wanted slices, with what is taken then; equal slices are not swapped."""
        shapes: list[Shape] = []
        for name in wanted:
            shape = self.shapes.get(name)
            if shape is None or not self.allows(taken, shape):
                return
            taken = taken.beside(shape)
            shapes.append(shape)
        shapes.sort(key=lambda shape: (-shape.units, -shape.compute, shape.name))
        for placed, units in _place(shapes, 0, taken.units, ()):
            yield placed, replace(taken, units=units)

    def keep(self, taken: Taken, free: Placements) -> tuple[list[Placement], Taken]:
        """Return the largest part of the free slices that can stay, with what is taken then."""
        # Free slices lie side by side, so those that meet nothing taken compete only for compute slices and `max` (as to
        # media engines, what is taken leaves room for each or for none): the cheapest first is the most; of equals the
        # longest.
        kept: list[Placement] = []
        for shape, mask, item in _cheapest_first(self, free):
            if not taken.units & mask and self.allows(taken, shape):
                taken = taken.beside(shape, mask)
                kept.append(item)
        return kept, taken


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
def _starts_beside(geometry: Geometry, units: int) -> tuple[int, ...]:
    """Return the starts of each plain profile that meet none of some memory units."""
    return tuple(sum(not units & mask for _, mask in shape.masks) for shape in geometry.plain)


def _mask(units: int, start: int) -> int:
    """Return so many memory units from a start on, as bits."""
    return ((1 << units) - 1) << start


def _place(shapes: list[Shape], index: int, units: int, placed: Placements) -> Iterator[tuple[Placements, int]]:
    if index == len(shapes):
        yield placed, units
        return
    shape = shapes[index]
    previous = placed[-1].start if index and shapes[index - 1] is shape else None
    for start, mask in shape.masks:
        if not units & mask and (previous is None or start > previous):
            yield from _place(shapes, index + 1, units | mask, (*placed, Placement(shape.name, start)))


@lru_cache(maxsize=256)
def geometry_of(model: BoardModel) -> Geometry:
    """Return the profiles of a model as bits; one without MIG has none."""
    shapes = {
        profile.name: Shape(
            profile.name,
            profile.compute,
            profile.memory_units,
            profile.max,
            profile.media,
            tuple((start, _mask(profile.memory_units, start)) for start in sorted(profile.starts)),
        )
        for profile in model.profiles
    }
    plain = [shapes[profile.name] for profile in model.profiles if profile.plain]
    plain.sort(key=lambda shape: (-shape.units, -shape.compute, shape.name))
    return Geometry(model.compute, shapes, tuple(plain))
