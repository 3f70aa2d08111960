"""The boards of a node, from what its agent has reported, else from its labels and the tables.

What cannot be understood is a fault of that node, and the board of which it is told is left alone: what exists on it
may serve, and nothing is made or destroyed there.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from policies import names
from policies.annotations import (
    BoardInventory,
    PlacedSlice,
    Placement,
    listed,
    read_counts,
    read_inventory,
    read_status,
)
from policies.catalogue import UNKNOWN, BoardModel, Profile, by_product, nominal_gb, since_volta, size_order
from policies.doubts import counts_doubts, inventory_doubts, status_doubts
from policies.legible import Doubts, told

_COUNT: Final = re.compile(r"\d{1,2}", re.ASCII)  # boards of a node
_MEMORY: Final = re.compile(r"[1-9]\d{0,7}", re.ASCII)  # MiB of a board
_REMEMBERED: Final = 1 << 8  # models of boards
_SHARED: Final = "it is time-sliced"
_FIXED: Final = "its layout is fixed by a file"


class Board(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One GPU of a node.

    Attributes:
        index: NVML's index.
        uuid: NVML's UUID; empty where no agent has reported it.
        model: what the board can do; UNKNOWN where that cannot be read.
        mode: `mig`, `mps` or `timeslicing`.
        slices: what exists on it, sorted by start.
        counted: slices whose places are unknown (nos's counting annotations): (profile, used) pairs.
        fault: why its layout may not be changed now; empty if it may (MIG mode on or switchable live, or MPS).
    """

    index: int
    uuid: str
    model: BoardModel
    mode: str
    fault: str = ""
    slices: tuple[PlacedSlice, ...] = ()
    counted: tuple[tuple[str, bool], ...] = ()

    @property
    def layout(self) -> tuple[Placement, ...]:
        """Return its slices without their use, withdrawn ones included."""
        return listed(item.placement for item in self.slices)

    @property
    def cuttable(self) -> bool:
        """Return whether its layout may be changed now."""
        return not self.fault

    @property
    def fixed(self) -> bool:
        """Return whether a person has given it its layout, by a file."""
        return self.fault == _FIXED

    @property
    def broken(self) -> bool:
        """Return whether it cannot be cut although nobody wants that."""
        return self.fault not in ("", _FIXED, _SHARED)


def read_boards(
    labels: Mapping[str, str], annotations: Mapping[str, str], mode: str, faults: list[str]
) -> tuple[Board, ...]:
    """Return the boards of a node whose label says `mode`, by index; faults are added to."""
    unread: Doubts = []
    misplaced: Doubts = []
    inventory = read_inventory(annotations, unread)
    placed = read_status(annotations, misplaced)
    counts = {} if placed is not None else read_counts(annotations, misplaced)
    found = _from_inventory(inventory, mode) if inventory is not None else _from_labels(labels, mode, faults)
    # Nothing follows of what can be read only in part.
    blurred = {index for index, _ in (*unread, *misplaced) if index is not None}
    models = dict.fromkeys(blurred, UNKNOWN) | {board.index: board.model for board in found}
    counted = {index: _pairs(count, models.get(index)) for index, count in counts.items()}
    there = {index: _named(slices, models.get(index)) for index, slices in (placed or {}).items()}
    shared = blurred | {entry.index for entry in inventory or () if entry.fixed}
    shared |= {board.index for board in found if board.mode == names.TIMESLICING}
    sharp = {index: pairs for index, pairs in counted.items() if index not in blurred}
    absent = "no entry of it can be read" if any(index is None for index, _ in unread) else "the node has no such board"
    doubts = [*unread, *misplaced, *inventory_doubts(inventory or ()), *status_doubts(there, models, shared, absent)]
    doubts += counts_doubts(sharp, models, {board.index: board.mode for board in found})
    faults += told(doubts)
    doubtful = {index: what for index, what in reversed(doubts) if index is not None}
    # What is told of slices, but not of which board, may be told of any of which nothing else is.
    anywhere = next((what for index, what in misplaced if index is None), "")
    # A board of which nothing else is known is there all the same, with what is on it.
    unknown = doubtful.keys() - {board.index for board in found}
    return tuple(
        msgspec.structs.replace(
            board,
            fault=board.fault or doubtful.get(board.index, "" if board.index in there else anywhere),
            slices=tuple(sorted(there.get(board.index, ()), key=_by_start)),
            counted=counted.get(board.index, ()),
        )
        for board in sorted(
            (*found, *(Board(index=index, uuid="", model=UNKNOWN, mode=mode) for index in unknown)),
            key=lambda board: board.index,
        )
    )


