"""The nodes while it is tried out who would have to leave for a pod to fit, and while places are held for those who wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final

from policies import names
from policies.boards import Board
from policies.guests import Kept, Kind
from policies.nodesets import Nodes, nodes_in
from policies.packing import State
from policies.placement import capacity_for, is_made, resource_of, size_of
from policies.plan import Planner
from policies.promise import Claim, Role
from policies.seating import Seating
from policies.supply import Supply, survey
from policies.view import UNSCHEDULABLE_S, NodeView, PodView

_MOST_HELD: Final = 64  # places
_REMEMBERED: Final = 1 << 14  # boards of nodes, with a profile
_ONE_GB: Final = "1gb"  # the smallest slice of MPS
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
        held: claims on places that are held, for the promises made to others.
    """

    planner: Planner
    bound: Mapping[str, Sequence[PodView]]
    promised: Mapping[str, frozenset[str]]
    leaving: set[str]
    held: list[Claim] = field(default_factory=list)
    _positions: dict[str, int] = field(init=False)
    _ever: dict[Kind, bool] = field(default_factory=dict)
    _lacks: dict[tuple[Kind, int], frozenset[str]] = field(default_factory=dict)
    _spent: set[Kind] = field(default_factory=set)
    _frees: dict[str, tuple[list[tuple[int, State]], int]] = field(default_factory=dict)

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

    def hold(self, key: str, kind: Kind) -> None:
        """Keep for a pod that waits what is free on the node that can serve it soonest: where the least is missing.

        Where nothing is free of what it lacks there is nothing to keep, for it or for later pods of its kind. Only so many
        places are held at once: who stands further behind will be long in coming.
        """
        if kind in self._spent or len(self.held) >= _MOST_HELD:
            return
        home = self._hold_slices(kind) if kind.profiles else self._hold_room(kind)
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

    def _hold_room(self, kind: Kind) -> int | None:
        needs = sorted(kind.room, key=_dearest_first)
        best: tuple[list[int], int] | None = None
        for position in nodes_in(kind.candidates):
            room = self._seating.room[position]
            short = [max(0, amount - room.get(name, 0)) for name, amount in needs]
            in_vain = any(left >= amount > 0 for left, (_, amount) in zip(short, needs, strict=True))
            if not in_vain and (best is None or (short, position) < best) and _holds(self._sites[position].node, kind):
                best = short, position
        if best is None:
            return None
        self._seating.keep(best[1], Kept((), kind.room))
        return best[1]

    def _hold_slices(self, kind: Kind) -> int | None:
        """Keep the freest board of the node that has it, in the smallest slices that it makes."""
        best: tuple[int, int] | None = None
        for free, state in self._free_for(kind.profiles[0]):
            nodes = self._seating.members[state] & kind.candidates
            if nodes and (best is None or -free <= best[0]):
                position = next((place for place in nodes_in(nodes) if _holds(self._sites[place].node, kind)), None)
                if position is not None and (best is None or (-free, position) < best):
                    best = -free, position
        if best is None:
            return None
        position, room = best[1], kind.room
        for profile in kind.profiles:
            states = self._seating.states[position]
            count, plot = max((self._free(state, profile), -plot) for plot, state in enumerate(states))
            state = states[-plot]
            self._seating.keep(position, Kept(((-plot, _filler(state)),) * count, room))
            room = ()
        return position

    def _free_for(self, profile: str) -> list[tuple[int, State]]:
        """Return the states of boards that have anything free for a slice, with how much that is."""
        members = self._seating.members  # to which more are added, none taken away
        found, seen = self._frees.get(profile, ([], 0))
        found += [(free, state) for state in islice(members, seen, None) if (free := self._free(state, profile))]
        self._frees[profile] = found, len(members)
        return found

    def _free(self, state: State, profile: str) -> int:
        """Return how many of the smallest slices a board still takes, at most as many as make one of this profile."""
        if not is_made(state.face.model, state.face.mode, profile):
            return 0
        filler, count = _filler(state), 0
        while count * size_of(filler)[0] < size_of(profile)[0] and (step := self._seating.packing.add(state, filler)):
            state, count = step.state, count + 1
        return count


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


def _filler(state: State) -> str:
    """Return the smallest slice that a board makes."""
    model = state.face.model
    return model.profiles[0].name if state.face.mode == names.MIG else _ONE_GB


def _dearest_first(item: tuple[str, int]) -> tuple[bool, str]:
    return not item[0].startswith(names.NVIDIA_PREFIX), item[0]
