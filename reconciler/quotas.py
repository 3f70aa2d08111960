"""Keeps what is told of quotas true: their status, and the label of the namespaces that they govern.

Runs beside the loop on a thread of its own, so that it never delays a grant. The status is what the webhook estimates
from and what people read; the label is how the API server knows which pods to show to the webhook. Each is compared
with what stands there and written only where it differs. A write that fails is tried again later, and holds up no other.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from kube.backoff import Backoff
from kube.client import MERGE_PATCH, Client
from kube.errors import ApiError, Conflict, NotFound, Unreachable
from kube.events import EventRecorder, ObjectRef
from kube.informer import Informer
from kube.resource import COMPOSITE_QUOTAS, ELASTIC_QUOTAS, NAMESPACES, Resource
from policies import names
from policies.decision import QuotaStatus
from policies.governing import QuotaView, view_quota
from policies.model import CompositeElasticQuota, ElasticQuota, Namespace
from policies.quantity import Amounts, Quantity
from policies.quota import amount
from reconciler.metrics import WRITES
from reconciler.patches import Body

TICK_S: Final = (
    0.25  # between two rounds: the webhook's estimates are no older, and a busy quota is written 4 times a second
)
AGAIN: Final = Backoff(base_s=1.0, cap_s=60.0)
MESSAGE: Final = 1024  # characters

Condition = Mapping[str, object]


class ObservedQuota(msgspec.Struct, frozen=True):
    """A quota, and what stands in its status.

    Attributes:
        view: what decisions see of it.
        version: its resourceVersion, the precondition of writes.
        amounts: `used`, `borrowed` and `lent`, as they are written.
        conditions: all of them, those of others included.
    """

    view: QuotaView
    version: str
    amounts: Mapping[str, Mapping[str, Quantity]]
    conditions: tuple[Condition, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    used: dict[str, Quantity] | None = None
    borrowed: dict[str, Quantity] | None = None
    lent: dict[str, Quantity] | None = None
    conditions: tuple[dict[str, object], ...] | None = None


class _Elastic(ElasticQuota, frozen=True):
    status: _Status | None = None


class _Composite(CompositeElasticQuota, frozen=True):
    status: _Status | None = None


_ELASTIC: Final = msgspec.json.Decoder(_Elastic)
_COMPOSITE: Final = msgspec.json.Decoder(_Composite)
_NAMESPACE: Final = msgspec.json.Decoder(Namespace)


def project_elastic(raw: bytes) -> ObservedQuota:
    """Return what is kept of an ElasticQuota. Raises msgspec.DecodeError if it cannot be read."""
    return _observed(_ELASTIC.decode(raw))


def project_composite(raw: bytes) -> ObservedQuota:
    """Return what is kept of a CompositeElasticQuota. Raises msgspec.DecodeError if it cannot be read."""
    return _observed(_COMPOSITE.decode(raw))


def project_namespace(raw: bytes) -> str:
    """Return the quota label of a namespace, empty if it has none. Raises msgspec.DecodeError if it cannot be read."""
    return (_NAMESPACE.decode(raw).metadata.labels or {}).get(names.QUOTA_LABEL, "")


def status_patch(wanted: QuotaStatus, seen: ObservedQuota, now: float) -> Body | None:
    """Return the merge patch that makes a quota's status true; None if it is. `now`: seconds since the epoch."""
    changes: dict[str, object] = {}
    for field, amounts in (("used", wanted.used), ("borrowed", wanted.borrowed), ("lent", wanted.lent)):
        if changed := _changed(amounts, seen.amounts[field]):
            changes[field] = changed
    before = next((item for item in seen.conditions if item.get("type") == names.QUOTA_READY), {})
    ready = {
        "type": names.QUOTA_READY,
        "status": "True" if wanted.ready else "False",
        "observedGeneration": wanted.generation,
        "reason": wanted.reason,
        "message": wanted.message[:MESSAGE],
    }
    if any(before.get(key) != value for key, value in ready.items()):
        since = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if before.get("status") == ready["status"]:
            since = str(before.get("lastTransitionTime") or since)
        others = [item for item in seen.conditions if item.get("type") != names.QUOTA_READY]
        changes["conditions"] = [*others, {**ready, "lastTransitionTime": since}]
    return {"metadata": {"resourceVersion": seen.version}, "status": changes} if changes else None


