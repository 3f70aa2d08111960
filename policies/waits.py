"""Why each pod waits that a settlement does not release, and what it waits for: quota, room, a cut, others' ends."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from policies import names, reasons
from policies.annotations import Placement
from policies.decision import Waiting
from policies.guests import Guest, Kind
from policies.hindrances import silence
from policies.nodesets import Nodes, nodes_in
from policies.plan import Plan
from policies.promise import Claim, Role
from policies.shortages import number_of
from policies.timestamps import timestamp
from policies.view import UNSCHEDULABLE_S, NodeView, PodView
from policies.walk import Walk


@dataclass(eq=False, slots=True)
class Waits:
    """The reasons of one settlement.

    Attributes:
        walk: what has been found on the way through the queue.
        plan: the plan, with nothing kept any more.
        queue: the pods in their order.
        nodes: every node.
        later: who has been given something, and is not released now.
        ordered: the nodes for which a new layout is ordered now.
        behind: who could have what is free, and waits until a node has been cut for others.
        yielding: who could have what is free, and could take on a node what others miss then for whom that is being cut.
    """

    walk: Walk
    plan: Plan
    queue: Sequence[PodView]
    nodes: Sequence[NodeView]
    later: Mapping[str, Claim]
    ordered: Collection[str]
    behind: Collection[str] = ()
    yielding: Mapping[str, int] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _homes: dict[int, str] = field(default_factory=dict)
    _keeping: Nodes = 0
    _passed: int = 0
    _told: dict[Kind, reasons.Reason] = field(default_factory=dict)
    _lates: dict[str, str] = field(default_factory=dict)
    _coming: Counter[int] | None = None
    _held: Mapping[str, str] | None = None
    _refusals: reasons.Refusals | None = None
    _placements: Mapping[str, tuple[tuple[int, Placement], ...]] | None = None

    def tell(self) -> Iterator[Waiting]:
        """Yield why pods wait, in the order of the queue."""
        for pod in self.queue:
            if reason := self._reason(pod):
                yield Waiting(pod=pod.key, reason=reason[0], message=reason[1])

    def _reason(self, pod: PodView) -> reasons.Reason | None:
        """Return why a pod waits; None if it does not."""
        key = pod.key
        kind = self.plan.refused.get(key)
        if key in self.walk.waits:
            code, message = self.walk.waits[key]
            if kind and code == names.NOTHING_TO_RECLAIM:
                message = f"{message}; {self._refused(pod, kind)[1]}"
            return code, message
        if claim := self.later.get(key):
            delay = self._delayed(self.plan.guests[key], claim)
            claims = key in self.walk.ledger.claimants
            return (names.EVICTING, self.walk.awaited(pod) or delay[1]) if claims else delay
        if kind:
            code, message = self._refused(pod, kind)
            claims = key in self.walk.ledger.claimants and self._may_be_had_yet(kind)
            return (names.EVICTING if claims else code), message + self._held_for(key)
        return None if pod.gated else self._unused(self.plan.guests[key])

    def _held_for(self, key: str) -> str:
        """Return on which node what is free is kept for a pod that waits, in words; nothing where nothing is."""
        if self._held is None:
            sites = self.plan.seating.sites
            self._held = {claim.key: sites[claim.home].node.name for claim in self.walk.ground.held}
        return f"; what is free on node {self._held[key]} is kept for it" if key in self._held else ""

    def _may_be_had_yet(self, kind: Kind) -> bool:
        """Return whether what others have left for a claimant may be on a node whose agent is only late in answering."""
        sites = self.plan.seating.sites
        return any(sites[site].node.silent for site in nodes_in(kind.candidates))

    def _refused(self, pod: PodView, kind: Kind) -> reasons.Reason:
        if kind not in self._told:
            if self._refusals is None:
                self._refusals = reasons.Refusals(self.plan, self.nodes)
            self._told[kind] = self._kept_from(pod, kind) or self._refusals.why(pod, kind)
        return self._told[kind]

    def _kept_from(self, pod: PodView, kind: Kind) -> reasons.Reason | None:
        """Return for whom is kept what would serve a pod, if anything would: for one that stands before it."""
        held = self.walk.ground.held  # in the order of the queue, as pods are asked for here
        if held and not self._places:
            self._places = {one.key: place for place, one in enumerate(self.queue)}
        for claim in islice(held, self._passed, None):
            if self._places[claim.key] >= self._places[pod.key]:
                break
            self._passed += 1
            self._homes.setdefault(claim.home, claim.key)
            self._keeping |= 1 << claim.home
        found = self.plan.seating.find(kind, self._keeping) if self._keeping else None
        if found is None:
            return None
        site, what = found[1].site, "that free" if kind.profiles else "room for it"
        return names.PLACE_HELD, (
            f"{reasons.needs(kind)}node {self.plan.seating.sites[site].node.name} has {what}, but keeps it for "
            f"{self._homes[site]}, which stands before this pod"
        )

    def _unused(self, guest: Guest) -> reasons.Reason:
        """Return why a pod waits that has been released and has a place that the scheduler does not give it."""
        what = "that free" if guest.kind.profiles else "room for it"
        return names.UNUSED, (
            f"{reasons.needs(guest.kind)}node {self.plan.seating.sites[guest.home.site].node.name} has {what}, but the "
            f"scheduler has found no node for {UNSCHEDULABLE_S} s: its own condition, PodScheduled, says what else the pod "
            "lacks"
        )

    def _delayed(self, guest: Guest, claim: Claim) -> reasons.Reason:
        """Return why a pod that has been given slices is not released yet."""
        needs, node = reasons.needs(guest.kind), self.plan.seating.sites[claim.home].node
        if claim.role is Role.CANDIDATE:
            return self._yields(guest)
        if not guest.kind.profiles:
            return names.PLACE_HELD, f"node {node.name} has room for it when pods that are on their way out have ended"
        if guest.key in self.behind:
            return names.BEING_CUT, needs + f"node {node.name} has that, and is cut for others first"
        if node.silent:
            return names.BEING_CUT, needs + silence([node])
        if node.in_flight and self._is_cut_for_later(guest):
            return (
                names.BEING_CUT,
                needs + f"node {node.name} is cut for it when it has carried out an order{self._late(node)}",
            )
        if node.in_flight or node.name in self.ordered:
            return names.BEING_CUT, needs + f"node {node.name} is being cut for it{self._late(node)}"
        if any(self.plan.seating.states[claim.home][plot].target for plot in guest.home.plots):
            return names.PROMISED, needs + f"node {node.name} is cut for it when the pods on their way there are bound"
        if any(pod.slices and pod.key in self.walk.ground.leaving for pod in self.walk.ground.bound[node.name]):
            return names.PLACE_HELD, needs + f"node {node.name} has it when pods that are on their way out have ended"
        if any(self.plan.seating.sites[claim.home].plots[plot].leaving for plot in guest.home.plots):
            return (
                names.PLACE_HELD,
                needs + f"node {node.name} has it when its agent reports that its last holder has ended",
            )
        return names.BEING_CUT, needs + f"node {node.name} has it, but does not announce it yet"

    def _yields(self, guest: Guest) -> reasons.Reason:
        """Return for whom a pod waits that could have what is free: for those who come to it, or for what is cut for others."""
        needs, site = reasons.needs(guest.kind), self.yielding.get(guest.key)
        if site is None:
            return names.PROMISED, needs + "what is free is promised to pods that the scheduler has not bound yet"
        if self._coming is None:
            self._coming = Counter(claim.home for claim in self.later.values() if claim.role is Role.COMING)
        return names.OTHERS_FIRST, (
            f"{needs}that is free, but node {self.plan.seating.sites[site].node.name} is being cut for "
            f"{number_of(self._coming[site], 'pod')} first: if this pod landed there, it could take what others are to have"
        )

    def _late(self, node: NodeView) -> str:
        """Return why others do not wait until a node has been cut, so that they may go first (docs/adr/0029)."""
        if node.name not in self._lates:
            self._lates[node.name] = _why_late(node, self.walk.view.now)
        return self._lates[node.name]

    def _is_cut_for_later(self, guest: Guest) -> bool:
        """Return whether what a pod has been given neither exists nor is on its way."""
        if self._placements is None:
            self._placements = self.plan.placements()
        faces = {plot.index: plot.face for plot in self.plan.seating.sites[guest.home.site].plots}
        slots = {index: face.open + face.free for index, face in faces.items()}
        return any(placement not in slots[index] for index, placement in self._placements[guest.key])


def _why_late(node: NodeView, now: float) -> str:
    if node.heeds(now):
        return ""
    if node.in_flight:
        return f", but its agent has not answered that of {timestamp(node.ordered_at)} yet"
    return ", but its boards are not as its last order says, so that pods which what is free would serve go first"
