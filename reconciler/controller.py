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
from functools import partial
from typing import Final

import msgspec
import structlog

from kube.client import Client
from kube.events import EventRecorder
from kube.lease import Leadership
from policies import names
from policies.decision import Decision, Release, Waiting
from policies.memo import Memo
from policies.settings import DEFAULTS, Settings
from policies.settle import settle as settle_view
from policies.view import ORDER_S, PROMPT_S, UNSCHEDULABLE_S, PodView, View
from reconciler.apply import Applier
from reconciler.cluster import Cluster
from reconciler.evictor import Evictor
from reconciler.health import Pulse
from reconciler.metrics import CYCLE, LEADING, WAITING
from reconciler.observe import ObservedNode, Picture
from reconciler.policies import JUDGE_EVERY_S, PolicyReport
from reconciler.quotas import REPORT_EVERY_S, QuotaReport
from reconciler.rivals import RivalWatch
from reconciler.scribe import Scribe
from reconciler.status import TELL_AT_MOST, TELL_EVERY_S, WaitingReport

COALESCE_S: Final = 0.2
RESYNC_S: Final = 30.0
LOOK_S: Final = 0.5  # how often, while nothing happens, the loop looks whether the lease is still held


class Controller:
    """One term of leadership over one `cluster`, ended by the loss of the lease or by `stop`.

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
        settle: Callable[[View, Settings], Decision] | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stop, self._pulse = stop, pulse
        self._settings, self._now, self._clock = settings, now, clock
        self._settle = settle or partial(settle_view, memo=Memo())
        self._write_timeout_s = write_timeout_s
        self.cluster = seen = Cluster(client)
        self._changes = seen.changes

        def held() -> bool:
            return leadership.held() and not stop.is_set()

        self._held = held
        self._recorder = EventRecorder(client, "apportion-reconciler")
        self._applier = Applier(
            client,
            seen.pods,
            seen.nodes,
            held=held,
            news=self._changes.news.is_set,
            now=now,
            clock=clock,
            timeout_s=write_timeout_s,
        )
        self._evictor = Evictor(
            client,
            seen.pods,
            self._recorder,
            held=held,
            now=now,
            clock=clock,
            timeout_s=write_timeout_s,
            max_grace_s=settings.quota.max_grace_s,
        )
        self._quota_report = QuotaReport(seen.quotas, seen.namespaces, self._recorder, now=now)
        policy_report = PolicyReport(seen.policies, self._recorder, now=now)
        self._waiting_report = WaitingReport(seen.pods, seen.nodes, self._recorder, now=now, clock=clock)
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
            Scribe(client, "policy", policy_report.differences, every_s=JUDGE_EVERY_S, held=held, clock=clock),
        )
        self._not_before = clock()  # what changes before is for one and the same cycle
        self._claimants: Mapping[str, str] = {}  # by the last decision: those for whom victims go, with their uids
        self._rivals = RivalWatch(client, every_s=RESYNC_S, clock=clock)
        self._log = structlog.get_logger()

    def run(self) -> None:
        """Lead until the term ends."""
        self._log.info("leading")
        LEADING.set(1)
        try:
            self.cluster.start()
            for scribe in self._scribes:
                scribe.start()
            while self._leads() and not self.cluster.wait(LOOK_S):
                pass
            self._lead()
        finally:
            LEADING.set(0)
            self._pulse.rest()
            for scribe in self._scribes:
                scribe.stop()
            self._close()
            self._log.info("no_longer_leading")

    def rehearse(self) -> None:
        """Decide once and try what a leader would begin with, by a client for a dry run; all that comes of it is logged.

        The API server judges each write by the cluster as it is, not as it would be after the others.
        """
        try:
            self.cluster.start()
            while self._leads() and not self.cluster.wait(LOOK_S):
                pass
            if self._leads():
                self.cycle()
            for pod, (reason, message) in self._waiting_report.waiting.items():
                self._log.info("waits", pod=pod, reason=reason, message=message)
        finally:
            self._close()

    def cycle(self) -> float:
        """Observe, settle and apply once; return the seconds after which the next cycle is due without any change."""
        self._changes.forget()
        began = self._clock()
        if rivals := self._rivals.look():
            self._refuse(rivals)
            return RESYNC_S
        assumed = {**self._applier.repeat_unknown(), **self._told_claimants(), **self._evictor.assumed()}
        seen, decision = self._decide(assumed)
        if decision.cuts or _overlooked(decision, seen):
            seen, decision = self._decide_afresh(decision, seen, assumed)
        evicting = (item.pod for item in decision.waiting if item.reason == names.EVICTING)
        self._claimants = {key: seen.pods[key].uid for key in evicting}
        self._quota_report.say(decision.quotas, seen.governed.by_namespace)
        self._say(decision.waiting)
        decided = self._clock()
        self._not_before = decided + min(COALESCE_S, decided - began)
        with CYCLE.labels("apply").time():
            # Evictions first: they are what takes longest until it is of use.
            evict_s = self._evictor.apply(decision.evict, seen.pods)
            again_s = self._applier.apply(decision, seen, evict_s)
        return min(evict_s, again_s, RESYNC_S, *_times(seen.view))

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
        return self._held()

    def _decide(self, assumed: Mapping[str, PodView | ObservedNode]) -> tuple[Picture, Decision]:
        with CYCLE.labels("observe").time():
            seen = self.cluster.look(self._now(), assumed)
        with CYCLE.labels("settle").time():
            return seen, self._settle(seen.view, self._settings)

    def _told_claimants(self) -> Mapping[str, PodView]:
        """Return the claimants that do not bear yet what the last decision says of them: decisions read it (ADR 6).

        The condition is written within a second, and the first of two victims may end sooner than that.
        """
        pods = ((self.cluster.pods.store.get(key), uid) for key, uid in self._claimants.items())
        return {
            pod.key: msgspec.structs.replace(pod, waiting=(names.EVICTING, pod.waiting[1]))
            for pod, uid in pods
            if pod and pod.uid == uid and pod.gated and pod.waiting[0] != names.EVICTING
        }

    def _decide_afresh(
        self, decision: Decision, seen: Picture, assumed: Mapping[str, PodView | ObservedNode]
    ) -> tuple[Picture, Decision]:
        """Decide again from what the API server itself says where the watches may be too late; without it, not at all."""
        read = {cut.node for cut in decision.cuts if self.cluster.read_pods_of(cut.node, self._write_timeout_s)}
        sure = not _overlooked(decision, seen) or self.cluster.read_quotas(self._write_timeout_s)
        seen, decision = self._decide(assumed)
        cuts = tuple(cut for cut in decision.cuts if cut.node in read)
        doubtful = set() if sure else {release.pod for release in _overlooked(decision, seen)}
        ungate = tuple(release for release in decision.ungate if release.pod not in doubtful)
        return seen, msgspec.structs.replace(decision, cuts=cuts, ungate=ungate)

    def _refuse(self, rivals: Sequence[str]) -> None:
        """Tell the pods that are held why nothing happens."""
        message = f"nos is still in the cluster ({', '.join(rivals)}); nothing is decided until it is uninstalled"
        gated = (pod for pod in self.cluster.pods.store.list() if pod.gated)
        self._say(tuple(Waiting(pod=pod.key, reason=names.NOS_PRESENT, message=message) for pod in gated))

    def _close(self) -> None:
        self.cluster.stop()
        self._applier.close()
        self._evictor.close()
        self._recorder.close()

    def _say(self, waiting: Sequence[Waiting]) -> None:
        self._waiting_report.say(waiting)
        WAITING.clear()
        for reason, count in Counter(item.reason for item in waiting).items():
            WAITING.labels(reason).set(count)


def _overlooked(decision: Decision, seen: Picture) -> tuple[Release, ...]:
    """Return the releases of pods that bear a quota's label where no quota is seen.

    The webhook has labelled them, so there was a quota: either it has gone since, or it has not come to us yet, and they
    would go uncounted.
    """
    spaces = seen.governed.by_namespace
    pods = ((release, seen.pods[release.pod]) for release in decision.ungate)
    return tuple(release for release, pod in pods if pod.capacity and pod.namespace not in spaces)


def _times(view: View) -> Iterator[float]:
    """Return in how many seconds time alone will change a decision.

    That is when a promise that is of no use runs out, and when nobody waits any more for an agent that does not answer.
    """
    for node in view.nodes:
        if node.in_flight:
            since_s = view.now - node.ordered_at
            yield from (wait_s - since_s for wait_s in (PROMPT_S, ORDER_S) if 0 <= since_s < wait_s)
    for pod in view.pods:
        if pod.released and pod.unschedulable_since is not None:
            left_s = pod.unschedulable_since + UNSCHEDULABLE_S - view.now
            if left_s > 0:
                yield left_s
