"""The condition Ready of objects that people write: whether a quota or a policy is in force, and if not, why."""

from collections.abc import Mapping, Sequence
from typing import Final

from policies import names
from policies.timestamps import timestamp

MESSAGE: Final = 1024  # characters; a condition may hold more, but people read it in a terminal

Condition = Mapping[str, object]


def with_ready(
    seen: Sequence[Condition], *, ready: bool, reason: str, message: str, generation: int, now: float
) -> list[Condition] | None:
    """Return the conditions that an object is to have, those of others included; None if it has them.

    `generation` is the one that was judged. The time of the last transition (`now`, in seconds since the epoch) changes
    only with the status, so that a condition says since when a quota or policy has not been in force.
    """
    before = _ready(seen)
    wanted = {
        "type": names.READY,
        "status": "True" if ready else "False",
        "observedGeneration": generation,
        "reason": reason,
        "message": message[:MESSAGE],
    }
    if all(before.get(key) == value for key, value in wanted.items()):
        return None
    since = timestamp(now)
    if before.get("status") == wanted["status"]:
        since = str(before.get("lastTransitionTime") or since)
    others = [item for item in seen if item.get("type") != names.READY]
    return [*others, {**wanted, "lastTransitionTime": since}]


def reason_given(seen: Sequence[Condition]) -> object:
    """Return the reason that the condition of an object gives; None if it has none."""
    return _ready(seen).get("reason")


# ---------------------------------------------------------------------------------------------------------------------


def _ready(seen: Sequence[Condition]) -> Condition:
    return next((item for item in seen if item.get("type") == names.READY), {})
