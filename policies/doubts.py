"""What cannot be true of a node's boards as its annotations have them: told as faults, and such boards are not cut.

Each is well-formed by itself; it is together that they make no sense. Whoever planned by them would order what no
driver can do, or serve two pods by one board.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from policies import names
from policies.annotations import BoardInventory, PlacedSlice
from policies.catalogue import BoardModel
from policies.faults import fault
from policies.geometry import geometry_of

_INVENTORY: Final = f"annotation {names.INVENTORY}"
_STATUS: Final = f"annotation {names.STATUS_PLACEMENTS}"

Doubts = list[tuple[int, str]]
"""Index of a board and what is wrong with it."""


def inventory_doubts(inventory: Iterable[BoardInventory]) -> Doubts:
    """Return what cannot be true of boards as they have been discovered."""
    doubts: Doubts = []
    for index, count in Counter(entry.index for entry in inventory).items():
        if count > 1:
            doubts.append((index, fault(f"{_INVENTORY}: index", index, f"{count} boards have it; the first counts")))
    for entry in inventory:
        path = f"{_INVENTORY}: board {entry.index}: profile"
        for name, count in Counter(profile.name for profile in entry.profiles).items():
            if count > 1:
                doubts.append((entry.index, fault(path, name, f"is there {count} times")))
        units = entry.memory_units or max((profile.memory_units for profile in entry.profiles), default=0)
        for profile in entry.profiles:
            if beyond := [start for start in profile.starts if start + profile.memory_units > units]:
                rule = f"would end beyond the board's {units} memory units at start {', '.join(map(str, beyond))}"
                doubts.append((entry.index, fault(path, profile.name, rule)))
    return doubts


def status_doubts(placed: Mapping[int, Sequence[PlacedSlice]], models: Mapping[int, BoardModel]) -> Doubts:
    """Return what cannot be true of slices as they have been reported; `models` are those of the node's boards."""
    doubts: Doubts = []
    for index, slices in placed.items():
        if index not in models:
            doubts.append((index, fault(f"{_STATUS}: board", index, "the node has no such board")))
            continue
        shapes, taken = geometry_of(models[index]).shapes, 0
        for item in slices:
            shape = shapes.get(item.profile)
            if shape is None or item.start is None:
                continue  # an MPS slice, or a profile that this version does not know
            mask = (1 << shape.units) - 1 << item.start
            if taken & mask:
                where = f"{item.profile} at {item.start}"
                doubts.append((index, fault(f"{_STATUS}: board {index}", where, "overlaps with another slice")))
            taken |= mask
    return doubts
