"""What the node agent needs of a GPU driver: boards, the slices they have, and making and removing one.

A slice is whatever a board's driver has: a MIG GPU instance with its compute instance, or an MPS bin, which is a share
that the board's control daemon serves. Both are state of the node that outlives the agent, so both stand behind
`GpuDriver`: the real one asks NVML for the former and keeps the latter beside the daemon.

Errors are those of NVML, by their names there.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec

from policies import names
from policies.annotations import BoardInventory, Placement
from policies.placement import resource_of, size_of


class Slice(msgspec.Struct, frozen=True, gc=False):
    """A slice of a board, by what identifies it for as long as it exists: never by its position in a list (pain P14).

    Attributes:
        profile: `3g.20gb` of MIG, `10gb` of MPS.
        start: first memory unit of a MIG slice; None for MPS.
        ordinal: tells the MPS slices of one profile on one board apart; 0 for MIG.
    """

    profile: str
    start: int | None = None
    ordinal: int = 0

    @property
    def placement(self) -> Placement:
        """Return it as layouts have it, in which MPS slices of one profile are alike."""
        return Placement(self.profile, self.start)

    @property
    def resource(self) -> str:
        """Return the resource that a pod asks for to get it."""
        return resource_of(self.profile)

    def __str__(self) -> str:
        return self.profile if self.start is None else f"{self.profile} at {self.start}"


WHOLE: Final = Slice("gpu")
"""A board that is given as a whole, or in turns, among its slices: its profile is no MIG slice's and no MPS slice's."""


def order_key(item: Slice) -> tuple[int, str, int]:
    """Return the key by which the slices of a board are listed: by start, then profile, then ordinal."""
    return -1 if item.start is None else item.start, item.profile, item.ordinal


def device_id(board: str, item: Slice) -> str:
    """Return the id under which the kubelet knows a slice of the board of this UUID.

    It stays the same when the slice is destroyed and made again, or gets another MIG UUID by a reboot. With NVIDIA's
    longest profile names it has 57 characters; the kubelet takes 63.
    """
    return f"{board}/{item.profile}/{item.ordinal if item.start is None else item.start}"


def base_id(device: str) -> str:
    """Return the id of the slice that a device is, or is one replica of: `<id>::<n>` where pods take turns on it."""
    return device.partition("::")[0]


def read_device_id(device: str) -> tuple[str, Slice]:
    """Return board and slice of a `device_id`; only a MIG profile has compute slices. Raises InvalidArgument."""
    match base_id(device).split("/"):
        case board, profile, number if board and profile and number.isdecimal():
            _, compute = size_of(profile)
            return board, Slice(profile, int(number)) if compute else Slice(profile, ordinal=int(number))
    raise InvalidArgument(f"{device!r} is no device of ours: <UUID of the board>/<profile>/<start or ordinal>")


def is_ours(device: str) -> bool:
    """Return whether an id is of the form of ours, which no other plugin's has."""
    try:
        board, _ = read_device_id(device)
    except InvalidArgument:
        return False
    return board.startswith("GPU-")


def unanswered(index: int) -> BoardInventory:
    """Return what stands for a board that has not even told its name; in a mode in which nobody counts on it for slices."""
    return BoardInventory(
        index=index, uuid=f"GPU-{index}-without-answer", model="unknown", memory_mib=1, mode=names.TIMESLICING
    )


class GpuDriver(Protocol):
    """The boards of one node. Calls take effect, or fail, before they return; they may take some 100 ms.

    All methods raise DriverError. Boards are named by UUID: NVML's index may change with a reboot.
    """

    def boards(self) -> tuple[BoardInventory, ...]:
        """Return the boards with their profiles and modes; one that cannot serve now says why in its `fault`.

        What such a board does not tell is None, or missing; one that tells nothing at all is `unanswered`.
        """
        ...

    def slices(self, board: str) -> tuple[Slice, ...]:
        """Return the complete slices of a board, in any order."""
        ...

    def orphans(self, board: str) -> tuple[Slice, ...]:
        """Return GPU instances without a compute instance: a creation or removal that was broken off."""
        ...

    def create(self, board: str, item: Slice) -> None:
        """Make a slice at its placement. If it cannot be completed, what was made of it is removed again."""
        ...

    def destroy(self, board: str, item: Slice) -> None:
        """Remove a slice or an orphan: its compute instance, then its GPU instance."""
        ...

    def enable_mig(self, board: str) -> None:
        """Switch MIG mode on, on a board where that needs no reset (`switch: live`) and nothing runs."""
        ...

    def mps_enabled(self, board: str) -> bool | None:
        """Return whether the board is kept for MPS by a control daemon; None if only a part of that is so, or is left of it.

        A daemon that cannot serve is the board's fault. One that only serves out the slices that are left counts as none.
        """
        ...

    def enable_mps(self, board: str) -> None:
        """Keep a control daemon for a board that is not in MIG mode: without it there are no MPS slices."""
        ...

    def disable_mps(self, board: str) -> None:
        """End the control daemon of a board; as long as it has MPS slices, it is only started no more when it ends."""
        ...

    def device_uuid(self, board: str, item: Slice) -> str:
        """Return the UUID by which a container gets a slice: the MIG device's, else the board's. Any thread may ask."""
        ...

    def device_uuids(self, board: str) -> Mapping[Slice, str]:
        """Return the UUIDs of all complete MIG slices of a board, for less than asking for each."""
        ...


def mig_uuids(driver: GpuDriver, boards: Iterable[str]) -> dict[tuple[str, Slice], str]:
    """Return (board, slice) -> UUID of all MIG slices of boards; those of a board that cannot say are left out."""
    uuids: dict[tuple[str, Slice], str] = {}
    for board in boards:
        with contextlib.suppress(DriverError):  # its fault tells of that
            uuids |= {(board, item): uuid for item, uuid in driver.device_uuids(board).items()}
    return uuids


class DriverError(Exception):
    """The driver refused or failed; the message says what it was asked to do. NVML's other codes are of this class."""


class InUse(DriverError):  # noqa: N818 (these are the names of NVML's codes)
    """NVML_ERROR_IN_USE: a process, or another client such as a monitor, holds the instance or the board."""


class InsufficientResources(DriverError):  # noqa: N818
    """NVML_ERROR_INSUFFICIENT_RESOURCES: no room at that placement, or as many of that profile as can be."""


class InvalidArgument(DriverError):  # noqa: N818
    """NVML_ERROR_INVALID_ARGUMENT: no such board, profile, start or instance."""


class NotSupported(DriverError):  # noqa: N818
    """NVML_ERROR_NOT_SUPPORTED: the board, or the mode that it is in, cannot do that; or the driver knows no board."""


class GpuIsLost(DriverError):  # noqa: N818
    """NVML_ERROR_GPU_IS_LOST: the board fell off the bus or has become inaccessible."""


class NotOpen(DriverError):  # noqa: N818 (as above)
    """The library has lost the driver, which was unloaded or replaced beneath it: nothing works until it is opened anew."""


class NoPermission(DriverError):  # noqa: N818
    """NVML_ERROR_NO_PERMISSION: the agent runs without the rights that MIG needs."""
