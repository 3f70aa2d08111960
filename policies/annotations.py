"""The annotations by which leader and node agent talk: their JSON forms, the counting ones of nos, plans.

Reading never fails as a whole: what cannot be understood comes back as a doubt about its board, and the rest counts.
A profile is spelt `1g.5gb+me` in JSON and `1g.5gb.me` in keys.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from policies import names
from policies.catalogue import Capability, MiB, Profile, Start, Total, canonical_profile
from policies.faults import fault
from policies.legible import UNREADABLE, Doubts, by_board, entries, read_value

_Index = Annotated[int, msgspec.Meta(ge=0)]


class Placement(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """A slice in a layout: its profile (`3g.20gb`, or `10gb` of MPS) and, for MIG, its first memory unit."""

    profile: str
    start: Start | None = None


def by_start(placement: Placement) -> tuple[int, str]:
    """Return the key by which the slices of a board are listed."""
    return -1 if placement.start is None else placement.start, placement.profile


def listed(placements: Iterable[Placement]) -> tuple[Placement, ...]:
    """Return slices in the order in which those of a board are listed."""
    return tuple(sorted(placements, key=by_start))


class PlacedSlice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slice that exists on a board.

    Attributes:
        profile: as in Placement.
        start: as in Placement.
        used: held by a bound pod that has not ended.
        withdrawn: no longer announced, about to be destroyed once the leader allows it (docs/adr/0003).
        pod: namespace/name of the holder, where the agent knows it.
        stale: uid of the holder, if the slice was made anew under it: what its containers were told of is not there any
            more, so it has to go (docs/adr/0023).
    """

    profile: str
    used: bool
    start: Start | None = None
    withdrawn: bool = False
    pod: str | None = None
    stale: str | None = None

    @property
    def placement(self) -> Placement:
        """Return where it lies, without its use."""
        return Placement(self.profile, self.start)


