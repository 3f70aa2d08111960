"""How long to pause after so many failures in a row; pure: chance comes in as a number."""

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Pauses that double from `base_s` up to `cap_s`, in seconds."""

    base_s: float
    cap_s: float

    def delay_s(self, failures: int, chance: float) -> float:
        """Return the pause after the nth failure in a row (n >= 1): between half and all of it, by `chance` in [0, 1).

        The jitter keeps the clients of a server that comes back from asking all at once; half is always kept, so that
        the rate stays bounded.
        """
        whole = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 62))
        return whole * (0.5 + chance / 2)
