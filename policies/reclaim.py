"""Who has to go so that a team gets back what it lends: the rules of section 4, the smallest set of victims that helps.

For each dimension that a waiting pod lacks it may displace (1) borrowed pods of others while their quota uses more
than its min, if with it its own quota stays within min; (2) the same while they use more than min and what is
guaranteed above it, if its own stays within that; (3) pods of lower priority of its own quota. Victims are taken until
it fits, in quota and on a node; then all that turn out unneeded are given back, the last first. Nobody goes in vain.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from policies.ledger import Member
from policies.trial import Claimant, Rank, Stage, Trial

_STEPS = 300  # victims tried for one claimant
_MOST_TOLD = 4  # reasons for which pods stay


@dataclass(eq=False, slots=True)
class Found:
    """What a search has come to.

    Attributes:
        victims: who has to go, in the order in which they were chosen; empty if no set helps.
        opened: whether the rules would let the pod displace anybody at all, protected or not.
        spared: if no set helps: those whom the rules would let it displace, and why they stay all the same, in words.
    """

    victims: list[Member] = field(default_factory=list)
    opened: bool = False
    spared: str = ""


@dataclass(eq=False, slots=True)
class Reclaim:
    """Chooses victims. What it has chosen has left the stage when it returns.

    Attributes:
        stage: what victims are taken from.
        standing: the pods that each quota (by title) counts and that could be asked to go.
        away: the nodes that are not ready: nobody there ends before they come back.
        now: seconds since the epoch.
    """

    stage: Stage
    standing: Mapping[str, Sequence[Member]]
    away: Collection[str]
    now: float
    _gone: set[Member] = field(default_factory=set)
    _over: list[Member] | None = None
    _lower: dict[tuple[str, int], tuple[list[Member], list[Member]]] = field(default_factory=dict)
    _vain: dict[tuple[object, ...], Found] = field(default_factory=dict)

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
            return self._vain[key]
        found = self._search(claimant)
        if found.victims:
            self._vain.clear()
        else:
            self._vain[key] = found
        return found

    def _search(self, claimant: Claimant) -> Found:
        trial = Trial(claimant, self.stage)
        candidates = self._candidates(claimant, trial)
        opened = any(trial.rank(member) for member in candidates if member not in self._gone)
        if not trial.satisfied() and not (opened and self._descend(claimant, trial, set(), iter(range(_STEPS)))):
            return Found(opened=opened, spared=self._spared(candidates, trial) if opened else "")
        trial.give_back_unneeded()
        for member in trial.taken:
            self._gone.add(member)
            for budget in trial.covering(member):
                self.stage.left[budget] -= 1
            self.stage.ground.slow_down(member.pod)
        return Found(trial.taken, opened)

    def _descend(self, claimant: Claimant, trial: Trial, seen: set[frozenset[Member]], steps: Iterator[int]) -> bool:
        """Take victims in their order until the claimant fits; where that leads nowhere, go back and take the next.

        Return whether it fits; else nobody has gone whom this has taken.
        """
        candidates = self._candidates(claimant, trial)
        passed = self._gone.union(trial.taken)
        while next(steps, None) is not None and (chosen := self._first(candidates, passed, trial)):
            passed.add(chosen)
            going = frozenset((*trial.taken, chosen))
            if going in seen:
                continue
            seen.add(going)
            trial.take(chosen)
            if trial.satisfied() or self._descend(claimant, trial, seen, steps):
                return True
            trial.give_back_last()
        return False

    def _candidates(self, claimant: Claimant, trial: Trial) -> list[Member]:
        """Return who may be asked to go for a claimant, in the order of victims but for what a trial decides."""
        if self._over is None:
            staying = (member for member in self.stage.over.values() if not member.pod.gated)
            self._over = sorted(staying, key=_victims_order)
        over, within = self._lower_of(claimant) if claimant.pod.preempts else ([], [])
        return [*(self._over if trial.may_ask_others() else over), *within]

    def _lower_of(self, claimant: Claimant) -> tuple[list[Member], list[Member]]:
        """Return the pods of a claimant's quota that have lower priority, over-quota and not, in the order of victims."""
        key = claimant.quota.title, claimant.pod.priority
        if key not in self._lower:
            lower = [member for member in self.standing[key[0]] if member.pod.priority < key[1]]
            lower.sort(key=_victims_order)
            over = {member for member in lower if member.pod.key in self.stage.over}
            self._lower[key] = [m for m in lower if m in over], [m for m in lower if m not in over]
        return self._lower[key]

    def _first(self, candidates: Sequence[Member], passed: Collection[Member], trial: Trial) -> Member | None:
        """Return the first of the victims: candidates stand in order, but that who straddles comes after who does not."""
        best: tuple[Rank, Member] | None = None
        for member in candidates:
            if member in passed:
                continue
            if best and not best[0][1] and _victims_order(member) != _victims_order(best[1]):
                break
            if (rank := trial.rank(member)) and not self._protected(member, trial):
                best = min(best or (rank, member), (rank, member), key=lambda item: item[0])
        return best[1] if best else None

    def _spared(self, candidates: Iterable[Member], trial: Trial) -> str:
        """Return how many candidates stay whom the rules would let go, by what keeps them; empty if there are none."""
        left = (member for member in candidates if member not in self._gone)
        counts = Counter(why for member in left if (why := self._protected(member, trial)) and trial.rank(member))
        whys = sorted(counts, key=lambda why: (-counts[why], why))
        others = sum(counts[why] for why in whys[_MOST_TOLD:])
        told = [f"{counts[why]} {why}" for why in whys[:_MOST_TOLD]]
        return ", ".join([*told, f"{others} for other reasons"] if others else told)

    def _protected(self, member: Member, trial: Trial) -> str:
        """Return why a pod may not be asked to go, whatever the rules say of it; empty if it may."""
        pod = member.pod
        if pod.non_preemptible:
            return "non-preemptible"
        if pod.refused_until > self.now:
            return "just refused by the API server"
        if not pod.node or pod.terminating:
            return "not bound yet, or ending"
        if pod.node in self.away:
            return "on nodes that are not ready, where no pod ends"
        if trial.budgeted(member):
            return ""
        covering = trial.covering(member)
        if len(covering) > 1:  # the API server evicts nobody whom two cover
            return f"under more than one PodDisruptionBudget ({', '.join(covering)})"
        return f"under PodDisruptionBudget {covering[0]} that allows no more"


def _victims_order(member: Member) -> tuple[int, int]:
    return member.pod.priority, -member.pod.created
