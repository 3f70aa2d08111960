"""What this replica has given away and the nodes do not show yet: it counts as taken for the next pod (ADR 19).

A choice is final, and until a pod is bound nothing of it stands on a node. Without this memory all pods of a burst would
be given the model of which the first found the most suitable room.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from policies.admission import Admission
from policies.outstanding import Outstanding, outstanding
from policies.site import BoardKind, Site, held

# From the review until a node shows the slice in use: 0.3 s, and 1 s at the worst, where a board is cut for it at once;
# longer where the reconciler has many to release. After that a pod waits for something else, or was never created.
KEPT_S: Final = 10.0


@dataclass(slots=True)
class _Second:
    """What was given away within a second, and is still to be seen."""

    since: float
    slices: Counter[tuple[BoardKind, str]] = field(default_factory=Counter)


class Tally:
    """The slices given away within the last KEPT_S seconds; any thread may call.

    One review decides at a time: else two would see the same room. They are computation alone, so nobody waits for more
    than that.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds and never goes back."""
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: deque[_Second] = deque()
        self._slices: Counter[tuple[BoardKind, str]] = Counter()  # of all seconds

    def answer(self, decide: Callable[[Outstanding], Admission], *, counts: bool) -> Admission:
        """Return what is decided beside what is given away already; what it gives away is noted if it counts."""
        with self._lock:
            now = self._clock()
            while self._seconds and self._seconds[0].since <= now - KEPT_S:
                self._slices -= self._seconds.popleft().slices
            admission = decide(outstanding(self._slices))
            if counts and admission.given:
                if not self._seconds or self._seconds[-1].since <= now - 1:
                    self._seconds.append(_Second(now))
                for key, count in admission.given.items():
                    self._seconds[-1].slices[key] += count
                    self._slices[key] += count
            return admission

    def shown(self, before: Site | None, after: Site | None) -> None:
        """Forget the oldest slices given away, as many as a node shows in use that it did not show before."""
        if after is None or (before is not None and before.cuts == after.cuts):
            return
        with self._lock:
            for key, more in (held(after.cuts) - (held(before.cuts) if before else Counter())).items():
                self._forget(key, more)

    def _forget(self, key: tuple[BoardKind, str], count: int) -> None:
        for second in self._seconds:
            seen = min(second.slices[key], count)
            if seen:
                second.slices[key] -= seen
                self._slices[key] -= seen
                count -= seen
