"""The leader's loop: observe, settle, apply; one `Controller` per term of leadership.

Each term lists everything afresh, since the last leader may have written what an older copy does not show. Within a
term, a change that matters to decisions starts a cycle at once; changes that follow wait until as much time has passed
as the last decision took, at most 200 ms, its writes included: a quiet cluster is answered within milliseconds, a busy
one in batches. A full cycle also runs every 30 s (pain P17) and when time alone changes a decision.

Nothing here survives a fault of our own: an unexpected error ends the term and the process, and the lease goes to
another. The API server's faults are expected: they are waited out.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from kube.client import Client
from kube.events import EventRecorder
from kube.informer import Informer
from kube.lease import Leadership
from kube.resource import BUDGETS, COMPOSITE_QUOTAS, ELASTIC_QUOTAS, NAMESPACES, NODES, PODS
from policies import names
from policies.decision import Decision, Waiting
from policies.settings import DEFAULTS, Settings
from policies.settle import settle as settle_view
from policies.view import UNSCHEDULABLE_S, PodView, View
from reconciler.apply import Applier
from reconciler.changes import Changes
from reconciler.evictor import Evictor
from reconciler.health import Pulse
from reconciler.metrics import CYCLE, LEADING, WAITING
from reconciler.observe import (
    MARK,
    TOLD,
    ObservedNode,
    Picture,
    mark,
    picture,
    project_budget,
    project_node,
    project_pod,
    told,
)
from reconciler.quotas import (
    REPORT_EVERY_S,
    QuotaReport,
    project_composite,
    project_elastic,
    project_namespace,
)
from reconciler.rivals import RivalWatch
from reconciler.scribe import Scribe
from reconciler.status import TELL_AT_MOST, TELL_EVERY_S, WaitingReport

COALESCE_S: Final = 0.2
RESYNC_S: Final = 30.0
LOOK_S: Final = 0.5  # how often, while nothing happens, the loop looks whether the lease is still held


class _Part(Protocol):
    """What runs during a term, on threads of its own."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Controller:
    """One term of leadership over one cluster, ended by the loss of the lease or by `stop`.

    `write_timeout_s` bounds a write, so that one begun while the lease was held has ended before another can hold it.
    """

    def __init__(
        self,
        client: Client,
        leadership: Leadership,
        stop: threading.Event,
        pulse: Pulse,
        *,
        write_timeout_s: float,
        settings: Settings = DEFAULTS,
        settle: Callable[[View, Settings], Decision] = settle_view,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leadership, self._stop, self._pulse = leadership, stop, pulse
        self._settings, self._settle, self._now, self._clock = settings, settle, now, clock
        self._pods = Informer(client, PODS, project_pod, indexes={TOLD: told, MARK: mark})
        self._nodes = Informer(client, NODES, project_node)
        self._quotas = {
            names.ELASTIC_QUOTA: Informer(client, ELASTIC_QUOTAS, project_elastic),
            names.COMPOSITE_QUOTA: Informer(client, COMPOSITE_QUOTAS, project_composite),
        }
        self._budgets = Informer(client, BUDGETS, project_budget)
        self._namespaces = Informer(client, NAMESPACES, project_namespace)
        self._changes = Changes()
        self._pods.on_change(self._changes.pod)
        self._nodes.on_change(self._changes.node)
        for quotas in self._quotas.values():
            quotas.on_change(self._changes.quota)
        self._budgets.on_change(self._changes.budget)
        held = leadership.held
        self._recorder = EventRecorder(client, "apportion-reconciler")
        self._applier = Applier(
            client,
            self._pods,
            self._nodes,
            held=held,
            news=self._changes.news.is_set,
            now=now,
            clock=clock,
            timeout_s=write_timeout_s,
        )
        self._evictor = Evictor(
            client,
            self._pods,
            self._recorder,
            held=held,
            now=now,
            clock=clock,
            timeout_s=write_timeout_s,
            max_grace_s=settings.quota.max_grace_s,
        )
        self._quota_report = QuotaReport(self._quotas, self._namespaces, self._recorder, now=now)
        self._waiting_report = WaitingReport(self._pods, self._nodes, self._recorder, now=now, clock=clock)
        self._scribes = (
            Scribe(
                client,
                "condition",
                self._waiting_report.differences,
                every_s=TELL_EVERY_S,
                at_most=TELL_AT_MOST,
                held=held,
                clock=clock,
            ),
            Scribe(client, "quota", self._quota_report.differences, every_s=REPORT_EVERY_S, held=held, clock=clock),
        )
        self._not_before = clock()  # what changes before is for one and the same cycle
        self._claimants: Mapping[str, str] = {}  # by the last decision: those for whom victims go, with their uids
        self._rivals = RivalWatch(client, every_s=RESYNC_S, clock=clock)
        self._log = structlog.get_logger()

    def run(self) -> None:
        """Lead until the term ends."""
        self._log.info("leading")
        LEADING.set(1)
        quotas = self._quotas.values()
        parts: list[_Part] = [self._nodes, *quotas, self._budgets, self._namespaces, self._pods, *self._scribes]
        synced = [self._nodes.synced, *(informer.synced for informer in quotas), self._budgets.synced]
        synced += [self._namespaces.synced, self._pods.synced]
        for part in parts:
            part.start()
        try:
            while self._leads() and not all(event.wait(LOOK_S) for event in synced):
                pass
            self._lead()
        finally:
            LEADING.set(0)
            self._pulse.rest()
            for part in reversed(parts):
                part.stop()
            self._applier.close()
            self._evictor.close()
            self._recorder.close()
            self._log.info("no_longer_leading")

    def cycle(self) -> float:
        """Observe, settle and apply once; return the seconds after which the next cycle is due without any change."""
        self._changes.forget()
        began = self._clock()
        if rivals := self._rivals.look():
            self._refuse(rivals)
            return RESYNC_S
        with CYCLE.labels("observe").time():
            assumed = {**self._applier.repeat_unknown(), **self._told_claimants(), **self._evictor.assumed()}
            seen = self._observe(assumed)
        with CYCLE.labels("settle").time():
            decision = self._settle(seen.view, self._settings)
        if decision.cuts:
            seen, decision = self._settle_afresh(decision, assumed)
        evicting = (item.pod for item in decision.waiting if item.reason == names.EVICTING)
        self._claimants = {key: seen.pods[key].uid for key in evicting}
        self._quota_report.say(decision.quotas, seen.governed.by_namespace)
        self._say(decision.waiting)
        decided = self._clock()
        self._not_before = decided + min(COALESCE_S, decided - began)
        with CYCLE.labels("apply").time():
            # Evictions first: they are what takes longest until it is of use.
            again_s = min(self._evictor.apply(decision.evict, seen.pods), self._applier.apply(decision, seen))
        return min(again_s, RESYNC_S, *_times(seen.view))

    def _lead(self) -> None:
        due = self._clock()
        while self._wait(due):
            again_s = self.cycle()
            ended = self._clock()
            due = ended + again_s
            self._stop.wait(max(0.0, self._not_before - ended))

    def _wait(self, due: float) -> bool:
        """Wait for a change or until `due`; return whether we still lead."""
        while self._leads():
            left_s = due - self._clock()
            if left_s <= 0 or self._changes.any.wait(min(left_s, LOOK_S)):
                return True
        return False

    def _leads(self) -> bool:
        self._pulse.beat()
        return self._leadership.held() and not self._stop.is_set()

    def _observe(self, assumed: Mapping[str, PodView | ObservedNode]) -> Picture:
        seen = picture(
            self._nodes.store.list(),
            self._pods.store.list(),
            self._now(),
            assumed,
            quotas=(quota.view for quotas in self._quotas.values() for quota in quotas.store.list()),
            budgets=self._budgets.store.list(),
        )
        self._changes.heed(seen)
        return seen

    def _told_claimants(self) -> Mapping[str, PodView]:
        """Return the claimants that do not bear yet what the last decision says of them: decisions read it (ADR 6).

        The condition is written within a second, and the first of two victims may end sooner than that.
        """
        pods = ((self._pods.store.get(key), uid) for key, uid in self._claimants.items())
        return {
            pod.key: msgspec.structs.replace(pod, waiting=(names.EVICTING, pod.waiting[1]))
            for pod, uid in pods
            if pod and pod.uid == uid and pod.gated and pod.waiting[0] != names.EVICTING
        }

    def _settle_afresh(
        self, decision: Decision, assumed: Mapping[str, PodView | ObservedNode]
    ) -> tuple[Picture, Decision]:
        """Decide again with the pods of nodes that are to be cut read afresh; only those nodes may be cut then."""
        read = {cut.node for cut in decision.cuts if self._applier.read_pods_of(cut.node)}
        seen = self._observe(assumed)
        decision = self._settle(seen.view, self._settings)
        cuts = tuple(cut for cut in decision.cuts if cut.node in read)
        return seen, msgspec.structs.replace(decision, cuts=cuts)

    def _refuse(self, rivals: Sequence[str]) -> None:
        """Tell the pods that are held why nothing happens."""
        message = f"nos is still in the cluster ({', '.join(rivals)}); nothing is decided until it is uninstalled"
        gated = (pod for pod in self._pods.store.list() if pod.gated)
        self._say(tuple(Waiting(pod=pod.key, reason=names.NOS_PRESENT, message=message) for pod in gated))

    def _say(self, waiting: Sequence[Waiting]) -> None:
        self._waiting_report.say(waiting)
        WAITING.clear()
        for reason, count in Counter(item.reason for item in waiting).items():
            WAITING.labels(reason).set(count)


def _times(view: View) -> Iterator[float]:
    """Return in how many seconds time alone will change a decision: when a promise that is of no use runs out."""
    for pod in view.pods:
        if pod.released and pod.unschedulable_since is not None:
            left_s = pod.unschedulable_since + UNSCHEDULABLE_S - view.now
            if left_s > 0:
                yield left_s
