"""What cannot be true of a node's boards as its annotations have them: told as faults, and such boards are not cut.

Each is well-formed by itself; it is together that they make no sense. Whoever planned by them would order what no
driver can do, or serve two pods by one board.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from policies import names
from policies.annotations import BoardInventory, PlacedSlice
from policies.catalogue import BoardModel, Profile
from policies.faults import fault
from policies.geometry import geometry_of
from policies.legible import Doubts
from policies.placement import bin_gb, lay_out

_INVENTORY: Final = f"annotation {names.INVENTORY}"
_STATUS: Final = f"annotation {names.STATUS_PLACEMENTS}"

_LAST_INDEX: Final = 999  # three digits have room in the annotations of nos; no node has a hundred boards


def inventory_doubts(inventory: Collection[BoardInventory]) -> Doubts:
    """Return what cannot be true of boards as they have been discovered."""
    doubts: Doubts = []
    for index, count in Counter(entry.index for entry in inventory).items():
        if count > 1:
            doubts.append((index, fault(f"{_INVENTORY}: index", index, f"{count} boards have it; the first counts")))
    uuids = Counter(entry.uuid for entry in inventory)
    for entry in inventory:
        if entry.index > _LAST_INDEX:
            doubts.append((entry.index, fault(f"{_INVENTORY}: index", entry.index, f"is above {_LAST_INDEX}")))
        if uuids[entry.uuid] > 1:
            path = f"{_INVENTORY}: board {entry.index}: uuid"
            doubts.append((entry.index, fault(path, entry.uuid, f"{uuids[entry.uuid]} boards have it")))
        path = f"{_INVENTORY}: board {entry.index}: profile"
        for name, count in Counter(profile.name for profile in entry.profiles).items():
            if count > 1:
                doubts.append((entry.index, fault(path, name, f"is there {count} times")))
        doubts += [
            (entry.index, fault(path, profile.name, rule))
            for profile in entry.profiles
            for rule in _profile_doubts(profile, entry)
        ]
    return doubts


def status_doubts(
    placed: Mapping[int, Sequence[PlacedSlice]],
    models: Mapping[int, BoardModel],
    shared: Collection[int] = (),
    absent: str = "the node has no such board",
) -> Doubts:
    """Return what cannot be true of slices as they have been reported; `models` are those of the node's boards.

    `absent` is what is said of a board that is not among these.

    `shared` are the boards that are given in turns, or as a file says. Of these devices are listed as pods can ask for
    them (docs/adr/0024), under any name and several for one place, so that nothing about their layout follows; nor does
    it of boards of which not everything can be read.
    """
    doubts: Doubts = []
    for index, slices in placed.items():
        if index not in models:
            doubts.append((index, fault(f"{_STATUS}: board", index, absent)))
            continue
        if index in shared:
            continue
        path = f"{_STATUS}: board {index}"
        doubts += [(index, f"{path}: {what}") for what in _mig_doubts(slices, models[index])]
        doubts += [(index, f"{path}: {what}") for what in _mps_doubts(slices, models[index])]
    return doubts


def counts_doubts(
    counted: Mapping[int, tuple[tuple[str, bool], ...]], models: Mapping[int, BoardModel], modes: Mapping[int, str]
) -> Doubts:
    """Return what cannot be true of slices of which only the counts are known: (profile, used) pairs by board."""
    doubts: Doubts = []
    for index, pairs in counted.items():
        path = f"annotations {names.STATUS_GPU}{index}-..."
        if pairs and index not in models:
            doubts.append((index, f"{path}: the node has no such board"))
        elif pairs and lay_out(models[index], modes[index], pairs) is None:
            many = Counter(profile for profile, _ in pairs)
            told = " and ".join(f"{count} x {profile}" for profile, count in sorted(many.items()))
            doubts.append((index, f"{path}: no layout of the board has {told}"))
    return doubts


def _profile_doubts(profile: Profile, entry: BoardInventory) -> Iterator[str]:
    """Yield what cannot be true of a profile of a board."""
    units = entry.memory_units or max(each.memory_units for each in entry.profiles)
    if beyond := [start for start in profile.starts if start + profile.memory_units > units]:
        yield f"would end beyond the board's {units} memory units at start {', '.join(map(str, beyond))}"
    if twice := [start for start, count in Counter(profile.starts).items() if count > 1]:
        yield f"has start {', '.join(map(str, twice))} more than once"
    if entry.compute_slices and profile.compute > entry.compute_slices:
        yield f"has {profile.compute} compute slices, more than the board's {entry.compute_slices}"


def _mig_doubts(slices: Iterable[PlacedSlice], model: BoardModel) -> Iterator[str]:
    """Yield what cannot be true of slices that have a start."""
    shapes, taken, compute = geometry_of(model).shapes, 0, 0
    for item in slices:
        if item.start is None:
            continue
        where, shape = f"{item.profile} at {item.start}", shapes.get(item.profile)
        if shape is None:
            yield f"{where}: {model.name} has no such profile"
            continue
        mask = (1 << shape.units) - 1 << item.start
        if taken & mask:
            yield f"{where}: overlaps with another slice"
        if item.start + shape.units > model.memory_units:
            yield f"{where}: ends beyond the board's {model.memory_units} memory units"
        taken, compute = taken | mask, compute + shape.compute
    if compute > model.compute:
        yield f"its slices have {compute} compute slices, more than the board's {model.compute}"


def _mps_doubts(slices: Iterable[PlacedSlice], model: BoardModel) -> Iterator[str]:
    """Yield what cannot be true of slices that have no start."""
    sizes = {item.profile: bin_gb(item.profile) for item in slices if item.start is None}
    yield from (f"{profile}: has no start, and is no slice of MPS" for profile, size in sizes.items() if size is None)
    bins = [sizes[item.profile] or 0 for item in slices if item.start is None]
    if sum(bins) > model.nominal_gb:
        yield f"its slices have {sum(bins)} GB, more than the board's {model.nominal_gb}"
    if len(bins) > model.max_clients:
        yield f"{len(bins)} slices are more than the {model.max_clients} clients that a board serves"
