"""What is said on the objects themselves: why pods wait and which nodes are left alone; a condition, one Event (L01).

What should be said is compared with what the object says; a `Scribe` writes the differences. A pod that waits for less
than a second, as most do for a cut, is not written to at all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from kube.client import STRATEGIC_PATCH
from kube.events import EventRecorder, ObjectRef
from kube.informer import Informer
from kube.resource import NODES, PODS, Resource
from policies import names
from policies.decision import Waiting
from policies.timestamps import timestamp
from policies.view import PodView
from reconciler.conditions import MESSAGE
from reconciler.observe import TOLD, ObservedNode
from reconciler.scribe import Difference

TELL_EVERY_S: Final = 1.0
TELL_AT_MOST: Final = 25  # so many at a time
SAME_REASON_S: Final = 30.0  # before a message is written again of which only the numbers have changed

Said = tuple[str, str]
"""Reason and message; two empty texts say that nothing is amiss."""

NOTHING: Final[Said] = ("", "")
_ON_ITS_WAY: Final = (names.BEING_CUT, names.OTHERS_FIRST, names.PROMISED)  # reasons that pass by themselves
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


class WaitingReport:
    """Compares what is true of pods and nodes with what is said of them.

    `say` costs nothing and may be called by any thread. `now` is in seconds since the epoch, `clock` is monotonic.

    Attributes:
        waiting: reason and message of all pods that wait, in the order in which they should be told.
    """

    def __init__(
        self,
        pods: Informer[PodView],
        nodes: Informer[ObservedNode],
        recorder: EventRecorder,
        *,
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._pods, self._nodes, self._recorder, self._now, self._clock = pods, nodes, recorder, now, clock
        self.waiting: Mapping[str, Said] = {}
        self._decided = False
        self._last: Mapping[str, Said] = {}  # what was to be said in the last round
        self._written: dict[str, float] = {}  # pod -> when its condition was written last

    def say(self, waiting: Iterable[Waiting]) -> None:
        """Take all pods that wait, in the order in which they should be told."""
        self.waiting = {item.pod: (item.reason, item.message[:MESSAGE]) for item in waiting}
        self._decided = True

    def differences(self) -> Iterator[Difference]:
        """Yield what is to be written in this round; there is one every second."""
        if not self._decided:
            return
        waiting = self.waiting
        last, self._last = self._last, waiting
        self._written = {key: at for key, at in self._written.items() if key in waiting}
        yield from self._about_nodes()
        yield from self._about_pods(waiting, last)

    def _about_pods(self, waiting: Mapping[str, Said], last: Mapping[str, Said]) -> Iterator[Difference]:
        now = self._clock()
        for key, said in sorted(waiting.items(), key=lambda item: item[1][0] != names.EVICTING):
            pod = self._pods.store.get(key)
            if pod is None or pod.waiting == said:
                continue
            # Most waits pass within a second. That victims go for a pod is written at once: decisions read it (ADR 6).
            if last.get(key, NOTHING)[0] != said[0] != names.EVICTING:
                continue
            if pod.waiting[0] != said[0] or now - self._written.get(key, 0.0) >= SAME_REASON_S:
                yield self._difference(_about_pod(pod, said))
        for pod in self._pods.store.by_index(TOLD, TOLD):
            if pod.key not in waiting and not pod.gated:
                yield self._difference(_about_pod(pod, NOTHING))

    def _about_nodes(self) -> Iterator[Difference]:
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
                telling = Telling(resource=NODES, ref=ref, condition=condition, said=said, was=node.told)
                yield self._difference(telling)

    def _difference(self, telling: Telling) -> Difference:
        ref = telling.ref
        return Difference(
            path=telling.resource.path(ref.namespace or None, ref.name, "status"),
            patch=STRATEGIC_PATCH,
            body=status_patch(telling, self._now()),
            written=partial(self._written_down, telling),
        )

    def _written_down(self, telling: Telling, answer: bytes) -> None:
        """Record an Event if the reason is new."""
        ref, (reason, message) = telling.ref, telling.said
        self._written[f"{ref.namespace}/{ref.name}"] = self._clock()
        (self._pods if telling.resource == PODS else self._nodes).lay_over(answer)
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
