"""What pods use of boards in MPS mode, and which have used more than their slices for too long to be a passing peak; pure.

MPS limits each process by itself, and a process may do without its limit: so the sum is looked at (pain A02).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

PATIENCE_S: Final = 30.0


class Client(msgspec.Struct, frozen=True):
    """A process that uses a board by MPS: its PID, and the memory that it has there, in MiB."""

    pid: int
    mib: int


class Use(msgspec.Struct, frozen=True, order=True):
    """What one pod uses of one board, and what its slices there are worth, in MiB.

    Attributes:
        board: UUID.
        pod: uid.
        mib: used, by all its processes.
        share_mib: of its slices.
    """

    board: str
    pod: str
    mib: int
    share_mib: int


class Overuse:
    """Remembers since when who has used too much. Used by one thread at a time."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}
        self._told: set[tuple[str, str]] = set()

    def look(self, uses: Iterable[Use], now: float) -> tuple[Use, ...]:
        """Return who has now been above its share for so long, by board and pod; each once until it has been below.

        Args:
            uses: all that is known at this moment.
            now: seconds, never set back.
        """
        above = {(use.board, use.pod): use for use in uses if use.mib > use.share_mib}
        self._since = {key: self._since.get(key, now) for key in above}
        self._told &= above.keys()
        news = [key for key in above.keys() - self._told if now - self._since[key] >= PATIENCE_S]
        self._told.update(news)
        return tuple(sorted(above[key] for key in news))
