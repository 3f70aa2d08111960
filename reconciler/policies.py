"""What is told of policies: the condition Ready of each, and an Event when one does not hold for a reason that is new.

Nothing is decided here: which policy governs a namespace, and what is wrong with one, the pure part says of all of them
together. A bad one has its condition, and the others have theirs (pain Q37).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from kube.client import MERGE_PATCH
from kube.events import EventRecorder
from kube.informer import Informer
from kube.resource import GPU_POLICIES
from policies import names
from policies.gpupolicy import Policies, view_policy
from policies.model import GpuPolicy
from policies.policy import PolicyView
from reconciler.conditions import Condition, record_if_news, with_ready
from reconciler.scribe import Difference

JUDGE_EVERY_S: Final = 1.0  # nobody waits for a condition: the webhook judges by the policies themselves

_READY: Final = names.READY, ""


class ObservedPolicy(msgspec.Struct, frozen=True):
    """A policy, and what stands in its status.

    Attributes:
        view: what decisions see of it.
        version: its resourceVersion, the precondition of writes.
        conditions: all of them, those of others included.
    """

    view: PolicyView
    version: str
    conditions: tuple[Condition, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[dict[str, object], ...] | None = None


class _Policy(GpuPolicy, frozen=True):
    status: _Status | None = None


_POLICY: Final = msgspec.json.Decoder(_Policy)


def project_policy(raw: bytes) -> ObservedPolicy:
    """Return what is kept of a policy. Raises msgspec.DecodeError if it cannot be read."""
    policy = _POLICY.decode(raw)
    return ObservedPolicy(
        view=view_policy(policy),
        version=policy.metadata.resource_version or "",
        conditions=(policy.status or _Status()).conditions or (),
    )


class PolicyReport:
    """Compares what is true of policies with what is told of them. `now` is in seconds since the epoch."""

    def __init__(
        self, policies: Informer[ObservedPolicy], recorder: EventRecorder, *, now: Callable[[], float]
    ) -> None:
        self._policies, self._recorder, self._now = policies, recorder, now

    def differences(self) -> Iterator[Difference]:
        """Yield what is to be written."""
        if not self._policies.synced.is_set():
            return  # who governs a namespace is known only of all policies together
        everybody = self._policies.store.list()
        unready = Policies(seen.view for seen in everybody).unready
        for seen in everybody:
            view = seen.view
            reason, message = unready.get(view.title, _READY)
            conditions = with_ready(
                seen.conditions,
                ready=view.title not in unready,
                reason=reason,
                message=message,
                generation=view.generation,
                now=self._now(),
            )
            if conditions is not None:
                yield Difference(
                    path=GPU_POLICIES.path(view.namespace, view.name, "status"),
                    patch=MERGE_PATCH,
                    body={"metadata": {"resourceVersion": seen.version}, "status": {"conditions": conditions}},
                    written=partial(self._written, seen, reason, message),
                )

    def _written(self, seen: ObservedPolicy, reason: str, message: str, answer: bytes) -> None:
        self._policies.lay_over(answer)
        record_if_news(
            self._recorder,
            GPU_POLICIES,
            names.GPU_POLICY,
            seen.view,
            seen=seen.conditions,
            reason=reason,
            message=message,
        )
