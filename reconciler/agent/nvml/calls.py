"""Which boards are being asked, and since when: a call that hangs can be ended by nobody, but the board can be named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Calls:
    """The calls that are under way, at most one for each board. Any thread may ask.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[int, float] = {}

    @contextmanager
    def to(self, index: int) -> Iterator[None]:
        """Note that the board of this index is being asked until the context ends."""
        self._since[index] = self._clock()
        try:
            yield
        finally:
            self._since.pop(index, None)

    def lasting(self, longer_s: float) -> tuple[int, ...]:
        """Return the indices of the boards that have been asked for so long and have not answered."""
        now = self._clock()
        return tuple(sorted(index for index, since in self._since.copy().items() if now - since >= longer_s))
