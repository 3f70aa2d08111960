"""Trying out who has to go for one waiting pod: what it lacks, whom the rules let it displace, and in which order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from policies import names
from policies.budgets import BudgetView
from policies.governing import QuotaView
from policies.ground import SLICES, Ground
from policies.guests import Kind
from policies.ledger import Member
from policies.needs import is_gpu
from policies.quantity import Amounts
from policies.quota import WITHIN_GUARANTEED, WITHIN_MIN, Usage
from policies.view import PodView

Rank = tuple[bool, bool, int, int, tuple[int, ...], str]
"""Over-quota first, not straddling first, lowest priority, newest, larger request in what is lacked, name."""


@dataclass(eq=False, slots=True)
class Claimant:
    """A waiting pod that lacks something.

    Attributes:
        pod: the pod.
        quota: its quota.
        charge: what it costs.
        kind: what it needs of nodes.
    """

    pod: PodView
    quota: QuotaView
    charge: Amounts
    kind: Kind


@dataclass(eq=False, slots=True)
class Stage:
    """What victims are taken from. What is taken leaves `usage`, `real` and `ground`.

    Attributes:
        usage: usage when all who are on their way out have left, with all that is promised and held.
        real: the same without what is promised and held: what is there to be taken.
        ground: the nodes, in the same state.
        over: the pods (namespace/name) that are over-quota.
        budgets: what may be evicted at once.
        left: what each budget (namespace/name) still allows after what has been chosen for others.
    """

    usage: Usage
    real: Usage
    ground: Ground
    over: Mapping[str, Member]
    budgets: Sequence[BudgetView]
    left: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.left = {budget.key: budget.allowed for budget in self.budgets}


class Trial:
    """Victims taken for one claimant, and what it still lacks.

    Attributes:
        taken: the victims, in the order in which they were taken.
    """

    def __init__(self, claimant: Claimant, stage: Stage) -> None:
        self.taken: list[Member] = []
        self._stage, self._claimant = stage, claimant
        self._usage, self._real, self._ground = stage.usage, stage.real, stage.ground
        self._covering: dict[str, list[str]] = {}
        self._gpus = _gpus(claimant.charge)
        self._look()

    def satisfied(self) -> bool:
        """Return whether the claimant fits, in quota and on a node."""
        return not (self._own or self._shared or self._homeless)

    def may_ask_others(self) -> bool:
        """Return whether rule 1 or 2 holds for the claimant in any dimension."""
        return bool(self._doors)

    def take(self, member: Member) -> None:
        """Let a pod go."""
        self.taken.append(member)
        self._leave(member)

    def give_back_last(self) -> None:
        """Let the pod stay after all that was taken last."""
        self._give_back(self.taken.pop())

    def give_back_unneeded(self) -> None:
        """Let those stay after all without whom it fits too, and the others may go all the same; the last first.

        Again as long as somebody does: that one stays may make another unneeded.
        """
        before: list[Member] = []
        while before != self.taken:
            before = self.taken
            for member in reversed(before):
                self._give_back(member)
                others = [other for other in self.taken if other is not member]
                if self.satisfied() and (member.quota is not self._claimant.quota or self._may_all_go(others)):
                    self.taken = others
                else:
                    self._leave(member)

    def _may_all_go(self, members: Sequence[Member]) -> bool:
        """Return whether the rules let pods that have gone go one after another. That one stays may close a door."""
        for member in reversed(members):
            self._give_back(member)
        allowed = True
        for member in members:
            allowed = allowed and self.rank(member) is not None
            self._leave(member)
        return allowed

    def covering(self, member: Member) -> list[str]:
        """Return the budgets that cover a pod, sorted: the order of the view means nothing."""
        pod = member.pod
        if pod.key not in self._covering:
            self._covering[pod.key] = sorted(b.key for b in self._stage.budgets if b.covers(pod.namespace, pod.labels))
        return self._covering[pod.key]

    def budgeted(self, member: Member) -> bool:
        """Return whether the budgets let a pod go besides those taken; one that two budgets cover may never."""
        covering = self.covering(member)
        if len(covering) != 1:
            return not covering
        (budget,) = covering
        return sum(budget in self.covering(other) for other in self.taken) < self._stage.left[budget]

    def rank(self, member: Member) -> Rank | None:
        """Return a pod's place among the victims, or None if no rule lets it go for this claimant now."""
        claimant, pod = self._claimant, member.pod
        freed = self._freed(member)
        if not freed:
            return None
        if member.quota is claimant.quota:
            if not claimant.pod.preempts or pod.priority >= claimant.pod.priority or self._overtakes(member):
                return None
            straddles = False
        else:
            below = [self._leaves_below(member, name) for name in freed if self._opens(member, name)]
            if not below or any(self._is_owed(member, name) for name in freed):
                return None
            straddles = all(below)
        sizes = tuple(-member.charge.get(name, 0) for name in self._dimensions)
        return pod.key not in self._stage.over, straddles, pod.priority, -pod.created, sizes, pod.key

    def _leave(self, member: Member) -> None:
        for usage in (self._usage, self._real):
            usage.add(member.quota, member.charge, -1)
        self._ground.vacate(member.pod)
        self._look()

    def _overtakes(self, member: Member) -> bool:
        """Return whether a pod of the claimant's quota would stand before it when it comes back: then it goes in vain."""
        gone = {name: -amount for name, amount in member.charge.items()}
        quota, usage = self._claimant.quota, self._usage
        return usage.rank(quota, self._claimant.charge, gone) > usage.rank(quota, member.charge, gone)

    def _give_back(self, member: Member) -> None:
        for usage in (self._usage, self._real):
            usage.add(member.quota, member.charge)
        self._ground.restore(member.pod)
        self._look()

    def _look(self) -> None:
        """Work out what the claimant lacks."""
        claimant = self._claimant
        lacks = self._usage.lacks(claimant.quota, claimant.charge, borrows=not claimant.pod.non_preemptible)
        self._shared = {lack.resource for lack in lacks if lack.limit == "sum"}
        self._own = {lack.resource for lack in lacks if lack.limit != "sum"}
        self._homeless = not self._ground.fits(claimant.kind)
        self._dimensions = sorted(
            self._shared | self._own | (set(_costs(claimant.charge)) if self._homeless else set())
        )
        self._doors = self._open_doors()

    def _freed(self, member: Member) -> set[str]:
        """Return the dimensions in which a pod would free something that the claimant lacks."""
        freed = {name for name in self._shared if member.charge.get(name) and name in member.quota.min}
        own = member.quota is self._claimant.quota
        if own:
            freed |= {name for name in self._own if member.charge.get(name)}
        short = self._ground.lacks(self._claimant.kind, member.pod.node) if self._homeless else frozenset()
        if own or all(self._entitled(self._dimensions_of(name)) for name in short):
            freed = freed.union(*(self._dimensions_of(name) for name in short if _takes(member.pod, name)))
        return freed

    def _dimensions_of(self, short: str) -> set[str]:
        """Return the dimensions of what a node lacks."""
        return self._gpus if short == SLICES or short.startswith(names.NVIDIA_PREFIX) else {short}

    def _entitled(self, dimensions: set[str]) -> bool:
        """Return whether a door is open in each of these that the claimant's quota owns something of."""
        return dimensions & self._claimant.quota.min.keys() <= self._doors.keys()

    def _opens(self, member: Member, name: str) -> bool:
        """Return whether rule 1 or 2 holds in a dimension."""
        bound = self._bound(member.quota, name)
        return bound is not None and self._real.of(member.quota)[name] > bound and bool(member.charge.get(name))

    def _is_owed(self, member: Member, name: str) -> bool:
        """Return whether the claimant would have beyond its own min what is the other quota's by right (docs/adr/0011)."""
        beyond = self._doors.get(name) == WITHIN_GUARANTEED and name in member.quota.min
        return beyond and bool(member.charge.get(name)) and not self._opens(member, name)

    def _leaves_below(self, member: Member, name: str) -> bool:
        bound = self._bound(member.quota, name)
        return bound is not None and self._real.of(member.quota)[name] - member.charge.get(name, 0) < bound

    def _bound(self, quota: QuotaView, name: str) -> int | None:
        """Return down to what use of a dimension another quota's pods may be taken; None: not at all."""
        rule = self._doors.get(name)
        if rule is None or name not in quota.min:
            return None
        return quota.min[name] + (self._usage.guaranteed(quota, name) if rule == WITHIN_GUARANTEED else 0)

    def _open_doors(self) -> dict[str, int]:
        """Return the dimensions in which the claimant may displace pods of others, with the rule.

        To all that the sum of mins lacks it must be entitled, and to all that the node of a victim does (docs/adr/0011):
        who takes by one dimension what is another's by right in the next has it taken back, and so on for ever.
        """
        own, charge, used = self._claimant.quota, self._claimant.charge, self._usage.of(self._claimant.quota)
        doors: dict[str, int] = {}
        for name, least in own.min.items():
            if charge.get(name):
                above = used[name] + charge[name] - least
                if above <= 0:
                    doors[name] = WITHIN_MIN
                elif above <= self._usage.guaranteed(own, name):
                    doors[name] = WITHIN_GUARANTEED
        return doors if self._shared <= doors.keys() else {}


def _costs(charge: Amounts) -> Iterable[str]:
    return (name for name, amount in charge.items() if amount)


def _takes(pod: PodView, short: str) -> bool:
    """Return whether a pod takes any of what its node lacks."""
    return bool(pod.slices) if short == SLICES else short == "pods" or bool(pod.request.get(short))


def _gpus(charge: Amounts) -> set[str]:
    return {name for name in _costs(charge) if is_gpu(name) or name == names.GPU_MEMORY_QUOTA}
