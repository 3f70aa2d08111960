"""The cluster in memory and its clock: things appear, are admitted, wait, run and end, until nothing more happens.

At each moment the world settles, acts on the decision, schedules, and again, until nothing changes; then the clock
moves to the next thing that happens. Pods are kept as the raw objects that a cluster would hold, and change by the same
patches; nodes are kept as decisions see them.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from console.simulation.devices import hold, let_go, obey, settle_in
from console.simulation.disruption import SimulatedBudget
from console.simulation.scheduler import add, choose, usage
from console.submitted import Raw
from policies.annotations import Layouts
from policies.decision import Decision, Evict, Layout, Planned, Waiting
from policies.governing import QuotaView
from policies.model import Pod
from policies.policy import PolicyView
from policies.settle import settle
from policies.timestamps import timestamp
from policies.view import UNSCHEDULABLE_S, NodeView, PodView, View, view_pod
from reconciler.patches import mark_patch, relabel_patch, release_patch

ROUNDS: Final = 1000  # at one moment; a cluster that has not come to rest by then never will


class Restless(Exception):  # noqa: N818 (named for what happened)
    """The decisions of one moment undo each other without end: a fault of ours."""


class Event(msgspec.Struct, frozen=True):
    """Something that happened, `at` seconds after the start.

    `what` is `denied`, `released`, `started`, `finished`, `evicted`, `ended` (after that) or `created` (by its owner,
    again) of a pod, `withdrawn` or `cut` of a node's boards.
    """

    at: float
    what: str
    object: str
    why: str


class SimulatedPod(msgspec.Struct, kw_only=True):
    """A pod during its life.

    Attributes:
        key: namespace/name.
        raw: the object as the cluster has it.
        view: what decisions see of it.
        duration_s: how long it runs; None: for ever.
        denied: why admission refused it; empty if it did not.
        warnings: of admission.
        reason: why it waits, as last decided.
        evicted_for: namespace/name of the pod for which it was last evicted; stays when it is made again.
        gone: evicted, and nobody makes it again.
    """

    key: str
    raw: Raw
    view: PodView
    duration_s: float | None = None
    denied: str = ""
    warnings: tuple[str, ...] = ()
    reason: str = ""
    evicted_for: str | None = None
    gone: bool = False

    @property
    def outcome(self) -> str:
        """Return `denied`, `evicted`, `finished`, `running` or `waiting`."""
        if self.denied:
            return "denied"
        if self.gone:
            return "evicted"
        if self.view.finished:
            return "finished"
        return "running" if self.view.node else "waiting"


class World:
    """A cluster that starts at `start` seconds since the epoch, empty.

    `again` makes a pod (namespace/name) as its owner would make it at so many seconds after the start.
    """

    def __init__(self, start: float, again: Callable[[str, float], SimulatedPod]) -> None:
        self.quotas: list[QuotaView] = []
        self.policies: list[PolicyView] = []
        self._budgets: dict[str, SimulatedBudget] = {}
        self._again = again
        self.nodes: dict[str, NodeView] = {}
        self.pods: dict[str, SimulatedPod] = {}
        self.events: list[Event] = []
        self._start, self._now = start, 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._planned: dict[str, Planned] = {}
        self._writes = 0

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen so many seconds after the start; things of one moment happen in the order given."""
        self._writes += 1
        heapq.heappush(self._agenda, (seconds, self._writes, action))

    def run(self) -> None:
        """Let time pass until nothing more happens. Raises Restless."""
        while self._agenda:
            self.begin()
            self._come_to_rest()

    def begin(self) -> None:
        """Let all that happens next happen, if anything does; nothing is decided."""
        if self._agenda:
            self._now = self._agenda[0][0]
        while self._agenda and self._agenda[0][0] == self._now:
            heapq.heappop(self._agenda)[2]()

    def arrive(self, nodes: Sequence[NodeView], bound: Sequence[SimulatedPod]) -> None:
        """Let nodes appear, and pods that are bound or have ended; the agents learn what the pods hold."""
        for pod in bound:
            self._take_in(pod)
        for node in nodes:
            there = [pod.view for pod in self.pods.values() if pod.view.holds and pod.view.node == node.name]
            self.nodes[node.name] = settle_in(node, there)
        new = {node.name for node in nodes}
        for pod in bound:
            if pod.view.holds and pod.view.node in self.nodes.keys() - new:
                self.nodes[pod.view.node] = hold(self.nodes[pod.view.node], pod.view, claimed=True)

    def govern(
        self, quotas: Iterable[QuotaView], policies: Iterable[PolicyView], budgets: Iterable[SimulatedBudget]
    ) -> None:
        """Let quotas, policies and budgets appear."""
        self.quotas += quotas
        self.policies += policies
        self._budgets |= {budget.view.key: budget for budget in budgets}

    def submit(self, pod: SimulatedPod) -> None:
        """Let a pod appear that has passed admission, or was denied."""
        self._take_in(pod)
        if pod.denied:
            self._note("denied", pod.key, pod.denied)

    def end(self, key: str) -> None:
        """Let a pod finish; its slices are free again."""
        pod = self.pods[key]
        if pod.view.finished:
            return
        self._let_go(pod)
        self._note("finished", key, "")

    def leave(self, key: str) -> None:
        """Let a pod end that is being deleted; its owner makes an evicted one again."""
        pod = self.pods[key]
        if pod.view.finished or not pod.view.evicted_for:
            self.end(key)
            return
        pod.evicted_for = pod.view.evicted_for
        self._note("ended", key, f"evicted for {pod.evicted_for}")
        self._come_back(pod)

    def _come_back(self, pod: SimulatedPod) -> None:
        """Let an evicted pod go; its owner makes it again."""
        self._let_go(pod)
        key = pod.key
        if pod.view.controlled:
            successor = self._again(key, self._now)
            self.submit(replace(successor, evicted_for=pod.evicted_for))
            self._note("created", key, "its owner has made it again")
        else:
            pod.gone = True

    def _let_go(self, pod: SimulatedPod) -> None:
        if pod.view.node in self.nodes:
            self.nodes[pod.view.node] = let_go(self.nodes[pod.view.node], pod.key)
        self._write(pod, {"status": {"phase": "Succeeded"}})

    def _take_in(self, pod: SimulatedPod) -> None:
        self.pods[pod.key] = pod
        if not pod.denied:
            self._write(pod, {})
        if pod.view.holds:
            self._will_end(pod)

    def _will_end(self, pod: SimulatedPod) -> None:
        if pod.duration_s is not None:
            self.at(self._now + pod.duration_s, lambda: None if self.pods[pod.key] is not pod else self.end(pod.key))

    def _come_to_rest(self) -> None:
        for _ in range(ROUNDS):
            self.nodes = {name: obey(node) for name, node in self.nodes.items()}
            decision = settle(self.view())
            self._tell(decision.waiting)
            acted = self._act(decision)
            if not self._schedule() and not acted:
                self._remember(decision.waiting)
                return
        raise Restless(f"at {self._now:g} s the decisions have not come to rest after {ROUNDS} rounds")

    def view(self) -> View:
        """Return what decisions see."""
        pods = tuple(pod.view for pod in self.pods.values() if not pod.denied and not pod.view.finished)
        return View(
            nodes=tuple(self.nodes.values()),
            pods=pods,
            now=self._start + self._now,
            quotas=tuple(self.quotas),
            policies=tuple(self.policies),
            budgets=tuple(budget.seen(pods) for budget in self._budgets.values()),
        )

    def _act(self, decision: Decision) -> bool:
        """Carry out a decision; return whether there was anything to do."""
        self._planned |= decision.planned
        for layout in decision.layouts:
            self._order(layout)
        for cut in decision.cuts:
            self.nodes[cut.node] = replace(self.nodes[cut.node], cut=cut.plan)
            self._note("cut", cut.node, _layout_text(self.nodes[cut.node].spec))
        for release in decision.ungate:
            pod = self.pods[release.pod]
            self._write(pod, release_patch(pod.view, release, self._start + self._now))
            self._note("released", release.pod, f"kept off {', '.join(release.avoid)}" if release.avoid else "")
        for relabel in decision.relabel:
            self._write(self.pods[relabel.pod], relabel_patch(relabel))
        for evict in decision.evict:
            self._evict(evict)
        return bool(decision.layouts or decision.cuts or decision.ungate or decision.relabel or decision.evict)

    def _evict(self, evict: Evict) -> None:
        pod = self.pods[evict.pod]
        if not evict.claimant:  # it runs nowhere, so it goes at once, whatever budgets say
            self._note("evicted", evict.pod, evict.message)
            self._come_back(pod)
            return
        gone = timestamp(self._start + self._now + evict.grace_s)
        for budget in list(self._budgets.values()):
            if budget.view.covers(pod.view.namespace, pod.view.labels):
                self._budgets[budget.view.key] = budget.spent()
        self._write(pod, mark_patch(pod.view, evict.claimant))
        self._write(pod, {"metadata": {"deletionTimestamp": gone, "deletionGracePeriodSeconds": evict.grace_s}})
        pod.evicted_for = evict.claimant
        self._note("evicted", evict.pod, evict.message)
        self.at(self._now + evict.grace_s, lambda: None if self.pods[evict.pod] is not pod else self.leave(evict.pod))

    def _order(self, layout: Layout) -> None:
        node = self.nodes[layout.node]
        self.nodes[layout.node] = replace(node, spec=layout.target, spec_plan=node.next_plan(self._start + self._now))
        self._note("withdrawn" if layout.destroys else "cut", layout.node, _layout_text(layout.target))

    def _schedule(self) -> bool:
        """Bind what can be bound, in the scheduler's order; return whether anything has changed."""
        changed = False
        queue = [pod for pod in self.pods.values() if pod.view.released and not pod.denied]
        taken = usage(pod.view for pod in self.pods.values() if pod.view.holds) if queue else {}
        for pod in sorted(queue, key=lambda pod: (-pod.view.priority, pod.view.created, pod.key)):
            planned = self._planned.get(pod.key)
            node, why = choose(pod.view, self.nodes, taken, planned.node if planned else "")
            if node:
                self._bind(pod, node, planned)
                add(taken, pod.view)
                changed = True
            elif pod.view.unschedulable_since is None:
                self._call_unschedulable(pod, why)
                changed = True
            pod.reason = why
        return changed

    def _bind(self, pod: SimulatedPod, node: str, planned: Planned | None) -> None:
        self._write(pod, {"spec": {"nodeName": node}, "status": {"phase": "Running", "conditions": None}})
        hints = planned.slices if planned and planned.node == node else ()
        self.nodes[node] = hold(self.nodes[node], pod.view, hints)
        self._note("started", pod.key, f"on {node}")
        self._will_end(pod)

    def _call_unschedulable(self, pod: SimulatedPod, why: str) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastTransitionTime": timestamp(self._start + self._now),
        }
        self._write(pod, {"status": {"conditions": [condition]}})
        self.at(self._now + UNSCHEDULABLE_S, lambda: None)

    def _remember(self, waiting: Iterable[Waiting]) -> None:
        reasons = {item.pod: item.message for item in waiting}
        for pod in self.pods.values():
            if pod.outcome == "waiting":
                pod.reason = reasons.get(pod.key, pod.reason)

    def _tell(self, waiting: Iterable[Waiting]) -> None:
        """Write on pods why they wait, as the condition that decisions read."""
        reasons = {item.pod: (item.reason, item.message) for item in waiting}
        for pod in self.pods.values():
            pod.view = replace(pod.view, waiting=reasons.get(pod.key, ("", "")))

    def _write(self, pod: SimulatedPod, patch: Mapping[str, object]) -> None:
        """Change a pod as the API server does by a merge patch."""
        self._writes += 1
        raw = merged(merged(pod.raw, patch), {"metadata": {"resourceVersion": str(self._writes)}})
        pod.raw, pod.view = raw, replace(view_pod(msgspec.convert(raw, Pod)), waiting=pod.view.waiting)

    def _note(self, what: str, about: str, why: str) -> None:
        self.events.append(Event(self._now, what, about, why))


def merged(target: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, object]:
    """Return an object with a merge patch applied (RFC 7386); neither is changed."""
    result = {key: value for key, value in target.items() if patch.get(key, value) is not None}
    for key, value in patch.items():
        if isinstance(value, Mapping):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return result


def _layout_text(layouts: Layouts) -> str:
    return "; ".join(
        f"GPU {index}: " + (", ".join(f"{item.profile}" for item in layout) or "nothing")
        for index, layout in sorted(layouts.items())
    )