def inventory_model(entry: BoardInventory) -> BoardModel:
    """Return the model of a discovered board; what it does not say (nominal GB, generation) is the table's.

    A profile without a start is left out: nothing of it can be made.
    """
    largest = max(entry.profiles, key=lambda profile: profile.memory_units, default=None)
    model = BoardModel(
        name=entry.model,
        memory_mib=entry.memory_mib,
        nominal_gb=nominal_gb(entry.model, entry.memory_mib),
        compute=entry.compute_slices or (largest.compute if largest else 0),
        memory_units=entry.memory_units or (largest.memory_units if largest else 0),
        profiles=tuple(sorted((_with_max(one) for one in entry.profiles if one.starts), key=size_order)),
        volta=since_volta(entry.model, entry.compute_capability),
    )
    return _once(model)


@lru_cache(maxsize=_REMEMBERED)
def _once(model: BoardModel) -> BoardModel:
    """Return the one object for equal models, so that thousands of boards share it and comparing them is quick."""
    return model


def _from_inventory(inventory: tuple[BoardInventory, ...], mode: str) -> list[Board]:
    first = {entry.index: entry for entry in reversed(inventory)}
    return [
        Board(
            index=entry.index,
            uuid=entry.uuid,
            model=inventory_model(entry),
            mode=entry.mode or mode,
            fault=_fault(entry, entry.mode or mode),
        )
        for _, entry in sorted(first.items())
    ]


def _fault(entry: BoardInventory, mode: str) -> str:
    if entry.fault:
        return entry.fault
    if entry.fixed:
        return _FIXED
    if mode == names.MPS:
        return ""
    if mode != names.MIG:
        return _SHARED
    return "" if entry.mig or entry.switch == "live" else "MIG mode is off"


def _from_labels(labels: Mapping[str, str], mode: str, faults: list[str]) -> list[Board]:
    """Return the boards that the table knows by the labels of GPU feature discovery; until an agent reports."""
    product, count = labels.get(names.PRODUCT_LABEL, ""), labels.get(names.COUNT_LABEL, "1")
    model = by_product(product)
    if model is None:
        faults.append(
            f"label {names.PRODUCT_LABEL}: {product!r} is in no table and no agent has reported {names.INVENTORY}; "
            "its boards are left alone"
        )
        return []
    if not _COUNT.fullmatch(count):
        faults.append(f"label {names.COUNT_LABEL}: {count!r} is no count; its boards are left alone")
        return []
    memory = labels.get(names.MEMORY_LABEL, "")
    if _MEMORY.fullmatch(memory):
        model = msgspec.structs.replace(model, memory_mib=int(memory))
    return [
        Board(index=index, uuid="", model=model, mode=mode, fault=_SHARED if mode == names.TIMESLICING else "")
        for index in range(int(count))
    ]


def _pairs(counts: Mapping[bool, Mapping[str, int]], model: BoardModel | None) -> tuple[tuple[str, bool], ...]:
    """Return slices of which only the counts are known, by the names that their board has for them."""
    return tuple(
        (model.known_as(profile) if model else profile, used)
        for used, profiles in sorted(counts.items(), reverse=True)
        for profile, count in sorted(profiles.items())
        for _ in range(count)
    )


def _named(slices: tuple[PlacedSlice, ...], model: BoardModel | None) -> tuple[PlacedSlice, ...]:
    """Return slices by the names that their board has for them."""
    if model is None or all(model.known_as(item.profile) == item.profile for item in slices):
        return slices
    return tuple(msgspec.structs.replace(item, profile=model.known_as(item.profile)) for item in slices)


def _with_max(profile: Profile) -> Profile:
    """Return the profile; where no most is said, there is one media engine set to give (`+me`, `+me.all`)."""
    if profile.max == 0 and profile.name.endswith(("+me", "+me.all")):
        return msgspec.structs.replace(profile, max=1)
    return profile


def _by_start(item: PlacedSlice) -> tuple[int, str, bool]:
    return -1 if item.start is None else item.start, item.profile, item.used
