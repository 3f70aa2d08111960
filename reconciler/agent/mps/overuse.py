"""Which pods use more of a board than their slices, and have for so long that it is no passing peak; pure.

MPS limits each process by itself, and a process may do without its limit: so the sum is looked at (pain A02).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

PATIENCE_S: Final = 30.0


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

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._since: dict[tuple[str, str], float] = {}
        self._told: set[tuple[str, str]] = set()

    def look(self, uses: Mapping[tuple[str, str], Use], now: float) -> tuple[Use, ...]:
        """Return who has now been above its share for so long, by board and pod; each once until it has been below.

        Args:
            uses: (board, pod) -> what it uses; all that is known at this moment.
            now: seconds, never set back.
        """
        above = {key for key, use in uses.items() if use.mib > use.share_mib}
        self._since = {key: self._since.get(key, now) for key in above}
        self._told &= above
        news = [key for key in above - self._told if now - self._since[key] >= self._patience_s]
        self._told.update(news)
        return tuple(sorted(uses[key] for key in news))
