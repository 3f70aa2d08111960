"""What is told of quotas: their status, and the label of the namespaces that they govern.

The status is what the webhook estimates from and what people read; the label is how the API server knows which pods to
show to the webhook. Each is compared with what stands there; a `Scribe` writes the differences.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from kube.client import MERGE_PATCH
from kube.events import EventRecorder
from kube.informer import Informer
from kube.resource import COMPOSITE_QUOTAS, ELASTIC_QUOTAS, NAMESPACES, Resource
from policies import names
from policies.decision import QuotaStatus
from policies.governing import QuotaView, view_quota
from policies.model import CompositeElasticQuota, ElasticQuota, Namespace
from policies.quantity import Amounts, Quantity, amount
from reconciler.conditions import Condition, record_if_news, with_ready
from reconciler.patches import Body
from reconciler.scribe import Difference

REPORT_EVERY_S: Final = 0.25  # the webhook's estimates are no older, and a busy quota is written 4 times a second


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
    conditions = with_ready(
        seen.conditions,
        ready=wanted.ready,
        reason=wanted.reason,
        message=wanted.message,
        generation=wanted.generation,
        now=now,
    )
    if conditions is not None:
        changes["conditions"] = conditions
    return {"metadata": {"resourceVersion": seen.version}, "status": changes} if changes else None


class QuotaReport:
    """Compares what is true of quotas with what is told of them. `say` costs nothing and may be called by any thread."""

    def __init__(
        self,
        quotas: Mapping[str, Informer[ObservedQuota]],
        namespaces: Informer[str],
        recorder: EventRecorder,
        *,
        now: Callable[[], float],
    ) -> None:
        """Take the informers of quotas by kind; `now` is in seconds since the epoch."""
        self._quotas, self._namespaces, self._recorder, self._now = quotas, namespaces, recorder, now
        self._said: tuple[Sequence[QuotaStatus], Mapping[str, QuotaView]] = (), {}

    def say(self, statuses: Sequence[QuotaStatus], by_namespace: Mapping[str, QuotaView]) -> None:
        """Take what is true of every quota, and which of them governs (or would govern) which namespace."""
        self._said = statuses, by_namespace

    def differences(self) -> Iterator[Difference]:
        """Yield what is to be written: labels first, since pods that nobody shows us are the more pressing matter."""
        statuses, by_namespace = self._said
        for name, label in self._namespaces.store.items():
            quota = by_namespace.get(name)
            if label != (wanted := quota.name if quota else ""):
                yield Difference(
                    path=NAMESPACES.path(name=name),
                    patch=MERGE_PATCH,
                    body={"metadata": {"labels": {names.QUOTA_LABEL: wanted or None}}},
                    written=self._namespaces.lay_over,
                )
        for status in statuses:
            seen = self._quotas[status.kind].store.get(status.key)
            # One that has been edited since it was judged is left to the next decision.
            if seen is None or seen.view.generation != status.generation:
                continue
            if (body := status_patch(status, seen, self._now())) is not None:
                path = _resource(status.kind).path(status.namespace, status.name, "status")
                written = partial(self._written, status, seen)
                yield Difference(path=path, patch=MERGE_PATCH, body=body, written=written)

    def _written(self, status: QuotaStatus, seen: ObservedQuota, answer: bytes) -> None:
        self._quotas[status.kind].lay_over(answer)
        record_if_news(
            self._recorder,
            _resource(status.kind),
            status.kind,
            seen.view,
            seen=seen.conditions,
            reason=status.reason,
            message=status.message,
        )


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
