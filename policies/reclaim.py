"""Who has to go so that a team gets back what it lends: the rules of section 4, the smallest set of victims that helps.

For each dimension that a waiting pod lacks it may displace (1) borrowed pods of others while their quota uses more
than its min, if with it its own quota stays within min; (2) the same while they use more than min and what is
guaranteed above it, if its own stays within that; (3) pods of lower priority of its own quota. Victims are taken until
it fits, in quota and on a node; then all that turn out unneeded are given back, the last first. Nobody goes in vain.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from policies import names
from policies.budgets import BudgetView
from policies.governing import QuotaView
from policies.ground import SLICES, Ground
from policies.ledger import Member
from policies.quantity import Amounts
from policies.quota import WITHIN_GUARANTEED, WITHIN_MIN, Usage
from policies.seating import Kind
from policies.view import PodView, is_slice


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
class Found:
    """What a search has come to.

    Attributes:
        victims: who has to go, in the order in which they were chosen; empty if no set helps.
        opened: whether the rules would let the pod displace anybody at all, protected or not.
    """

    victims: list[Member] = field(default_factory=list)
    opened: bool = False


@dataclass(eq=False, slots=True)
class Reclaim:
    """Chooses victims. What it has chosen has left `usage` and `ground` when it returns.

    Attributes:
        usage: usage when all who are on their way out have left, with all that is promised and held.
        real: the same without what is promised and held: what is there to be taken.
        ground: the nodes, in the same state.
        members: the pods that quotas count and that could be asked to go.
        labels: the true capacity label of each.
        budgets: what may be evicted at once.
        now: seconds since the epoch.
        left: what each budget (namespace/name) still allows after what has been chosen.
    """

    usage: Usage
    real: Usage
    ground: Ground
    members: Sequence[Member]
    labels: Mapping[str, str]
    budgets: Sequence[BudgetView]
    now: float
    _gone: set[str] = field(default_factory=set)
    _over: list[Member] | None = None
    _within: dict[str, list[Member]] = field(default_factory=dict)
    left: dict[str, int] = field(init=False)
    _vain: dict[tuple[object, ...], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = {budget.key: budget.allowed for budget in self.budgets}

    def search(self, claimant: Claimant) -> Found:
        """Return who has to go for a claimant."""
        pod = claimant.pod
        key = (
            claimant.quota.title,
            claimant.kind,
            pod.priority,
            pod.preempts,
            pod.non_preemptible,
            tuple(sorted(claimant.charge.items())),
        )
        if key in self._vain:  # since then others have only taken more
            return Found(opened=self._vain[key])
        found = self._search(claimant)
        if found.victims:
            self._vain.clear()
        else:
            self._vain[key] = found.opened
        return found

    def _search(self, claimant: Claimant) -> Found:
        trial = _Trial(self, claimant)
        opened = any(trial.rank(member) for member in self._candidates(claimant, trial))
        if not trial.satisfied() and not (opened and self._descend(claimant, trial, set(), iter(range(_STEPS)))):
            return Found(opened=opened)
        trial.give_back_unneeded()
        for member in trial.taken:
            self._gone.add(member.pod.key)
            for budget in trial.covering(member):
                self.left[budget] -= 1
            self.ground.slow_down(member.pod)
        return Found(trial.taken, opened)

    def _descend(self, claimant: Claimant, trial: "_Trial", seen: set[frozenset[str]], steps: Iterator[int]) -> bool:
        """Take victims in their order until the claimant fits; where that leads nowhere, go back and take the next.

        Return whether it fits; else nobody has gone whom this has taken.
        """
        candidates = self._candidates(claimant, trial)
        while next(steps, None) is not None and (chosen := self._first(candidates, trial)):
            candidates = [member for member in candidates if member is not chosen]
            going = frozenset((*(member.pod.key for member in trial.taken), chosen.pod.key))
            if going in seen:
                continue
            seen.add(going)
            trial.take(chosen)
            if trial.satisfied() or self._descend(claimant, trial, seen, steps):
                return True
            trial.give_back_last()
        return False

    def _candidates(self, claimant: Claimant, trial: "_Trial") -> list[Member]:
        """Return who may be asked to go for a claimant, in the order of victims but for what a trial decides."""
        if self._over is None:
            self._over, self._within = [], {}
            for member in sorted(self.members, key=_victims_order):
                if self.labels.get(member.pod.key) == names.OVER_QUOTA:
                    self._over.append(member)
                else:
                    self._within.setdefault(member.quota.title, []).append(member)
        quota, own = claimant.quota, self._within.get(claimant.quota.title, []) if claimant.pod.preempts else []
        over = self._over if trial.may_ask_others() else [member for member in self._over if member.quota is quota]
        gone = self._gone.union(member.pod.key for member in trial.taken)
        return [member for member in (*over, *own) if member.pod.key not in gone]

    def _first(self, candidates: Sequence[Member], trial: "_Trial") -> Member | None:
        """Return the first of the victims: candidates stand in order, but that who straddles comes after who does not."""
        best: tuple[Rank, Member] | None = None
        for member in candidates:
            if best and not best[0][1] and _victims_order(member)[:2] != _victims_order(best[1])[:2]:
                break
            if self._may_go(member.pod) and (rank := trial.rank(member)) and trial.budgeted(member):
                best = min(best or (rank, member), (rank, member), key=lambda item: item[0])
        return best[1] if best else None

    def _may_go(self, pod: PodView) -> bool:
        return bool(pod.node) and not (pod.terminating or pod.non_preemptible or pod.refused_until > self.now)


Rank = tuple[bool, bool, int, int, tuple[int, ...], str]
"""Over-quota first, not straddling first, lowest priority, newest, larger request in what is lacked, name."""


def _victims_order(member: Member) -> tuple[int, int]:
    return member.pod.priority, -member.pod.created


_STEPS = 300  # victims tried for one claimant


class _Trial:
    """Victims taken for one claimant, and what it still lacks."""

    def __init__(self, reclaim: Reclaim, claimant: Claimant) -> None:
        self.taken: list[Member] = []
        self._all, self._claimant = reclaim, claimant
        self._usage, self._real, self._ground = reclaim.usage, reclaim.real, reclaim.ground
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
        """Let those stay after all without whom it fits too, and the others may go all the same; the last first."""
        for member in reversed(list(self.taken)):
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
        """Return the budgets that cover a pod."""
        pod = member.pod
        if pod.key not in self._covering:
            self._covering[pod.key] = [b.key for b in self._all.budgets if b.covers(pod.namespace, pod.labels)]
        return self._covering[pod.key]

    def budgeted(self, member: Member) -> bool:
        """Return whether the budgets let a pod go besides those taken; one that two budgets cover may never."""
        covering = self.covering(member)
        if len(covering) != 1:
            return not covering
        (budget,) = covering
        return sum(budget in self.covering(other) for other in self.taken) < self._all.left[budget]

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
            if not below:
                return None
            straddles = all(below)
        sizes = tuple(-member.charge.get(name, 0) for name in self._dimensions)
        over = self._all.labels.get(pod.key) == names.OVER_QUOTA
        return not over, straddles, pod.priority, -pod.created, sizes, pod.key

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
        self._doors = dict(self._open_doors())

    def _freed(self, member: Member) -> set[str]:
        """Return the dimensions in which a pod would free something that the claimant lacks."""
        freed = {name for name in self._shared if member.charge.get(name) and name in member.quota.min}
        if member.quota is self._claimant.quota:
            freed |= {name for name in self._own if member.charge.get(name)}
        if self._homeless:
            for name in self._ground.lacks(self._claimant.kind, member.pod.node):
                if name == SLICES:
                    freed |= self._gpus if member.pod.slices else set()
                elif member.pod.request.get(name) or name == "pods":
                    freed |= self._gpus if name.startswith(names.NVIDIA_PREFIX) else {name}
        return freed

    def _opens(self, member: Member, name: str) -> bool:
        """Return whether rule 1 or 2 holds in a dimension."""
        bound = self._bound(member.quota, name)
        return bound is not None and self._real.of(member.quota)[name] > bound and bool(member.charge.get(name))

    def _leaves_below(self, member: Member, name: str) -> bool:
        bound = self._bound(member.quota, name)
        return bound is not None and self._real.of(member.quota)[name] - member.charge.get(name, 0) < bound

    def _bound(self, quota: QuotaView, name: str) -> int | None:
        """Return down to what use of a dimension another quota's pods may be taken; None: not at all."""
        rule = self._doors.get(name)
        if rule is None or name not in quota.min:
            return None
        return quota.min[name] + (self._usage.guaranteed(quota, name) if rule == WITHIN_GUARANTEED else 0)

    def _open_doors(self) -> Iterator[tuple[str, int]]:
        """Yield the dimensions in which the claimant may displace pods of others, with the rule."""
        own, charge, used = self._claimant.quota, self._claimant.charge, self._usage.of(self._claimant.quota)
        for name, least in own.min.items():
            if charge.get(name):
                above = used[name] + charge[name] - least
                if above <= 0:
                    yield name, WITHIN_MIN
                elif above <= self._usage.guaranteed(own, name):
                    yield name, WITHIN_GUARANTEED


def _costs(charge: Amounts) -> Iterable[str]:
    return (name for name, amount in charge.items() if amount)


def _gpus(charge: Amounts) -> set[str]:
    return {
        name
        for name in _costs(charge)
        if is_slice(name) or name in (names.GPU, names.GPU_SHARED, names.GPU_MEMORY_QUOTA)
    }
