"""The books of one decision: which quota counts which pod, as it is now and as it will be when victims have left.

A victim on its way out (a deletion is under way, and we wrote for whom) counts for its claimant, no longer for its own
quota. Planning looks at the time when all of those have left (`then`); a gate is only removed where there is also room
for the pod as long as they are still there (`now`). One whose claimant has gone counts for its own quota until it ends,
but nobody else has to go where what it leaves is enough.
"""

from collections.abc import Collection, Iterable
from itertools import chain, compress
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from policies import names
from policies.charges import Charge, Charges, Places, Size
from policies.decision import QuotaStatus, Relabel
from policies.governing import QuotaView, govern
from policies.gpupolicy import Policies
from policies.quantity import Amounts
from policies.quota import Lack, Usage, beyond_min, statuses
from policies.settings import QuotaSettings
from policies.view import PodView, View


class Member(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pod that a quota in force counts.

    Attributes:
        pod: the pod.
        quota: its quota.
        cost: what it costs.
    """

    pod: PodView
    quota: QuotaView
    cost: Charge

    @property
    def charge(self) -> Amounts:
        """Return what it costs of each resource, in thousandths."""
        return self.cost.amounts


class Ledger:
    """Who uses what.

    Attributes:
        then: usage when all victims on their way out have left, with everybody whom a decision grants something.
        now: usage now, with everybody whom a decision releases.
        real: of those only what is neither on its way out nor still to come.
        leaving: pods (namespace/name) on their way out, with the claimants for whom they go.
        going: those, and pods that were evicted for claimants that wait no longer.
        claimants: those pods, and those for whom the last has ended since (their condition says so): what they left is
            theirs until they have it.
        standing: the pods that each quota (by title) counts, those on their way out left aside.
    """

    def __init__(self, view: View, settings: QuotaSettings, places: Places | None = None) -> None:
        """Open the books; `places` of pods on the nodes of the view, where they are known."""
        self._quotas = view.quotas
        self._governed = govern(view.quotas)
        self._left = [pod for pod in view.pods if pod.capacity and not (pod.finished or self.governs(pod))]
        self._policies = Policies(view.policies)
        self._charges = Charges(places or Places(view.nodes), settings)
        unready = self._governed.unready
        self._by_space = {
            space: quota for space, quota in self._governed.by_namespace.items() if quota.title not in unready
        }
        self._in_force = in_force = [quota for quota in view.quotas if quota.title not in unready]
        self.then, self.now, self.real, self._shown = (Usage(in_force) for _ in range(4))
        waiting = (pod for pod in view.pods if pod.gated and not pod.terminating) if in_force else ()
        claimants = {pod.key: pod for pod in waiting if self.quota(pod)}
        going = {pod.key: pod.evicted_for for pod in view.pods if pod.evicted_for and _is_leaving(pod)}
        self.going = frozenset(going)
        self.leaving = {key: claimant for key, claimant in going.items() if claimant in claimants}
        held = (key for key, pod in claimants.items() if pod.waiting[0] == names.EVICTING)
        self.claimants = frozenset((*self.leaving.values(), *held))
        self.standing: dict[str, list[Member]] = {quota.title: [] for quota in in_force}
        self._released: dict[str, dict[str, Member]] = {quota.title: {} for quota in in_force}
        books = {space: (quota, self.standing[quota.title]) for space, quota in self._by_space.items()}
        for pod in view.pods if books else ():
            if (book := books.get(pod.namespace)) is None or not _counts(pod):
                continue
            (quota, members), charge = book, self._charges.of(pod)
            if self.leaving and pod.key in self.leaving:
                self._count_leaving(quota, self.quota(claimants[pod.evicted_for]), charge.amounts)
            else:
                members.append(Member(pod, quota, charge))
                for usage in (self.then, self.real) if self.going and pod.key in self.going else ():
                    usage.add(quota, charge.amounts, -1)
        for quota in in_force:
            total = _sum(member.charge for member in self.standing[quota.title])
            for usage in (self.then, self.now, self.real, self._shown):
                usage.add(quota, total)

    def quota(self, pod: PodView) -> QuotaView | None:
        """Return the quota in force that governs a pod, or None."""
        return self._by_space.get(pod.namespace)

    def governs(self, pod: PodView) -> bool:
        """Return whether a quota governs a pod, or would if it had no fault."""
        return pod.namespace in self._governed.by_namespace

    def holds(self, pod: PodView) -> bool:
        """Return whether a pod waits for its quota: one governs it, and its policy does more than label."""
        return self.governs(pod) and self._policies.governing(pod.namespace).gates

    def fault(self, pod: PodView) -> str:
        """Return what is wrong with the quota for which a pod waits; empty where nothing is."""
        quota = self._governed.by_namespace.get(pod.namespace) if self.holds(pod) else None
        unready = self._governed.unready.get(quota.title) if quota else None
        return f"{quota.title}: {unready[1]}" if quota and unready else ""

    def charge(self, pod: PodView) -> Amounts:
        """Return what a pod costs."""
        return self._charges.of(pod).amounts

    def lacks(self, usage: Usage, pod: PodView) -> list[Lack]:
        """Return what keeps a pod out by quota; nothing if none holds it."""
        quota = self.quota(pod) if self.holds(pod) else None
        return usage.lacks(quota, self.charge(pod), borrows=not pod.non_preemptible) if quota else []

    def never(self, pod: PodView) -> list[Lack]:
        """Return what keeps a pod out by quota for ever; nothing if none holds it."""
        quota = self.quota(pod) if self.holds(pod) else None
        return self.then.never(quota, self.charge(pod), borrows=not pod.non_preemptible) if quota else []

    def grant(self, pod: PodView) -> None:
        """Count a pod as one that will run."""
        if quota := self.quota(pod):
            self.then.add(quota, self.charge(pod))

    def waits_for_its_own(self, pod: PodView, lacks: Iterable[Lack]) -> bool:
        """Return whether only pods of a pod's own quota can let it in: with what these use it is too much without others."""
        quota = self.quota(pod)
        return quota is not None and any(self.then.of(quota)[lack.resource] + lack.asked > lack.bound for lack in lacks)

    def hold_among_its_own(self, pod: PodView) -> None:
        """Keep a waiting pod's place before others of its quota only."""
        if quota := self.quota(pod):
            self.then.add_to_own(quota, self.charge(pod))

    def as_shown(self, quota: QuotaView, lack: Lack) -> Lack:
        """Return a lack with what the status of quotas shows as used, apart from what is kept for pods that stand before."""
        shown = (self._shown.total if lack.limit == "sum" else self._shown.of(quota)).get(lack.resource, 0)
        return replace(lack, used=shown, kept=max(0, lack.used - shown))

    def release(self, pod: PodView) -> None:
        """Count a pod as one that may run from now on."""
        if quota := self.quota(pod):
            member = self._released[quota.title][pod.key] = Member(pod, quota, self._charges.of(pod))
            for usage in (self.now, self._shown):
                usage.add(quota, member.charge)

    def withdraw(self, pod: PodView) -> None:
        """Count a released pod as one that is released later after all."""
        quota = self.quota(pod)
        if quota and (member := self._released[quota.title].pop(pod.key, None)):
            for usage in (self.now, self._shown):
                usage.add(quota, member.charge, -1)

    def queue_order(self, pod: PodView) -> tuple[int, int, Size, str, str]:
        """Return the key of the order of waiting pods within a class."""
        return -pod.priority, pod.created, self._charges.of(pod).size, pod.namespace, pod.name

    def over_quota(self, *, coming: bool = True) -> dict[str, Member]:
        """Return the counted pods (namespace/name) that are over-quota: running pods by older, then as in the queue.

        With those who are `coming` by this decision, or without: some of them may yet have to wait.
        """
        over: dict[str, Member] = {}
        for quota in self._in_force:
            if (self.now if coming else self.real).is_above_min(quota):
                members = [*self.standing[quota.title], *(self._released[quota.title].values() if coming else ())]
                members.sort(key=_running_order)
                beyond = beyond_min(quota, (member.charge for member in members))
                over |= {member.pod.key: member for member in compress(members, beyond)}
        return over

    def capacity(self, pod: PodView, over: Collection[str]) -> str:
        """Return the true capacity label of a pod that is counted; empty where no quota in force governs it."""
        if not self.quota(pod):
            return ""
        return names.OVER_QUOTA if over and pod.key in over else names.IN_QUOTA

    def relabels(self, over: Collection[str]) -> list[Relabel]:
        """Return the labels that are not true, of pods that have been released before; by namespace/name."""
        counted = (member.pod for members in self.standing.values() for member in members)
        found: list[Relabel] = []
        for pod in chain(counted, self._left):
            capacity = self.capacity(pod, over)
            if pod.capacity != capacity and not pod.gated and not pod.terminating:
                found.append(Relabel(pod=pod.key, uid=pod.uid, version=pod.version, capacity=capacity))
        return sorted(found, key=attrgetter("pod"))

    def statuses(self) -> tuple[QuotaStatus, ...]:
        """Return the status of every quota."""
        return statuses(self._governed, self._quotas, self._shown)

    def _count_leaving(self, quota: QuotaView, claimant: QuotaView | None, charge: Amounts) -> None:
        if claimant is None:  # pragma: no cover - only claimants that a quota governs are looked at
            return
        self._shown.add(claimant, charge)
        if quota.title == claimant.title:
            self.now.add(quota, charge)
        else:
            self.now.add_to_total(quota, charge)


def _running_order(member: Member) -> tuple[int, int, Size, str, str]:
    pod = member.pod
    return pod.created, -pod.priority, member.cost.size, pod.namespace, pod.name


def _sum(charges: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for charge in charges:
        for name, amount in charge.items():
            total[name] = total.get(name, 0) + amount
    return total


def _counts(pod: PodView) -> bool:
    """Return whether a pod uses quota: bound and not ended, or let through the gate."""
    return not pod.finished and bool(pod.node or not (pod.gated or pod.terminating))


def _is_leaving(pod: PodView) -> bool:
    return bool(pod.evicted_for and pod.terminating and pod.node) and not pod.finished
