"""Everything that wakes the supervisor, as one thing to wait for: signals, ended children, a lifeline that closes."""

import os
import select
import signal
from types import FrameType

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupts:
    """Takes over the signals of this process. Make it in the main thread, before the first child is started."""

    def __init__(self, lifeline: int | None) -> None:
        """Take the read end of a pipe whose other end is held by whoever needs this process; None if nobody does."""
        self._stopping = False
        self._wakeups, write_end = os.pipe()
        os.set_blocking(self._wakeups, False)
        os.set_blocking(write_end, False)
        # A full pipe wakes as well as one byte does.
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in _STOPS:
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, _wake_only)
        self._lifeline = lifeline
        self._watched = [self._wakeups] if lifeline is None else [self._wakeups, lifeline]

    def pause(self, timeout_s: float | None) -> bool:
        """Wait until a signal arrives or the lifeline closes, for at most so long; return whether to stop."""
        if self._stopping:
            return True
        readable, _, _ = select.select(self._watched, [], [], timeout_s)
        if self._wakeups in readable:
            os.read(self._wakeups, 4096)
        if self._lifeline in readable:
            self._stopping = True
        return self._stopping

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True


def _wake_only(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGCHLD: a handler, even an empty one, is what makes the signal wake a wait."""
