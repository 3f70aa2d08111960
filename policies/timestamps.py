"""Times as the API writes them."""

from datetime import UTC, datetime
from typing import Final

import msgspec

LAST: Final = 253_402_300_799  # seconds since the epoch, at the end of the year 9999


class TimestampError(msgspec.ValidationError):
    """The text is no time. Of msgspec's kind, so that an object with one is unreadable like any other."""


def epoch(timestamp: str | None) -> int:
    """Return an API timestamp (RFC 3339) in seconds since the epoch; 0 if there is none. Raises TimestampError."""
    try:
        return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0
    except (ValueError, OverflowError) as error:
        raise TimestampError(f"{timestamp!r} is no time; write for example 2026-01-31T09:00:00Z") from error


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as the API writes time: whole seconds, RFC 3339. Up to LAST."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
