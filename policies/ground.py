"""The nodes while it is tried out who would have to leave for a pod to fit, and while places are held for those who wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from policies.boards import Board
from policies.guests import Kind
from policies.holding import EVERYBODY, Holding, patience
from policies.nodesets import Nodes, nodes_in
from policies.placement import capacity_for, resource_of
from policies.plan import Planner
from policies.promise import Claim, Role
from policies.seating import Seating
from policies.supply import Supply, survey
from policies.view import UNSCHEDULABLE_S, NodeView, PodView

_MOST_HELD: Final = 64  # places
_REMEMBERED: Final = 1 << 14  # boards of nodes, with a profile
SLICES: Final = "slices"
"""What a node lacks that has the room for a pod, but not its slices; no resource is called so."""


@dataclass(eq=False, slots=True)
class Ground:
    """What a planner plans on, with pods leaving.

    Attributes:
        planner: the planner.
        bound: the pods bound to each node, by its name.
        promised: the profiles on each node on which released pods could land, by its name.
        leaving: pods (namespace/name) that are on their way out, or tried out to be.
        holding: keeps places on them.
        held: claims on places that are held, for the promises made to others.
    """

    planner: Planner
    bound: Mapping[str, Sequence[PodView]]
    promised: Mapping[str, frozenset[str]]
    leaving: set[str]
    holding: Holding
    held: list[Claim] = field(default_factory=list)
    _positions: dict[str, int] = field(init=False)
    _ever: dict[Kind, bool] = field(default_factory=dict)
    _lacks: dict[tuple[Kind, int], frozenset[str]] = field(default_factory=dict)
    _spent: set[Kind] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._positions = {site.node.name: position for position, site in enumerate(self._sites)}
        # Whose victims take their time to end, and who can be served elsewhere, does not wait for them.
        if self.leaving:
            for pod in (pod for pods in self.bound.values() for pod in pods if pod.key in self.leaving):
                self.slow_down(pod)

    @property
    def _seating(self) -> Seating:
        return self.planner.found.seating

    @property
    def _sites(self) -> list[Supply]:
        return self._seating.sites

    def fits(self, kind: Kind) -> bool:
        """Return whether a pod could be seated now."""
        return self._seating.find(kind) is not None

    def ever(self, kind: Kind) -> bool:
        """Return whether a pod could be seated if all nodes open to it were empty."""
        if kind not in self._ever:
            self._ever[kind] = any(_holds(self._sites[site].node, kind) for site in nodes_in(kind.candidates))
        return self._ever[kind]

    def unused(self, kind: Kind, now: float) -> Nodes:
        """Return the nodes that have had all that a pod needs, as far as we know, for as long as the scheduler may take.

        A node that was cut a moment ago is not among them: the scheduler may not have looked at it yet.
        """
        found = 0
        for position in nodes_in(kind.candidates):
            site = self._sites[position]
            if not now - UNSCHEDULABLE_S < site.node.ordered_at <= now and kind.finds(site.grantable, site.now):
                found |= 1 << position
        return found

    def vacate(self, pod: PodView) -> None:
        """Let a pod leave."""
        self.leaving.add(pod.key)
        self._look_again(pod.node)

    def restore(self, pod: PodView) -> None:
        """Let a pod stay after all."""
        self.leaving.discard(pod.key)
        self._look_again(pod.node)

    def slow_down(self, pod: PodView) -> None:
        """Note that a pod leaves for good, so that its node is the last that others are planned on."""
        if (position := self._positions.get(pod.node)) is not None:
            self.planner.slow |= 1 << position

    def lacks(self, kind: Kind, node: str) -> frozenset[str]:
        """Return what a node lacks for a pod: resources, or SLICES; nothing where the pod may not go."""
        position = self._positions.get(node)
        if position is None or not kind.candidates >> position & 1:
            return frozenset()
        found = self._lacks.get((kind, position))
        if found is None:
            seating = self._seating
            room = seating.room[position]
            short = {name for name, amount in kind.room if amount and room.get(name, 0) < amount}
            if kind.profiles and not seating.spread(kind, seating.states[position]):
                short.add(SLICES)
            found = self._lacks[kind, position] = frozenset(short)
        return found

    def seated(self) -> None:
        """Forget what nodes lacked: somebody has been seated."""
        self._lacks.clear()

    def hold(self, key: str, kind: Kind, waited_s: float | None) -> None:
        """Keep for a pod what is free on the node that can serve it soonest, as far as its wait tells; None if it is not long.

        Where nothing is free of what the pod lacks, or no node would ever hold it, there is nothing to keep, for it or for
        later pods of its kind. Only so many places are held at once: who stands further behind will be long in coming.
        """
        if kind in self._spent or len(self.held) >= _MOST_HELD:
            return
        span_s = EVERYBODY if waited_s is None else patience(waited_s)
        home = self.holding.keep(kind, span_s) if self.ever(kind) else None
        if home is None:
            self._spent.add(kind)
            return
        self._lacks.clear()
        need = tuple(sorted(kind.need.items()))
        self.held.append(Claim(key, Role.LATER, need, kind.room, 1 << home, home))

    def _look_again(self, node: str) -> None:
        position = self._positions.get(node)
        if position is None:
            return
        bound = self.bound[node]
        leaving = {pod.key for pod in bound if pod.key in self.leaving}
        site = survey(self._sites[position].node, bound, self.promised.get(node, frozenset()), leaving)
        self._seating.alter(position, site)
        for kind, where in [key for key in self._lacks if key[1] == position]:
            del self._lacks[kind, where]


def _holds(node: NodeView, kind: Kind) -> bool:
    """Return whether a node would hold a pod if it were empty."""
    for name, amount in kind.room:
        if node.allocatable.get(name, 0) < amount:
            return False
    for profile, count in kind.need.items():
        if count > max(_most(node.boards, profile), node.allocatable.get(resource_of(profile), 0) // 1000):
            return False
    return True


@lru_cache(maxsize=_REMEMBERED)
def _most(boards: tuple[Board, ...], profile: str) -> int:
    """Return how many slices of a profile boards could bear; one that cannot be cut stays as it is."""
    return sum(
        capacity_for(board.model, board.mode, (), profile)
        if board.cuttable
        else sum(item.profile == profile for item in board.slices)
        for board in boards
    )
