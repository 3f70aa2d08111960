"""What a container gets with the devices that the kubelet has chosen for it: environment, mounts, names of CDI devices.

Decided from the ids that the kubelet sends and from what exists, and from nothing else: which pod asks is not known, and
not guessed (pain A17). The driver is asked for one thing only, the UUID that a device has now.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from policies import names
from reconciler.agent.driver import GpuDriver, InvalidArgument, Slice, read_device_id


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A directory or file of the node, as a container sees it."""

    host_path: str
    container_path: str
    read_only: bool = False


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one container gets.

    Attributes:
        envs: variables of its environment.
        mounts: in no particular order.
        cdi_devices: full names, `vendor/class=device`.
    """

    envs: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()


class Device(msgspec.Struct, frozen=True):
    """A device as it is now.

    Attributes:
        id: under which the kubelet knows it.
        board: UUID of its board.
        item: the slice that it is.
        uuid: under which a container gets it: the MIG device's, else the board's.
    """

    id: str
    board: str
    item: Slice
    uuid: str


Naming = Callable[[Sequence[Device]], Grant]
"""Tells a container which devices are its own."""

Sharing = Callable[[Device], Grant]
"""What a container needs besides to share a board with others by this device: nothing for MIG."""

Check = Callable[[Sequence[str]], None]
"""Refuses ids of devices that may not be in one container. Raises InvalidArgument."""


def by_variable(devices: Sequence[Device]) -> Grant:
    """Name devices to NVIDIA's container runtime."""
    return Grant(envs={names.VISIBLE_DEVICES: ",".join(dict.fromkeys(device.uuid for device in devices))})


class Grants:
    """Answers for the devices of one driver; any thread may ask.

    Args:
        driver: which knows the UUIDs.
        naming: how devices are named to the container.
        sharing: what is needed besides, for each of them.
        check: refuses devices that may not be in one container. Raises InvalidArgument.
    """

    def __init__(
        self,
        driver: GpuDriver,
        *,
        naming: Naming = by_variable,
        sharing: Sharing = lambda _device: Grant(),
        check: Check = lambda _ids: None,
    ) -> None:
        self._driver, self._naming, self._sharing, self._check = driver, naming, sharing, check

    def grant(self, ids: Iterable[str]) -> Grant:
        """Return what a container gets with these devices. Raises DriverError, if one of them does not exist for one."""
        asked = tuple(ids)
        self._check(asked)
        devices = [self._device(one) for one in asked]
        return _merged([self._naming(devices), *map(self._sharing, devices)])

    def _device(self, one: str) -> Device:
        board, item = read_device_id(one)
        return Device(one, board, item, self._driver.device_uuid(board, item))


def _merged(grants: Sequence[Grant]) -> Grant:
    """Return all of them as one. Raises InvalidArgument if a variable would have two values: one device too many."""
    envs: dict[str, str] = {}
    for grant in grants:
        for name, value in grant.envs.items():
            if envs.setdefault(name, value) != value:
                raise InvalidArgument(f"these devices cannot be in one container: {name} is {envs[name]} and {value}")
    return Grant(
        envs=envs,
        mounts=tuple(dict.fromkeys(mount for grant in grants for mount in grant.mounts)),
        cdi_devices=tuple(dict.fromkeys(name for grant in grants for name in grant.cdi_devices)),
    )
