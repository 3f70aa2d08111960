"""How an agent paces itself: since when boards have failed, withdrawals are known, and the kubelet has not agreed.

It is all that an agent remembers between passes. Time is one that is never set back: a node's clock may be, after it has booted.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

SETTLE_S: Final = 2.0
"""Seconds from telling that slices are withdrawn until no pod is bound to them any more: what a scheduler may be late."""

KUBELET_PATIENCE_S: Final = 10.0  # a kubelet that takes longer is reported
_FIRST_PAUSE_S: Final = 1.0  # after a failure of a board; doubles with each that follows
_LONGEST_PAUSE_S: Final = 60.0
_FORGOTTEN_S: Final = 120.0  # a failure that nothing has followed for so long is no news any more
_POLL_S: Final = 0.02  # how soon the kubelet is asked again; then after an eighth of what it has taken so far
_LONGEST_POLL_S: Final = 1.0


class _Failure(msgspec.Struct, frozen=True):
    why: str
    until: float  # when the board may be worked on again
    pause_s: float


class Pace:
    """The pace of one node's agent. Boards are named by UUID; `ticks` is monotonic, in seconds."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._failures: dict[str, _Failure] = {}
        self._told_since: dict[str, float] = {}
        self._behind_since: float | None = None

    def failed(self, board: str, why: str) -> float:
        """Leave a board alone, longer after each failure that follows; return for how many seconds."""
        before = self._failures.get(board)
        pause_s = min(_LONGEST_PAUSE_S, 2 * before.pause_s) if before else _FIRST_PAUSE_S
        self._failures[board] = _Failure(why, self._ticks() + pause_s, pause_s)
        return pause_s

    def succeeded(self, board: str) -> None:
        """Forget the failures of a board."""
        self._failures.pop(board, None)

    def failure(self, board: str) -> str | None:
        """Return why a board failed last; None if it has succeeded since, or that is long ago."""
        failure = self._failures.get(board)
        return failure.why if failure else None

    def left_alone(self, board: str) -> str | None:
        """Return for what failure a board is left alone now; None if it may be worked on."""
        failure = self._failures.get(board)
        return failure.why if failure and self._ticks() < failure.until else None

    def told(self, board: str) -> None:
        """Note that the API server knows of all that is withdrawn from a board."""
        self._told_since.setdefault(board, self._ticks())

    def not_told(self, board: str) -> None:
        """Note that it does not, or that nothing is withdrawn."""
        self._told_since.pop(board, None)

    def has_settled(self, board: str) -> bool:
        """Return whether that has been known for so long that no pod is bound to it any more."""
        since = self._told_since.get(board)
        return since is not None and self._ticks() - since >= SETTLE_S

    def kubelet_agrees(self) -> None:
        """Note that the kubelet has taken over what was announced."""
        self._behind_since = None

    def kubelet_behind_s(self) -> float:
        """Note that it has not; return for how many seconds."""
        now = self._ticks()
        if self._behind_since is None:
            self._behind_since = now
        return now - self._behind_since

    def next_look_s(self) -> float | None:
        """Return in how many seconds a board may be worked on again, of which that is known; None if there is none."""
        now = self._ticks()
        self._failures = {
            board: failure for board, failure in self._failures.items() if now < failure.until + _FORGOTTEN_S
        }
        times = [failure.until for failure in self._failures.values()]
        times += [since + SETTLE_S for since in self._told_since.values()]
        return min((time - now for time in times if time > now), default=None)


def next_poll_s(waited_s: float) -> float:
    """Return in how many seconds a kubelet is asked again that has not agreed for so long."""
    return max(_POLL_S, min(_LONGEST_POLL_S, waited_s / 8))
