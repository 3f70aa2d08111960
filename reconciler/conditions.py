"""What people are told of objects that they write, quotas and policies: whether one is in force, and if not, why.

The condition Ready says it for as long as it is so, an Event when it becomes so.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kube.events import EventRecorder, ObjectRef
from kube.resource import Resource
from policies import names
from policies.governing import QuotaView
from policies.policy import PolicyView
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


def record_if_news(
    recorder: EventRecorder,
    resource: Resource,
    kind: str,
    view: QuotaView | PolicyView,
    *,
    seen: Sequence[Condition],
    reason: str,
    message: str,
) -> None:
    """Record an Event if an object is not in force for a reason that its conditions did not give before."""
    if reason not in (names.READY, _ready(seen).get("reason")):
        api_version, namespace, name, uid = resource.api_version, view.namespace, view.name, view.uid
        about = ObjectRef(api_version=api_version, kind=kind, namespace=namespace, name=name, uid=uid)
        recorder.record(about, "Warning", reason, message)


# ---------------------------------------------------------------------------------------------------------------------


def _ready(seen: Sequence[Condition]) -> Condition:
    return next((item for item in seen if item.get("type") == names.READY), {})
