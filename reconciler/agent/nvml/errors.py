"""NVML's errors as the agent knows them: its classes, what was asked, NVML's own text."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pynvml

from reconciler.agent.driver import (
    DriverError,
    GpuIsLost,
    InsufficientResources,
    InUse,
    InvalidArgument,
    NoPermission,
    NotOpen,
    NotSupported,
)

_CLASSES: Final[dict[int, type[DriverError]]] = {
    pynvml.NVML_ERROR_IN_USE: InUse,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: InsufficientResources,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: InvalidArgument,
    pynvml.NVML_ERROR_NOT_SUPPORTED: NotSupported,
    pynvml.NVML_ERROR_GPU_IS_LOST: GpuIsLost,
    pynvml.NVML_ERROR_NO_PERMISSION: NoPermission,
    pynvml.NVML_ERROR_UNINITIALIZED: NotOpen,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NotOpen,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NotOpen,
}
_ADVICE: Final[dict[int, str]] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "is NVIDIA's driver installed, and visible to the agent?",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load NVIDIA's kernel modules",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "this driver is too old for it",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "library and kernel modules are of different drivers: load the modules of the new one and restart the agent, or reboot "
        "the node"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "the agent must run as root, with the MIG capabilities of the node",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the board must be reset",
}


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Raise NVML's errors as DriverError, with what it was asked to do: `create 3g.20gb at 4: In use by another client`."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise driver_error(what, error) from error


def driver_error(what: str, error: pynvml.NVMLError) -> DriverError:
    """Return an error of NVML as one of ours."""
    text = f"{what}: {error}"
    if isinstance(error.__context__, OSError):  # what the loader said is more than that nothing was found
        text += f" ({error.__context__})"
    if advice := _ADVICE.get(error.value):
        text += f"; {advice}"
    return _CLASSES.get(error.value, DriverError)(text)


def is_one_of(error: pynvml.NVMLError, *codes: int) -> bool:
    """Return whether an error of NVML has one of these codes."""
    return error.value in codes
