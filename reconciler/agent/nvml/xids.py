"""XID events: what the driver reports when a board, or what runs on it, has failed."""

import threading
from collections.abc import Mapping
from typing import Any, Final

import pynvml
import structlog

from reconciler.agent.driver import DriverError
from reconciler.agent.nvml.discovery import Handle
from reconciler.agent.nvml.errors import asking, is_one_of

# Faults of a program, after which the board serves the next one; NVIDIA's device plugin passes over the same.
OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})

_MOST: Final = 1000  # events taken at once, so that a board that never stops cannot stop us
_WAIT_S: Final = 5.0  # for a wait that is under way; it takes no longer unless the driver hangs
_log: Final = structlog.get_logger()


class WatchEnded(DriverError):  # noqa: N818 (it is no fault)
    """A watch has been closed by somebody else: which boards there are to watch, or NVML, is not what it was."""


class XidWatch:
    """Watches boards from when it is made. Used by one thread at a time, and closed by any.

    Attributes:
        boards: their UUIDs.

    Args:
        boards: UUID -> handle.
    """

    def __init__(self, boards: Mapping[str, Handle]) -> None:
        self.boards = frozenset(boards)
        self._turn, self._ended = threading.Lock(), False
        with asking("watch for XID events"):
            self._events: Any = pynvml.nvmlEventSetCreate()
        for uuid, handle in boards.items():
            try:
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
            except pynvml.NVMLError as error:  # a board in a virtual machine, for one; it serves all the same
                _log.warning("board_not_watched", board=uuid, error=str(error))

    def take(self, timeout_s: float = 0.0) -> tuple[tuple[str, int], ...]:
        """Return (board's UUID, XID) of what has failed since the last call, after waiting for the first.

        Raises WatchEnded, DriverError.
        """
        with self._turn:
            if self._ended:
                raise WatchEnded("wait for XID events: the watch has been closed")
            return tuple(self._take(round(1000 * timeout_s)))

    def close(self) -> None:
        """Stop watching, once the wait that is under way is over; no other begins. Raises DriverError."""
        self._ended = True
        if not self._turn.acquire(timeout=_WAIT_S):
            raise DriverError("stop watching for XID events: the driver still waits for one")
        try:
            events, self._events = self._events, None
            if events is not None:
                with asking("stop watching for XID events"):
                    pynvml.nvmlEventSetFree(events)
        finally:
            self._turn.release()

    def _take(self, timeout_ms: int) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
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
        return found
