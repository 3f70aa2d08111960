"""XID events: what the driver reports when a board, or what runs on it, has failed."""

from collections.abc import Callable, Mapping
from typing import Final

import pynvml
import structlog

from reconciler.agent.driver import DriverError
from reconciler.agent.nvml.discovery import Handle
from reconciler.agent.nvml.errors import asking, is_one_of

# Faults of a program, after which the board serves the next one; NVIDIA's device plugin passes over the same.
OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})

_MOST: Final = 1000  # events taken at once, so that a board that never stops cannot stop us
_log: Final = structlog.get_logger()


class XidWatch:
    """Watches boards from when it is made. Used by one thread at a time.

    Args:
        boards: UUID -> handle.
        closed: tells whether NVML has been closed meanwhile, and with it all that is waited for.
    """

    def __init__(self, boards: Mapping[str, Handle], closed: Callable[[], bool] = lambda: False) -> None:
        self._closed = closed
        with asking("watch for XID events"):
            self._events = pynvml.nvmlEventSetCreate()
        for uuid, handle in boards.items():
            try:
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
            except pynvml.NVMLError as error:  # a board in a virtual machine, for one; it serves all the same
                _log.warning("board_not_watched", board=uuid, error=str(error))

    def take(self, timeout_s: float = 0.0) -> tuple[tuple[str, int], ...]:
        """Return (board's UUID, XID) of what has failed since the last call, after waiting for the first. Raises DriverError."""
        if self._closed():
            raise DriverError("wait for XID events: NVML has been opened anew")
        found: list[tuple[str, int]] = []
        timeout_ms = round(1000 * timeout_s)
        for _ in range(_MOST):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, timeout_ms)
            except pynvml.NVMLError as error:
                if is_one_of(error, pynvml.NVML_ERROR_TIMEOUT):
                    break
                with asking("wait for XID events"):
                    raise
            timeout_ms = 0
            if event.eventData not in OF_PROGRAMS:
                with asking(f"tell which board has XID {event.eventData}"):
                    found.append((pynvml.nvmlDeviceGetUUID(event.device), event.eventData))
        return tuple(found)

    def close(self) -> None:
        """Stop watching. Raises DriverError."""
        if self._closed():
            return
        with asking("stop watching for XID events"):
            pynvml.nvmlEventSetFree(self._events)
