"""GPU instances and compute instances of a board in MIG mode: which there are, making one of each, removing both.

A slice is a GPU instance with one compute instance that takes all of it. Handles are asked for each time and not kept.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pynvml

from policies.annotations import Placement
from policies.catalogue import Profile
from reconciler.agent.driver import DriverError, Slice
from reconciler.agent.nvml.discovery import Board, ComputeProfile, Handle
from reconciler.agent.nvml.errors import asking, driver_error, is_one_of

# Another profile with all 7 slices, which no board was found to make (kubernetes-sigs/dra-driver-nvidia-gpu issue 1480).
_NEVER_MADE: Final = (pynvml.NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL,)


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance.

    Attributes:
        item: profile and start.
        number: NVML's id of it, on its board.
        handle: NVML's.
        parts: its compute instances.
        whole: whether one compute instance takes all of it.
    """

    item: Slice
    number: int
    handle: Handle
    parts: tuple[Handle, ...]
    whole: bool


def instances(board: Board, only: str | None = None) -> tuple[Instance, ...]:
    """Return the GPU instances of a board in MIG mode, also those that are no slices; `only`: of the profile of this name.

    Raises pynvml.NVMLError or DriverError, among others if one goes meanwhile.
    """
    return tuple(
        found
        for profile in board.inventory.profiles
        if only in (None, profile.name)
        for found in _of_profile(board, profile)
    )


def create(board: Board, profile: Profile, start: int) -> None:
    """Make a GPU instance at its placement and a compute instance that takes all of it; or nothing. Raises DriverError."""
    item = Slice(profile.name, start)
    place = pynvml.c_nvmlGpuInstancePlacement_t(start, profile.memory_units)
    with asking(f"create {item}"):
        made = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(board.handle, profile.id, pynvml.byref(place))
    try:
        with asking(f"create the compute instance of {item}"):
            pynvml.nvmlGpuInstanceCreateComputeInstance(made, _for_all_of(board, profile, made).id)
    except DriverError as error:
        try:
            pynvml.nvmlGpuInstanceDestroy(made)
        except pynvml.NVMLError as second:  # it is an orphan now, and as such removed later
            error.args = (f"{error}; {driver_error('and removing its GPU instance', second)}",)
        raise


def destroy(instance: Instance) -> None:
    """Remove the compute instances of a GPU instance, then itself. Raises DriverError."""
    for part in instance.parts:
        with asking(f"destroy the compute instance of {instance.item}"):
            pynvml.nvmlComputeInstanceDestroy(part)
    with asking(f"destroy {instance.item}"):
        pynvml.nvmlGpuInstanceDestroy(instance.handle)


def device_uuids(board: Board) -> dict[int, str]:
    """Return number of a GPU instance -> UUID of the MIG device in it. Raises pynvml.NVMLError."""
    uuids: dict[int, str] = {}
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(board.handle)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board.handle, index)
        except pynvml.NVMLError as error:
            if is_one_of(error, pynvml.NVML_ERROR_NOT_FOUND):
                continue
            raise
        uuids[pynvml.nvmlDeviceGetGpuInstanceId(device)] = str(pynvml.nvmlDeviceGetUUID(device))
    return uuids


def holders(board: Board, name: Callable[[int], str], number: int | None = None) -> str:
    """Return who holds a GPU instance, or the board, as ` (process 4711)`, by their names; "" where that is not known."""
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(board.handle)
    except pynvml.NVMLError:  # it only explains another error
        return ""
    named = [name(process.pid) for process in found if number is None or process.gpuInstanceId == number]
    return f" (process {', '.join(named)})" if named else ""


def placements(found: tuple[Instance, ...]) -> tuple[Placement, ...]:
    """Return where instances lie."""
    return tuple(instance.item.placement for instance in found)


def _of_profile(board: Board, profile: Profile) -> Iterator[Instance]:
    # The buffer must hold as many as there can be; asking with none for their number is an error (pain A12).
    buffer = (pynvml.c_nvmlGpuInstance_t * max(profile.max, 1))()
    count = pynvml.c_uint(len(buffer))
    pynvml.nvmlDeviceGetGpuInstances(board.handle, profile.id, buffer, pynvml.byref(count))
    for handle in buffer[: count.value]:
        info = pynvml.nvmlGpuInstanceGetInfo(handle)
        slices = {kind.id: kind.slices for kind in _compute_profiles(board, profile, handle)}
        parts = _parts(handle, slices)
        yield Instance(
            item=Slice(profile.name, info.placement.start),
            number=info.id,
            handle=handle,
            parts=tuple(part for part, _ in parts.values()),
            whole=[slices.get(kind) for _, kind in parts.values()] == [profile.compute],
        )


def _parts(instance: Handle, slices: dict[int, int]) -> dict[int, tuple[Handle, int]]:
    """Return id -> (handle, profile) of compute instances: profiles of equal size may answer with each other's."""
    found: dict[int, tuple[Handle, int]] = {}
    most = max(slices.values(), default=1)
    for kind in slices:
        buffer = (pynvml.c_nvmlComputeInstance_t * most)()
        count = pynvml.c_uint(most)
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, kind, buffer, pynvml.byref(count))
        for handle in buffer[: count.value]:
            info = pynvml.nvmlComputeInstanceGetInfo(handle)
            found[info.id] = handle, info.profileId
    return found


def _for_all_of(board: Board, profile: Profile, instance: Handle) -> ComputeProfile:
    """Return the compute profile with all slices, and of those (1_SLICE, 1_SLICE_REV1) the one with most processors."""
    candidates = [
        kind
        for kind in _compute_profiles(board, profile, instance)
        if kind.slices == profile.compute and kind.enum not in _NEVER_MADE
    ]
    if not candidates:
        raise DriverError(f"the driver has no compute profile of {profile.compute} slices for {profile.name}")
    return min(candidates, key=lambda kind: (-kind.processors, kind.enum))


def _compute_profiles(board: Board, profile: Profile, instance: Handle) -> tuple[ComputeProfile, ...]:
    """Return what compute instances there can be; asked of the first GPU instance of a profile that says any.

    Raises pynvml.NVMLError, among others if it goes meanwhile, or DriverError if it says none. Were an answer kept that lacks
    something, instances in use would be orphans.
    """
    if profile.id not in board.compute_profiles:
        infos = {
            enum: _compute_profile_info(instance, enum) for enum in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
        }
        found = tuple(
            ComputeProfile(enum, info.id, info.sliceCount, info.multiprocessorCount)
            for enum, info in infos.items()
            if info is not None
        )
        pynvml.nvmlGpuInstanceGetInfo(instance)  # one that has gone answers as if there were no further profile
        if not found:
            raise DriverError(f"the driver has no compute profile for {profile.name}")
        board.compute_profiles[profile.id] = found
    return board.compute_profiles[profile.id]


def _compute_profile_info(instance: Handle, enum: int) -> Any:  # noqa: ANN401 (a struct of ctypes)
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    try:
        return pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, enum, shared, version=1)
    except pynvml.NVMLError as error:
        if is_one_of(error, pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
            return None
        raise
