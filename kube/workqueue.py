"""A queue of keys to look at: each at most once in line, never two workers on one key, later or again after a failure.

A key added while it is being worked on is handed out once more when that work is done, so that no change is missed and
none is handled twice at the same time.
"""

import heapq
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)

BACKOFF: Final = Backoff(base_s=0.2, cap_s=60.0)


class WorkQueue(Generic[K]):
    """Thread-safe. Keys come out in the order in which they became due; `clock` is in seconds."""

    def __init__(
        self,
        *,
        backoff: Backoff = BACKOFF,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._backoff, self._clock, self._chance = backoff, clock, chance
        self._changed = threading.Condition()
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()  # to be handed out: in line, or added while in work
        self._working: set[K] = set()
        self._due: dict[K, float] = {}  # the earliest time asked for, of each delayed key
        self._delayed: list[tuple[float, int, K]] = []  # a heap; entries that no longer agree with _due are stale
        self._order = 0
        self._failures: dict[K, int] = {}
        self._closed = False

    def add(self, key: K) -> None:
        """Put a key in line, now. If it is also delayed, it comes again then."""
        with self._changed:
            self._put(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Put a key in line after this many seconds; of several delays of one key the earliest counts."""
        with self._changed:
            due = self._clock() + delay_s
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                self._order += 1
                heapq.heappush(self._delayed, (due, self._order, key))
                self._changed.notify_all()

    def retry(self, key: K) -> float:
        """Put a key in line again after a failure; return the pause in seconds, which doubles until `forget`."""
        with self._changed:
            self._failures[key] = self._failures.get(key, 0) + 1
            delay_s = self._backoff.delay_s(self._failures[key], self._chance())
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Begin anew with the pauses of a key: its work has succeeded."""
        with self._changed:
            self._failures.pop(key, None)

    def get(self, timeout_s: float | None = None) -> K | None:
        """Return the next key, to be given back with `done`; None if there is none in time, or the queue is closed."""
        give_up = None if timeout_s is None else self._clock() + timeout_s
        with self._changed:
            while not self._closed:
                now = self._clock()
                self._release(now)
                if self._ready:
                    key = self._ready.popleft()
                    self._dirty.remove(key)
                    self._working.add(key)
                    return key
                if give_up is not None and now >= give_up:
                    return None
                wake = self._delayed[0][0] if self._delayed else None
                until = min((at for at in (wake, give_up) if at is not None), default=None)
                self._changed.wait(None if until is None else until - now)
            return None

    def done(self, key: K) -> None:
        """Give a key back: it may be handed out again, and is at once if it was added meanwhile."""
        with self._changed:
            self._working.discard(key)
            if key in self._dirty:
                self._ready.append(key)
                self._changed.notify_all()

    def close(self) -> None:
        """Hand out nothing more and wake all who wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Tell whether `close` was called, that is, whether a None of `get` is the last."""
        return self._closed

    def __len__(self) -> int:
        """Return how many keys wait to be handed out now; delayed ones and those in work do not count."""
        with self._changed:
            self._release(self._clock())
            return len(self._ready)

    def _put(self, key: K) -> None:
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._ready.append(key)
            self._changed.notify_all()

    def _release(self, now: float) -> None:
        """Put in line what has become due, and forget entries that an earlier delay has replaced."""
        while self._delayed:
            due, _, key = self._delayed[0]
            current = self._due.get(key) == due
            if current and due > now:
                return
            heapq.heappop(self._delayed)
            if current:
                del self._due[key]
                self._put(key)
