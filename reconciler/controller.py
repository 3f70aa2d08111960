"""The leader's loop: observe, settle, apply; one `Controller` per term of leadership.

Each term lists everything afresh, since the last leader may have written what an older copy does not show. Within a
term, a change that matters to decisions starts a cycle at once; changes that follow wait until as much time has passed
as the last cycle took, at most 200 ms: a quiet cluster is answered within milliseconds, a busy one in batches. A full
cycle also runs every 30 s (pain P17) and when time alone changes a decision.

Nothing here survives a fault of our own: an unexpected error ends the term and the process, and the lease goes to
another. The API server's faults are expected: they are waited out.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from kube.client import Client
from kube.informer import Informer
from kube.lease import Leadership
from kube.resource import NODES, PODS
from policies import names
from policies.decision import Decision, Waiting
from policies.settle import UNSCHEDULABLE_S
from policies.settle import settle as settle_view
from policies.view import PodView, View
from reconciler.apply import Applier
from reconciler.health import Pulse
from reconciler.metrics import CYCLE, LEADING, WAITING
from reconciler.observe import (
    TOLD,
    ObservedNode,
    Picture,
    is_bystander,
    picture,
    project_node,
    project_pod,
    same_pod,
    told,
)
from reconciler.rivals import RivalWatch
from reconciler.status import StatusWriter

COALESCE_S: Final = 0.2
RESYNC_S: Final = 30.0
LOOK_S: Final = 0.5  # how often, while nothing happens, the loop looks whether the lease is still held


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
        settle: Callable[[View], Decision] = settle_view,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leadership, self._stop, self._pulse = leadership, stop, pulse
        self._settle, self._now, self._clock = settle, now, clock
        self._pods = Informer(client, PODS, project_pod, indexes={TOLD: told})
        self._nodes = Informer(client, NODES, project_node)
        self._pods.on_change(self._pod_changed)
        self._nodes.on_change(self._node_changed)
        self._applier = Applier(
            client, self._pods, self._nodes, held=leadership.held, clock=clock, timeout_s=write_timeout_s
        )
        self._status = StatusWriter(client, self._pods, self._nodes, held=leadership.held, now=now, clock=clock)
        self._changed = threading.Event()
        self._managed: frozenset[str] = frozenset()
        self._rivals = RivalWatch(client, every_s=RESYNC_S, clock=clock)
        self._log = structlog.get_logger()

    def run(self) -> None:
        """Lead until the term ends."""
        self._log.info("leading")
        LEADING.set(1)
        parts = (self._pods, self._nodes, self._status)
        for part in parts:
            part.start()
        try:
            while self._leads() and not (self._pods.synced.wait(LOOK_S) and self._nodes.synced.wait(LOOK_S)):
                pass
            self._lead()
        finally:
            LEADING.set(0)
            self._pulse.rest()
            for part in reversed(parts):
                part.stop()
            self._applier.close()
            self._log.info("no_longer_leading")

    def cycle(self) -> float:
        """Observe, settle and apply once; return the seconds after which the next cycle is due without any change."""
        self._changed.clear()  # first: what changes from now on is for the next cycle
        if rivals := self._rivals.look():
            self._refuse(rivals)
            return RESYNC_S
        with CYCLE.labels("observe").time():
            assumed = self._applier.repeat_unknown()
            seen = self._observe(assumed)
        with CYCLE.labels("settle").time():
            decision = self._settle(seen.view)
        if decision.cuts:
            seen, decision = self._settle_afresh(decision, assumed)
        with CYCLE.labels("apply").time():
            again_s = self._applier.apply(decision, seen)
        self._say(decision.waiting)
        return min(again_s, RESYNC_S, *_times(seen.view))

    def _lead(self) -> None:
        due = self._clock()
        while self._wait(due):
            began = self._clock()
            again_s = self.cycle()
            ended = self._clock()
            due = ended + again_s
            self._stop.wait(min(COALESCE_S, ended - began))

    def _wait(self, due: float) -> bool:
        """Wait for a change or until `due`; return whether we still lead."""
        while self._leads():
            left_s = due - self._clock()
            if left_s <= 0 or self._changed.wait(min(left_s, LOOK_S)):
                return True
        return False

    def _leads(self) -> bool:
        self._pulse.beat()
        return self._leadership.held() and not self._stop.is_set()

    def _observe(self, assumed: Mapping[str, PodView | ObservedNode]) -> Picture:
        seen = picture(self._nodes.store.list(), self._pods.store.list(), self._now(), assumed)
        self._managed = frozenset(node.name for node in seen.view.nodes if node.managed)
        return seen

    def _settle_afresh(
        self, decision: Decision, assumed: Mapping[str, PodView | ObservedNode]
    ) -> tuple[Picture, Decision]:
        """Decide again with the pods of nodes that are to be cut read afresh; only those nodes may be cut then."""
        read = {cut.node for cut in decision.cuts if self._applier.read_pods_of(cut.node)}
        seen = self._observe(assumed)
        decision = self._settle(seen.view)
        cuts = tuple(cut for cut in decision.cuts if cut.node in read)
        return seen, msgspec.structs.replace(decision, cuts=cuts)

    def _refuse(self, rivals: Sequence[str]) -> None:
        """Tell the pods that are held why nothing happens."""
        message = f"nos is still in the cluster ({', '.join(rivals)}); nothing is decided until it is uninstalled"
        gated = (pod for pod in self._pods.store.list() if pod.gated)
        self._say(tuple(Waiting(pod=pod.key, reason=names.NOS_PRESENT, message=message) for pod in gated))

    def _say(self, waiting: Sequence[Waiting]) -> None:
        self._status.say(waiting)
        WAITING.clear()
        for reason, count in Counter(item.reason for item in waiting).items():
            WAITING.labels(reason).set(count)

    def _pod_changed(self, _key: str, old: PodView | None, new: PodView | None) -> None:
        if old and new and same_pod(old, new):
            return
        if any(pod and (pod.node in self._managed or not is_bystander(pod)) for pod in (old, new)):
            self._changed.set()

    def _node_changed(self, _key: str, old: ObservedNode | None, new: ObservedNode | None) -> None:
        if not (old and new and old.view == new.view):
            self._changed.set()


def _times(view: View) -> Iterator[float]:
    """Return in how many seconds time alone will change a decision: when a promise that is of no use runs out."""
    for pod in view.pods:
        if pod.released and pod.unschedulable_since is not None:
            left_s = pod.unschedulable_since + UNSCHEDULABLE_S - view.now
            if left_s > 0:
                yield left_s
