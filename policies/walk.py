"""The walk over all who wait: who is granted what, by quota and by room, who has to go for whom, and whose place is held."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from policies import names
from policies.decision import Evict
from policies.evictions import eviction
from policies.governing import QuotaView
from policies.ground import Ground
from policies.guests import Kind
from policies.ledger import Ledger, Member
from policies.nodesets import Nodes
from policies.plan import Planner
from policies.quantity import amount
from policies.quota import Lack
from policies.reasons import Reason
from policies.reclaim import Reclaim
from policies.settings import QuotaSettings
from policies.trial import Claimant, Stage
from policies.view import UNSCHEDULABLE_S, PodView, View


@dataclass(eq=False, slots=True)
class Walk:
    """Goes through pods in the one order.

    Attributes:
        ledger: the books.
        planner: the planner.
        ground: the nodes on which it plans.
        settings: of quota.
        view: the picture.
        waits: why quota keeps pods waiting, by namespace/name.
        evict: who has to go, in the order of those for whom, or where they stand themselves.
        displacing: the claimants (namespace/name) for whom they go.
        taking: for each quota (by title) that takes back something: for whom last, and the best class of those.
    """

    ledger: Ledger
    planner: Planner
    ground: Ground
    settings: QuotaSettings
    view: View
    waits: dict[str, Reason] = field(default_factory=dict)
    evict: list[Evict] = field(default_factory=list)
    displacing: set[str] = field(default_factory=set)
    taking: dict[str, tuple[str, int]] = field(default_factory=dict)
    _reclaim: Reclaim | None = None

    def go(self, released: Sequence[PodView], waiting: Sequence[PodView]) -> None:
        """Plan for pods that have been released before, then for those that wait, in their order."""
        for pod in released:
            self.planner.admit(pod.key, self.planner.kind(pod, settled=True))
        unused: list[tuple[PodView, Nodes]] = []
        for pod in waiting:
            kind = self.planner.kind(pod)
            if pod.gated:
                self._consider(pod, kind)
            elif nodes := self.ground.unused(kind, self.view.now):
                unused.append((pod, nodes))
            else:
                self._plan_again(pod, kind)
        for pod, nodes in unused:  # last, so that what the scheduler does not use for them serves others
            if not self.planner.admit(pod.key, self.planner.kind(pod, avoid=nodes)):
                self.planner.admit(pod.key, self.planner.kind(pod))

    def _plan_again(self, pod: PodView, kind: Kind) -> None:
        """Plan for a pod that the scheduler has given up, and whose quota counts it: what it was released for is gone.

        If nothing serves it, it waits; at the gate, if a controller will make it again there (ADR 9).
        """
        if self.planner.admit(pod.key, kind):
            return
        if pod.controlled and pod.released_at and pod.refused_until <= self.view.now:
            self._send_back(pod)
        else:
            self._hold_if_long(pod, kind)

    def put_off(self, key: str) -> None:
        """Let nobody go for a pod yet: what is left to it is known when those have been bound who are released now."""
        self.evict = [evict for evict in self.evict if evict.claimant != key]
        self.waits[key] = (
            names.PROMISED,
            "waits for pods to be bound that are released now: whom it displaces depends on where",
        )

    def _consider(self, pod: PodView, kind: Kind) -> None:
        if not self.ledger.governs(pod):
            if self.planner.admit(pod.key, kind):
                self.ground.seated()
            else:
                self._hold_if_long(pod, kind)
            return
        if fault := self.ledger.fault(pod):
            self.waits[pod.key] = names.QUOTA_INVALID, f"waits until its quota is put right: {fault}"
            return
        if self._would_borrow_meanwhile(pod):
            return
        lacks = self.ledger.lacks(self.ledger.then, pod)
        if not lacks and self.planner.admit(pod.key, kind):
            self._grant(pod)
            return
        quota, lasting = self.ledger.quota(pod), self.ledger.never(pod)
        if lacks and quota:
            self._say(pod, quota, lasting or lacks, lasting=bool(lasting))
        if lasting or not self.ground.ever(kind):
            return
        claims = quota is not None and self._claim(pod, quota, kind)
        if claims and pod.key in self.displacing:
            return
        if claims or self._long_wait_s(pod) is not None:
            self._hold(pod, kind, lacks, claims=claims)

    def _hold(self, pod: PodView, kind: Kind, lacks: Sequence[Lack], *, claims: bool) -> None:
        """Keep a pod's place: nothing is kept from others where it would not help that they wait (ADR 8).

        A pod that its own quota keeps out waits for pods of that quota, whatever others do. One that is no claimant and
        lacks quota waits for that first: what pods leave that end is theirs before whom it stands.
        """
        if self.ledger.waits_for_its_own(pod, lacks):
            self.ledger.hold_among_its_own(pod)
            return
        self.ledger.grant(pod)
        if claims or not lacks:
            self.ground.hold(pod.key, kind, self._long_wait_s(pod))

    def _hold_if_long(self, pod: PodView, kind: Kind) -> None:
        """Keep the place of a pod that has waited for long."""
        if (waited_s := self._long_wait_s(pod)) is not None:
            self.ground.hold(pod.key, kind, waited_s)

    def _long_wait_s(self, pod: PodView) -> float | None:
        """Return for how long a pod has waited for which a place is kept; None where it is not that long."""
        waited_s = self.view.now - pod.created
        return waited_s if waited_s >= self.settings.hold_s else None

    def _would_borrow_meanwhile(self, pod: PodView) -> bool:
        """Return whether a pod would make its quota borrow while that takes back: then what comes would not be its own."""
        quota = self.ledger.quota(pod)
        if quota is None or quota.title not in self.taking or pod.key in self.ledger.claimants:
            return False
        if not self.ledger.holds(pod):
            return False
        claimant, rank = self.taking[quota.title]
        if self.ledger.then.rank(quota, self.ledger.charge(pod), {}) <= rank:
            return False
        self.waits[pod.key] = (
            names.PLACE_HELD,
            f"{quota.key} borrows nothing more until {claimant} has what is taken back for it",
        )
        return True

    def _take_back(self, pod: PodView, quota: QuotaView) -> None:
        """Note that a quota takes something back for a pod, which is about to be granted."""
        rank = self.ledger.then.rank(quota, self.ledger.charge(pod), {})
        before = self.taking.get(quota.title, ("", rank))
        self.taking[quota.title] = pod.key, min(rank, before[1])

    def _claim(self, pod: PodView, quota: QuotaView, kind: Kind) -> bool:
        """Displace others for a pod if that helps; return whether the rules open a door to it at all."""
        found = self._reclaiming().search(Claimant(pod, quota, self.ledger.charge(pod), kind))
        if found.victims:
            kind.refused = False
            self.planner.admit(pod.key, kind)
            self._displace(pod, quota, found.victims)
        elif found.opened:
            spared = f" (of the pods that it might displace: {found.spared})" if found.spared else ""
            lacks = [self.waits[pod.key][1]] if pod.key in self.waits else []
            why = "; ".join([*lacks, f"no eviction that is allowed would help{spared}"])
            self.waits[pod.key] = names.NOTHING_TO_RECLAIM, why
            if not self.ground.fits(kind):
                self.planner.found.refused[pod.key] = kind
        return found.opened

    def _grant(self, pod: PodView) -> None:
        quota = self.ledger.quota(pod)
        if quota and pod.key in self.ledger.claimants:
            self._take_back(pod, quota)
        self.ledger.grant(pod)
        self.ground.seated()
        if quota and (lacks := self.ledger.lacks(self.ledger.now, pod)):
            code = names.EVICTING if pod.key in self.ledger.claimants else names.QUOTA_USED_UP
            until = self.awaited(pod) or "waits until pods on their way out have ended"
            self.waits[pod.key] = (
                code,
                f"{until}; {_said(quota, [self.ledger.as_shown(quota, lack) for lack in lacks])}",
            )
        else:
            self.ledger.release(pod)

    def awaited(self, pod: PodView, victims: Sequence[Member] = ()) -> str:
        """Return for whom a claimant waits, in words: those who are on their way out, and victims; empty if for nobody."""
        going = [key for key, claimant in sorted(self.ledger.leaving.items()) if claimant == pod.key]
        going += [member.pod.key for member in victims]
        return f"waits until pods evicted for it have ended: {', '.join(going)}" if going else ""

    def _displace(self, pod: PodView, quota: QuotaView, victims: Sequence[Member]) -> None:
        self.displacing.add(pod.key)
        self._take_back(pod, quota)
        self.ledger.grant(pod)
        self.ground.seated()
        self.waits[pod.key] = names.EVICTING, self.awaited(pod, victims)
        for member in victims:
            own = member.quota.title == quota.title
            why = (
                f"{quota.key} needs it for {pod.key}, which has priority {pod.priority} and not {member.pod.priority}"
                if own
                else f"{quota.key} takes back what {member.quota.key} borrows, for {pod.key}: {self._costs(member, quota)}"
            )
            reason = names.PREEMPTED if own else names.RECLAIMED
            self.evict.append(eviction(member.pod, quota, self.settings, reason, why, claimant=pod))

    def _send_back(self, pod: PodView) -> None:
        why = (
            f"the scheduler has found no node for it for {UNSCHEDULABLE_S} s, and what it was released for is gone; its "
            "controller is to make it again, to wait at the gate"
        )
        self.evict.append(eviction(pod, self.ledger.quota(pod), self.settings, names.PLACE_LOST, why))

    def _reclaiming(self) -> Reclaim:
        if self._reclaim is None:
            stage = Stage(
                usage=self.ledger.then,
                real=self.ledger.real,
                ground=self.ground,
                over=self.ledger.over_quota(coming=False),
                budgets=self.view.budgets,
            )
            away = {node.name for node in self.view.nodes if not node.ready}
            self._reclaim = Reclaim(stage, self.ledger.standing, away, self.view.now)
        return self._reclaim

    def _say(self, pod: PodView, quota: QuotaView, lacks: Sequence[Lack], *, lasting: bool) -> None:
        limits = {lack.limit for lack in lacks}
        code = names.ABOVE_MAX if "max" in limits else names.ABOVE_MIN if "min" in limits else names.QUOTA_USED_UP
        message = _said(quota, [self.ledger.as_shown(quota, lack) for lack in lacks])
        self.waits[pod.key] = code, f"{message}; it can never run unless that is raised" if lasting else message

    @staticmethod
    def _costs(member: Member, quota: QuotaView) -> str:
        return ", ".join(
            f"{amount(name, member.charge[name])} {name}" for name in sorted(quota.min) if member.charge.get(name)
        )


def _said(quota: QuotaView, lacks: Sequence[Lack]) -> str:
    return "; ".join(lack.said(quota) for lack in lacks)
