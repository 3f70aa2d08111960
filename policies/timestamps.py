"""Times as the API writes them."""

from datetime import datetime


def epoch(timestamp: str | None) -> int:
    """Return an API timestamp (RFC 3339) in seconds since the epoch; 0 if there is none."""
    return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0