class BoardInventory(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One board as the node agent discovered it (annotation `gpu-inventory`).

    Attributes:
        index: NVML's index on the node.
        uuid: NVML's UUID.
        model: product label.
        memory_mib: usable memory in MiB.
        profiles: MIG profiles with placements; empty where the board has none.
        mig_capable: whether the board can do MIG; missing: whether it has profiles.
        mig: whether MIG mode is on now.
        switch: `live` if MIG mode can be switched on while the node runs, `admin` (or missing) if a person must.
        mode: overrides the node's label for this board.
        compute_slices: compute slices of the board; missing: those of its largest profile.
        memory_units: memory units of the board; missing: those of its largest profile.
        compute_capability: CUDA's, such as `8.0`, by which generations are told apart; older agents do not say it.
        fault: why it cannot be cut now (a failed operation, a lost board); what exists on it may still serve.
        fixed: its layout is a person's, by a file (docs/adr/0024): it is used as it is, and `profiles` are those that it has.
    """

    index: _Index
    uuid: str
    model: str
    memory_mib: MiB = msgspec.field(name="memoryMiB")
    profiles: tuple[Profile, ...] = ()
    mig_capable: bool | None = None
    mig: bool | None = None
    switch: str | None = None
    mode: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(names.MODES)})$")] | None = None
    compute_slices: Total | None = None
    memory_units: Total | None = None
    compute_capability: Capability | None = None
    fault: str | None = None
    fixed: bool = False


Layouts = Mapping[int, tuple[Placement, ...]]
"""Board index -> its slices, sorted."""

Placed = Mapping[int, tuple[PlacedSlice, ...]]
"""Board index -> its slices with their use."""

_COUNT_KEY: Final = re.compile(re.escape(names.STATUS_GPU) + r"(\d{1,3})-(.+)-(free|used)", re.ASCII)
_COUNT: Final = re.compile(r"\d{1,3}", re.ASCII)  # no board has a thousand slices

_inventory = msgspec.json.Decoder(tuple[BoardInventory, ...])
_placed = msgspec.json.Decoder(dict[_Index, tuple[PlacedSlice, ...]])
_layouts = msgspec.json.Decoder(dict[_Index, tuple[Placement, ...]])
_encoder = msgspec.json.Encoder()


def read_inventory(annotations: Mapping[str, str], doubts: Doubts) -> tuple[BoardInventory, ...] | None:
    """Return the boards that the agent reported, those that can be read; None if it has reported none."""
    text = annotations.get(names.INVENTORY)
    if text is None:
        return None
    try:
        return _inventory.decode(text)
    except UNREADABLE:
        found = (
            read_value(path, value, BoardInventory, index, doubts)
            for index, path, value in entries(names.INVENTORY, text, doubts)
        )
        return tuple(board for board in found if board is not None)


def read_status(annotations: Mapping[str, str], doubts: Doubts) -> Placed | None:
    """Return the slices that exist, by board, or None if no agent has reported placements (or nothing of them can be read).

    A slice of which no more than the profile, and perhaps the start, can be read is there, and held by somebody.
    """
    text = annotations.get(names.STATUS_PLACEMENTS)
    if text is None:
        return None
    try:
        return _placed.decode(text)
    except UNREADABLE:
        found = by_board(names.STATUS_PLACEMENTS, text, doubts)
    if found is None:
        return None
    return {index: _slices(path, value, index, doubts) for index, path, value in found}


def read_layouts(key: str, annotations: Mapping[str, str], doubts: Doubts) -> Layouts:
    """Return the layouts of `spec-placements` or `spec-basis` of the boards of which they can be read as a whole."""
    text = annotations.get(key)
    if text is None:
        return {}
    try:
        layouts: Layouts = _layouts.decode(text)
    except UNREADABLE:
        found = {
            index: read_value(path, value, tuple[Placement, ...], index, doubts)
            for index, path, value in by_board(key, text, doubts) or ()
        }
        layouts = {index: layout for index, layout in found.items() if layout is not None}
    return {index: listed(layout) for index, layout in layouts.items()}


def read_counts(annotations: Mapping[str, str], doubts: Doubts) -> dict[int, dict[bool, Counter[str]]]:
    """Return nos's counting annotations: board -> used? -> profile -> count. What is no count is a doubt."""
    counts: dict[int, dict[bool, Counter[str]]] = {}
    for key, value in annotations.items():
        match = _COUNT_KEY.fullmatch(key)
        if match is None:
            continue
        index, profile, state = match.groups()
        if not _COUNT.fullmatch(value):
            doubts.append((int(index), fault(f"annotation {key}", value, "is no count from 0 to 999")))
            continue
        board = counts.setdefault(int(index), {True: Counter(), False: Counter()})
        board[state == "used"][canonical_profile(profile)] += int(value)
    return counts


def write_inventory(boards: Iterable[BoardInventory]) -> dict[str, str]:
    """Return the annotation that tells the leader what boards there are."""
    return {names.INVENTORY: _encoder.encode(tuple(boards)).decode()}


def write_status(placed: Placed, plan: str) -> dict[str, str]:
    """Return the agent's report: placements, nos's counts, and the plan that it has carried out."""
    report = {names.STATUS_PLACEMENTS: _json(placed), names.STATUS_PLAN: plan}
    for index, slices in placed.items():
        for (profile, used), count in Counter((item.profile, item.used) for item in slices).items():
            state = "used" if used else "free"
            report[f"{names.STATUS_GPU}{index}-{names.key_profile(profile)}-{state}"] = str(count)
    return report


def write_spec(target: Layouts, basis: Layouts, plan: str) -> dict[str, str]:
    """Return the leader's order: the layout of each board concerned, what it was made from, and the plan's id."""
    order = {names.SPEC_PLACEMENTS: _json(target), names.SPEC_BASIS: _json(basis), names.SPEC_PLAN: plan}
    for index, layout in target.items():
        for profile, count in Counter(placement.profile for placement in layout).items():
            order[f"{names.SPEC_GPU}{index}-{names.key_profile(profile)}"] = str(count)
    return order


def stale_counts(prefix: str, present: Mapping[str, str], written: Mapping[str, str]) -> dict[str, None]:
    """Return counting annotations under a prefix that are present but no longer true, as removals of a merge patch."""
    return {key: None for key in present if key.startswith(prefix) and key not in written}


def _slices(path: str, value: object, index: int, doubts: Doubts) -> tuple[PlacedSlice, ...]:
    """Return those slices of a board that can be read, and as held those of which the profile can be."""
    slices = read_value(path, value, tuple[PlacedSlice, ...], index, doubts)
    if slices is None and isinstance(value, list):
        each = (read_value("", item, PlacedSlice, None, []) or _held(item) for item in value)
        slices = tuple(item for item in each if item is not None)
    return slices or ()


def _held(item: object) -> PlacedSlice | None:
    if not isinstance(item, dict) or not isinstance(profile := item.get("profile"), str):
        return None
    place = read_value("", item, Placement, None, []) or Placement(profile)
    return PlacedSlice(profile=place.profile, start=place.start, used=True)


def _json(by_board: Layouts | Placed) -> str:
    return _encoder.encode(dict(sorted(by_board.items()))).decode()
