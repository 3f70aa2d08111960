"""Says on the objects themselves why pods wait and which nodes are left alone: a condition, and one Event (pain L01).

Runs beside the loop on a thread of its own, once a second, a few writes at a time, so that it never delays a grant.
It compares what should be said with what the object says and writes only the difference: nothing is remembered, a
restart repeats nothing. A pod that waits for less than a second, as most do for a cut, is not written to at all.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
import structlog

from kube.client import Client
from kube.errors import ApiError, Unreachable
from kube.events import EventRecorder, ObjectRef
from kube.informer import Informer
from kube.resource import NODES, PODS, Resource
from policies import names
from policies.decision import Waiting
from policies.timestamps import timestamp
from policies.view import PodView
from reconciler.observe import TOLD, ObservedNode

TICK_S: Final = 1.0
WRITES_A_TICK: Final = 25
SAME_REASON_S: Final = 30.0  # before a message is written again of which only the numbers have changed
MESSAGE: Final = 1024  # characters; a condition may hold more, but people read it in a terminal

Said = tuple[str, str]
"""Reason and message; two empty texts say that nothing is amiss."""

NOTHING: Final[Said] = ("", "")
_ON_ITS_WAY: Final = (names.BEING_CUT, names.PROMISED)  # reasons that pass by themselves
FINE: Final = "AsExpected"  # the reason of a condition that is True


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written on an object.

    Attributes:
        resource: pods or nodes.
        ref: the object.
        condition: type of the condition.
        said: reason and message that it should have.
        was: reason and message that it has.
    """

    resource: Resource
    ref: ObjectRef
    condition: str
    said: Said
    was: Said


class StatusWriter:
    """Keeps the conditions of pods and nodes true during one term of leadership.

    `say` may be called by any thread and costs nothing; `tick`, on a thread of its own once started, does the work.
    """

    def __init__(
        self,
        client: Client,
        pods: Informer[PodView],
        nodes: Informer[ObservedNode],
        *,
        held: Callable[[], bool],
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._pods, self._nodes = client, pods, nodes
        self._held, self._now, self._clock = held, now, clock
        self._recorder = EventRecorder(client, "apportion-reconciler")
        self._waiting: Mapping[str, Said] | None = None
        self._last_tick: Mapping[str, Said] = {}
        self._written: dict[str, float] = {}  # pod -> when its condition was written last
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Begin to write, once a second."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no more writes, and wait for those under way."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._recorder.close()

    def say(self, waiting: Iterable[Waiting]) -> None:
        """Take all pods that wait, in the order in which they should be told."""
        self._waiting = {item.pod: (item.reason, item.message[:MESSAGE]) for item in waiting}

    def tick(self) -> None:
        """Write the differences that there are, as many as one tick may."""
        if (waiting := self._waiting) is None:  # nothing has been decided yet
            return
        for left, telling in enumerate([*self._about_nodes(), *self._about_pods(waiting)]):
            if left == WRITES_A_TICK or self._stopped.is_set() or not self._held():
                break
            self._tell(telling)
        self._last_tick = waiting
        self._written = {key: at for key, at in self._written.items() if key in waiting}

    def _run(self) -> None:
        while not self._stopped.wait(TICK_S):
            try:
                self.tick()
            except Unreachable as error:
                self._log.warning("status_not_written", error=str(error))

    def _about_pods(self, waiting: Mapping[str, Said]) -> Iterator[Telling]:
        now = self._clock()
        for key, said in sorted(waiting.items(), key=lambda item: item[1][0] != names.EVICTING):
            pod = self._pods.store.get(key)
            if pod is None or pod.waiting == said:
                continue
            # Most waits pass within a second. That victims go for a pod is written at once: decisions read it (ADR 6).
            if self._last_tick.get(key, NOTHING)[0] != said[0] != names.EVICTING:
                continue
            if pod.waiting[0] != said[0] or now - self._written.get(key, 0.0) >= SAME_REASON_S:
                yield _about_pod(pod, said)
        for pod in self._pods.store.by_index(TOLD, TOLD):
            if pod.key not in waiting and not pod.gated:
                yield _about_pod(pod, NOTHING)

    def _about_nodes(self) -> Iterator[Telling]:
        """Yield what is to be said of nodes without an agent, which cannot say it themselves."""
        for node in self._nodes.store.list():
            faults = node.view.faults if node.view.managed and not node.agent else ()
            said = (names.NOT_UNDERSTOOD, "; ".join(faults)[:MESSAGE]) if faults else NOTHING
            if node.told[0] not in (NOTHING[0], names.NOT_UNDERSTOOD):
                continue  # an agent is there after all, and has more to say
            if said != node.told:
                # Events of nodes bear the name as uid, as the kubelet writes them: that is what `kubectl describe` looks for.
                ref = ObjectRef(api_version="v1", kind="Node", name=node.view.name, uid=node.view.name)
                condition = names.PARTITIONING_CONDITION
                yield Telling(resource=NODES, ref=ref, condition=condition, said=said, was=node.told)

    def _tell(self, telling: Telling) -> None:
        """Write a condition, and an Event if its reason is new. Raises Unreachable: then the others need not be tried."""
        ref, (reason, message) = telling.ref, telling.said
        path = telling.resource.path(ref.namespace or None, ref.name, "status")
        try:
            answer = self._client.strategic_patch(path, status_patch(telling, self._now()))
            (self._pods if telling.resource == PODS else self._nodes).lay_over(answer)
        except (ApiError, msgspec.DecodeError) as error:
            self._log.warning("status_not_written", object=path, error=str(error))
            return
        self._written[f"{ref.namespace}/{ref.name}"] = self._clock()
        if reason and reason not in (telling.was[0], names.EVICTING):  # of evictions the evictor tells
            self._recorder.record(ref, "Normal" if reason in _ON_ITS_WAY else "Warning", reason, message)


def status_patch(telling: Telling, now: float) -> Mapping[str, object]:
    """Return the strategic merge patch of an object's status that brings its condition up to date."""
    reason, message = telling.said
    condition = {
        "type": telling.condition,
        "status": "False" if reason else "True",
        "reason": reason or FINE,
        "message": message,
    }
    if bool(reason) != bool(telling.was[0]):  # else the time of the last transition stays, as merged
        condition["lastTransitionTime"] = timestamp(now)
    precondition = {"uid": telling.ref.uid} if telling.resource == PODS else {}
    return {"metadata": precondition, "status": {"conditions": [condition]}}


def _about_pod(pod: PodView, said: Said) -> Telling:
    ref = ObjectRef(api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
    return Telling(resource=PODS, ref=ref, condition=names.ADMITTED_CONDITION, said=said, was=pod.waiting)
