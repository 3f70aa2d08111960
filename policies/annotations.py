"""The annotations by which leader and node agent talk: their JSON forms, the counting ones of nos, plans.

Reading never fails as a whole: what cannot be understood comes back as a fault that names the annotation,
and the rest counts. A profile is spelt `1g.5gb+me` in JSON and `1g.5gb.me` in keys.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec

from policies import names
from policies.catalogue import MiB, Profile, Start, Total, canonical_profile
from policies.faults import fault


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
        fault: why it cannot be cut now (a failed operation, a lost board); what exists on it may still serve.
        fixed: its layout is a person's, by a file (docs/adr/0024): it is used as it is, and `profiles` are those that it has.
    """

    index: Annotated[int, msgspec.Meta(ge=0)]
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
    fault: str | None = None
    fixed: bool = False


Layouts = Mapping[int, tuple[Placement, ...]]
"""Board index -> its slices, sorted."""

Placed = Mapping[int, tuple[PlacedSlice, ...]]
"""Board index -> its slices with their use."""

Faults = list[str]

_T = TypeVar("_T")

_COUNT_KEY: Final = re.compile(re.escape(names.STATUS_GPU) + r"(\d{1,3})-(.+)-(free|used)", re.ASCII)
_COUNT: Final = re.compile(r"\d{1,3}", re.ASCII)  # no board has a thousand slices

_inventory = msgspec.json.Decoder(tuple[BoardInventory, ...])
_placed = msgspec.json.Decoder(dict[int, tuple[PlacedSlice, ...]])
_layouts = msgspec.json.Decoder(dict[int, tuple[Placement, ...]])
_encoder = msgspec.json.Encoder()


def read_inventory(annotations: Mapping[str, str], faults: Faults) -> tuple[BoardInventory, ...] | None:
    """Return the boards that the agent reported, or None if it has not (or not readably: see faults)."""
    return _read(names.INVENTORY, _inventory, annotations, faults)


def read_status(annotations: Mapping[str, str], faults: Faults) -> Placed | None:
    """Return the slices that exist, by board, or None if no agent has reported placements."""
    return _read(names.STATUS_PLACEMENTS, _placed, annotations, faults)


def read_layouts(key: str, annotations: Mapping[str, str], faults: Faults) -> Layouts:
    """Return the layouts of `spec-placements` or `spec-basis` by board; empty if there are none."""
    layouts = _read(key, _layouts, annotations, faults) or {}
    return {index: listed(layout) for index, layout in layouts.items()}


def read_counts(annotations: Mapping[str, str], faults: Faults) -> dict[int, dict[bool, Counter[str]]]:
    """Return nos's counting annotations: board -> used? -> profile -> count. What is no count is a fault."""
    counts: dict[int, dict[bool, Counter[str]]] = {}
    for key, value in annotations.items():
        match = _COUNT_KEY.fullmatch(key)
        if match is None:
            continue
        if not _COUNT.fullmatch(value):
            faults.append(fault(f"annotation {key}", value, "is no count from 0 to 999"))
            continue
        index, profile, state = match.groups()
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


def _read(key: str, decoder: msgspec.json.Decoder[_T], annotations: Mapping[str, str], faults: Faults) -> _T | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return decoder.decode(text)
    except msgspec.DecodeError as error:
        faults.append(f"annotation {key}: {error}")
        return None


def _json(by_board: Layouts | Placed) -> str:
    return _encoder.encode(dict(sorted(by_board.items()))).decode()