class QuotaWriter:
    """Keeps quotas' status and namespaces' labels true during one term of leadership.

    `say` may be called by any thread and costs nothing; `tick`, on a thread of its own once started, does the work.
    """

    def __init__(
        self,
        client: Client,
        quotas: Mapping[str, Informer[ObservedQuota]],
        namespaces: Informer[str],
        recorder: EventRecorder,
        *,
        held: Callable[[], bool],
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the informers of quotas by kind."""
        self._client, self._quotas, self._namespaces, self._recorder = client, quotas, namespaces, recorder
        self._held, self._now, self._clock = held, now, clock
        self._said: tuple[Sequence[QuotaStatus], Mapping[str, QuotaView]] | None = None
        self._failed: dict[str, tuple[int, float]] = {}  # path -> failures in a row, not again before
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="quotas", daemon=True)
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no more writes, and wait for the one under way."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def say(self, statuses: Sequence[QuotaStatus], by_namespace: Mapping[str, QuotaView]) -> None:
        """Take what is true of every quota, and which of them governs (or would govern) which namespace."""
        self._said = statuses, by_namespace

    def tick(self) -> None:
        """Write every difference: labels first, since pods that nobody shows us are the more pressing matter."""
        if self._said is None:
            return
        statuses, by_namespace = self._said
        for key, written in self._namespaces.store.items():
            quota = by_namespace.get(key)
            if written != (wanted := quota.name if quota else ""):
                body: Body = {"metadata": {"labels": {names.QUOTA_LABEL: wanted or None}}}
                self._write(NAMESPACES.path(name=key), body, self._namespaces)
        for status in statuses:
            informer = self._quotas[status.kind]
            seen = informer.store.get(status.key)
            # One that has been edited since it was judged is left to the next decision.
            if seen is None or seen.view.generation != status.generation:
                continue
            if (patch := status_patch(status, seen, self._now())) is not None:
                path = _resource(status.kind).path(status.namespace, status.name, "status")
                if self._write(path, patch, informer):
                    self._tell(status, seen)

    def _run(self) -> None:
        while not self._stopped.wait(TICK_S):
            self.tick()

    def _write(self, path: str, body: Body, informer: Informer[ObservedQuota] | Informer[str]) -> bool:
        """Send a patch, unless it failed a moment ago; return whether it was carried out."""
        failures, not_before = self._failed.get(path, (0, 0.0))
        if self._stopped.is_set() or not self._held() or self._clock() < not_before:
            return False
        try:
            answer = self._client.request("PATCH", path, body=msgspec.json.encode(body), content_type=MERGE_PATCH)
            informer.lay_over(answer)
        except (Conflict, NotFound):
            WRITES.labels("quota", "stale").inc()
            return False  # the watch will tell, and the next round compares again
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            asked_s = error.retry_after_s if isinstance(error, ApiError) else 0.0
            self._failed[path] = failures + 1, self._clock() + max(asked_s, AGAIN.delay_s(failures + 1, 1.0))
            WRITES.labels("quota", "refused").inc()
            self._log.warning("quota_not_written", object=path, error=str(error))
            return False
        self._failed.pop(path, None)
        WRITES.labels("quota", "done").inc()
        return True

    def _tell(self, status: QuotaStatus, seen: ObservedQuota) -> None:
        """Record an Event if a quota is no longer, or not yet, in force for a reason that is new."""
        before = next((item.get("reason") for item in seen.conditions if item.get("type") == names.QUOTA_READY), None)
        if not status.ready and status.reason != before:
            ref = ObjectRef(
                api_version=_resource(status.kind).api_version,
                kind=status.kind,
                namespace=status.namespace,
                name=status.name,
                uid=seen.view.uid,
            )
            self._recorder.record(ref, "Warning", status.reason, status.message)


def _resource(kind: str) -> Resource:
    return ELASTIC_QUOTAS if kind == names.ELASTIC_QUOTA else COMPOSITE_QUOTAS


def _observed(quota: _Elastic | _Composite) -> ObservedQuota:
    status = quota.status or _Status()
    return ObservedQuota(
        view=view_quota(quota),
        version=quota.metadata.resource_version or "",
        amounts={"used": status.used or {}, "borrowed": status.borrowed or {}, "lent": status.lent or {}},
        conditions=status.conditions or (),
    )


def _changed(wanted: Amounts, seen: Mapping[str, Quantity]) -> dict[str, str | None]:
    """Return what to merge into a resource list: what differs, and null for what is no longer there."""
    written = {name: amount(name, thousandths) for name, thousandths in wanted.items()}
    return {name: text for name, text in written.items() if str(seen.get(name, "")) != text} | {
        name: None for name in seen if name not in written
    }
