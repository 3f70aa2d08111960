"""The devices by which the slices of a board are announced: one each, or several where they are shared."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from policies import names
from policies.annotations import BoardInventory, Placement
from policies.needs import is_slice
from policies.placement import profile_of
from reconciler.agent.driver import WHOLE, Slice, base_id, device_id
from reconciler.agent.fixed.layout import Fixture, Share, kept, plain
from reconciler.agent.kubelet import Holder


class Announced(msgspec.Struct, frozen=True):
    """A device, as the kubelet and the planner know it.

    Attributes:
        id: its id.
        resource: the resource that announces it.
        placement: what the planner is told of it: the profile of the resource, and its place if it is a MIG slice of it.
    """

    id: str
    resource: str
    placement: Placement


def announced(board: str, item: Slice, fixture: Fixture | None, held: Collection[str] = ()) -> list[Announced]:
    """Return the devices of a slice of the board of this UUID.

    If some of `held` are of it from another layout, it has those that are held and no others; to the planner it is one slice.
    """
    share = fixture.share(item.profile) if fixture else plain(item.profile)
    base = device_id(board, item)
    if item == WHOLE and (fixture is None or fixture.kept):
        ids = []  # nobody else is to get it
    else:
        ids = [f"{base}::{number}" for number in range(share.replicas)] if share.replicas > 1 else [base]
    if old := sorted(one for one in held if base_id(one) == base and one not in ids):
        ids = [*(one for one in ids if one in held), *old][: None if fixture else 1]
    placement = told(item, share)
    return [Announced(one, share.resource, placement) for one in ids]


def offered(
    board: str,
    item: Slice,
    fixture: Fixture | None,
    allocated: Mapping[str, Holder],
    asks: Mapping[Holder, Collection[str]],
) -> list[Announced]:
    """Return the devices of a slice that pods may get: none while one holds it under another name, or in other parts.

    For the kubelet a device of another resource is another device: it would give the slice away once more.

    Args:
        board: UUID of its board.
        item: the slice.
        fixture: what the board is to be.
        allocated: device id -> pod that holds it.
        asks: pod -> the resources that it asks for, as far as pods are known.
    """
    devices, base = announced(board, item, fixture), device_id(board, item)
    present = {device.id: device.resource for device in devices}
    for held, holder in allocated.items():
        if base_id(held) == base and (held not in present or present[held] not in asks.get(holder, present.values())):
            return []
    return devices


def told(item: Slice, share: Share) -> Placement:
    """Return what the planner is told of a slice: never more than what pods can ask for."""
    if not is_slice(share.resource):
        return Placement(share.resource.removeprefix(names.NVIDIA_PREFIX))
    profile = profile_of(share.resource)
    return Placement(profile, item.start) if profile == item.profile else Placement(profile)


def in_force(board: BoardInventory, fixture: Fixture | None, held: Iterable[str]) -> Fixture | None:
    """Return what a board is to be for now: one that is to be divided stays whole until nobody has it as a whole."""
    if fixture is not None and fixture.mode == names.TIMESLICING:
        return fixture
    return kept(names.TIMESLICING) if _is_held_whole(board, held) else fixture


def with_whole(
    board: BoardInventory, slices: tuple[Slice, ...], fixture: Fixture | None, held: Iterable[str]
) -> tuple[Slice, ...]:
    """Return the slices of a board, with itself where it is given as a whole, or still held so.

    As a whole it is given only when nothing else is on it any more.
    """
    wanted = fixture is not None and fixture.mode == names.TIMESLICING and not (fixture.kept or slices or board.mig)
    return (*slices, WHOLE) if wanted or _is_held_whole(board, held) else slices


def _is_held_whole(board: BoardInventory, held: Iterable[str]) -> bool:
    base = device_id(board.uuid, WHOLE)
    return any(base_id(one) == base for one in held)
