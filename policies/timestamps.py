"""Times as the API writes them."""

from datetime import UTC, datetime


def epoch(timestamp: str | None) -> int:
    """Return an API timestamp (RFC 3339) in seconds since the epoch; 0 if there is none."""
    return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as the API writes time: whole seconds, RFC 3339."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
