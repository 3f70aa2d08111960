"""What a board is and can be cut into, by NVML alone: name, memory, generation, MIG profiles with their placements.

Profiles are asked for by NVML's enum and created by the `id` that it answers: these are different numbers. A driver may
answer several enums with one profile; the first counts.
"""

import re
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pynvml

from policies.annotations import BoardInventory
from policies.boards import inventory_model
from policies.catalogue import BoardModel, Profile, mig_memory_gb, size_order
from reconciler.agent.driver import DriverError
from reconciler.agent.nvml.errors import is_one_of

Handle = Any
"""A pointer that only the library can read."""

ENUMS: Final = 32  # more than the bindings know (18): drivers are newer than they are, and say which they do not know
PLACEMENTS: Final = 64  # more than any board has memory units
MIB: Final = 1 << 20

# What an enum means beyond compute and memory, for drivers that do not name their profiles.
_SUFFIXES: Final[dict[int, str]] = {
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}
_NAME: Final = re.compile(r"[1-9]\d?g\.[1-9]\d{0,4}gb([+-].+)?")


class ComputeProfile(msgspec.Struct, frozen=True):
    """What a compute instance can be in GPU instances of one profile: NVML's enum and id, slices, processors (SM)."""

    enum: int
    id: int
    slices: int
    processors: int


class Board(msgspec.Struct, frozen=True):
    """What does not change about a board while the driver is loaded.

    Attributes:
        handle: NVML's.
        inventory: without mode and fault.
        compute_profiles: by the id of the GPU instance's profile; filled when there is an instance that can be asked.
        turn: held by who works on it.
    """

    handle: Handle
    inventory: BoardInventory
    compute_profiles: dict[int, tuple[ComputeProfile, ...]] = {}
    turn: threading.Lock = msgspec.field(default_factory=threading.Lock)

    @property
    def uuid(self) -> str:
        """Return its UUID."""
        return self.inventory.uuid

    @property
    def model(self) -> BoardModel:
        """Return what it can be cut into, for our rules."""
        return inventory_model(self.inventory)


def identify(index: int) -> Board:
    """Return the board of an index, which NVML gives anew with each reboot: who it is. Raises pynvml.NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Board(
        handle,
        BoardInventory(
            index=index,
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            model=pynvml.nvmlDeviceGetName(handle).replace(" ", "-"),
            # Version 2 counts used and free otherwise; the total is the same.
            memory_mib=pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB,
        ),
    )


def describe(board: Board) -> Board:
    """Return a board with what it can be cut into. Raises pynvml.NVMLError, or DriverError if what it says cannot be."""
    handle, memory_mib = board.handle, board.inventory.memory_mib
    mig = mig_mode(handle)
    profiles = () if mig is None else tuple(sorted(_profiles(handle, memory_mib), key=size_order))
    if mig and not profiles:
        raise DriverError(f"describe GPU {board.inventory.index}: MIG mode is on, but the driver names no profile")
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    inventory = msgspec.structs.replace(
        board.inventory,
        compute_capability=f"{major}.{minor}",
        profiles=profiles,
        mig_capable=bool(profiles),
        switch="live" if profiles and _switches_live(handle) else "admin",
        compute_slices=max((profile.compute for profile in profiles), default=0),
        memory_units=max((start + profile.memory_units for profile in profiles for start in profile.starts), default=0),
    )
    return Board(handle, inventory)


def mig_mode(handle: Handle) -> bool | None:
    """Return whether MIG mode is on now, whatever is pending; None if the board has none. Raises pynvml.NVMLError."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError as error:
        if is_one_of(error, pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _switches_live(handle: Handle) -> bool:
    """Return whether MIG mode needs no reset: Hopper and later."""
    architecture = pynvml.nvmlDeviceGetArchitecture(handle)
    return bool(pynvml.NVML_DEVICE_ARCH_HOPPER <= architecture < pynvml.NVML_DEVICE_ARCH_UNKNOWN)


def _profiles(handle: Handle, board_mib: int) -> Iterator[Profile]:
    ids, names = set[int](), set[str]()
    for enum in range(ENUMS):
        info = _profile_info(handle, enum)
        if info is None or info.id in ids:
            continue
        name = _driver_name(info) or _computed_name(enum, info, board_mib)
        if name in names:
            continue
        starts, units = _placements(handle, info.id)
        if starts:
            ids.add(info.id)
            names.add(name)
            yield Profile(
                name=name,
                id=info.id,
                compute=info.sliceCount,
                memory_units=units,
                memory_mib=info.memorySizeMB,  # MiB, in spite of its name
                starts=starts,
                max=info.instanceCount,
            )


def _profile_info(handle: Handle, enum: int) -> Any:  # noqa: ANN401 (one of two structs of ctypes)
    """Return the driver's description of a profile, with its name where the driver gives one; None if there is none."""
    too_old = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    try:
        try:
            return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, enum, version=2)
        except pynvml.NVMLError as error:
            if not is_one_of(error, *too_old):
                raise
            return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, enum, version=1)
    except pynvml.NVMLError as error:
        if is_one_of(error, pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
            return None
        raise


def _driver_name(info: Any) -> str:  # noqa: ANN401
    """Return the profile's name as the driver has it, or "" if it has none that we understand."""
    name = str(getattr(info, "name", "")).removeprefix("MIG ")
    return name if _NAME.fullmatch(name) else ""


def _computed_name(enum: int, info: Any, board_mib: int) -> str:  # noqa: ANN401
    return f"{info.sliceCount}g.{mig_memory_gb(info.memorySizeMB, board_mib)}gb{_SUFFIXES.get(enum, '')}"


def _placements(handle: Handle, profile_id: int) -> tuple[tuple[int, ...], int]:
    """Return the legal starts of a profile, ascending, and its length in memory units."""
    buffer = (pynvml.c_nvmlGpuInstancePlacement_t * PLACEMENTS)()
    count = pynvml.c_uint(PLACEMENTS)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, buffer, pynvml.byref(count))
    found = buffer[: count.value]
    return tuple(sorted({place.start for place in found})), max((place.size for place in found), default=0)
