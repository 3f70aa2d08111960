"""On which node a place is kept for a pod that waits: where those who may end soonest are all that stand in its way.

Nobody knows when a pod ends. Who has run for long tends to run on, so whoever has run for longer than a quarter to a half
of the time for which the pod has waited is taken to stay: a service that never ends is found out in the end, and who runs
for less than that never is (docs/adr/0034). Of the nodes that could serve the pod when the others have ended, that
is held where the least is missing. As nobody younger gets in there, less and less is.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby, islice
from math import inf
from operator import itemgetter, or_
from typing import Final, NamedTuple

from policies import names
from policies.geometry import Profiles
from policies.guests import Kept, Kind
from policies.nodesets import Nodes, nodes_in
from policies.packing import Rank, State
from policies.placement import is_made
from policies.plots import gives
from policies.seating import Seating
from policies.supply import Room, survey
from policies.view import NodeView, PodView

EVERYBODY: Final = inf
"""For how long those have run who may end, where nobody is taken to stay."""

_THERE: Final = Rank(there=True)
_FAR: Final = Rank()
_ONE_GB: Final = "1gb"  # the smallest slice of MPS

_Near = tuple[tuple[Rank, ...], Nodes]
"""Nodes, and how near to giving the largest slice a board of theirs is; nothing where no slice is asked for."""


class _Place(NamedTuple):
    """A place on a node: how near each slice is, in their order, and the board (its position among the node's)."""

    ranks: tuple[Rank, ...]
    plots: tuple[int, ...]


def patience(waited_s: float) -> float:
    """Return for how many seconds somebody has run at most who is taken to end, to a pod that has waited for so many.

    Half of them, down to a power of two: what is held does not change from one moment to the next.
    """
    half = int(waited_s) // 2
    return 1 << half.bit_length() - 1 if half > 0 else 0


@dataclass(eq=False, slots=True)
class Left:
    """What a node has when those have ended who may.

    Attributes:
        node: the node.
        bound: who is bound there.
        since: from when, in seconds since the epoch, ...
        until: ... until when the same of them are taken to end, as long as those are all.
        states: its boards then.
        room: what it has besides slices then, in thousandths.
    """

    node: NodeView
    bound: Sequence[PodView]
    since: float
    until: float
    states: tuple[State, ...]
    room: Room
    _gives: dict[str, bool] = field(default_factory=dict)

    def holds_for(self, node: NodeView, bound: Sequence[PodView], now: float) -> bool:
        """Return whether nothing has changed since."""
        return self.node is node and self.since <= now <= self.until and self.bound == bound

    def gives(self, profile: str) -> bool:
        """Return whether one of the boards has a place for a slice of a profile."""
        if (found := self._gives.get(profile)) is None:
            found = self._gives[profile] = any(gives(state.face, profile) for state in self.states)
        return found


Lefts = Mapping[tuple[str, float], Left]
"""By name of the node, and for how many seconds those have run at most who are taken to end."""


@dataclass(eq=False, slots=True)
class Holding:
    """Keeps places on nodes.

    Attributes:
        seating: the nodes, with who has been planned there.
        bound: the pods bound to each node, by its name.
        going: pods (namespace/name) that are on their way out.
        now: seconds since the epoch.
        before: what nodes were found to have at an earlier decision, for what has not changed since.
        found: the same of this decision.
    """

    seating: Seating
    bound: Mapping[str, Sequence[PodView]]
    going: Collection[str]
    now: float
    before: Lefts
    found: dict[tuple[str, float], Left] = field(default_factory=dict)
    _ranked: dict[str, tuple[list[tuple[Rank, State]], int]] = field(default_factory=dict)
    _unable: dict[tuple[Profiles, float], Nodes] = field(default_factory=dict)

    def keep(self, kind: Kind, span_s: float) -> int | None:
        """Keep what is free for a pod on the node that can serve it soonest; return that, or None if nothing is free.

        Who has run for so many seconds at most is taken to end. Where that leaves no node for the pod, everybody is.
        """
        near = list(self._boards(kind) if kind.profiles else self._rooms(kind))
        found = near and (self._soonest(kind, near, span_s) or self._soonest(kind, near, EVERYBODY))
        if not found:
            return None
        position, place = found
        self.seating.keep(position, Kept(tuple(self._free_on(position, kind, place)), kind.room))
        return position

    def _soonest(self, kind: Kind, near: list[_Near], span_s: float) -> tuple[int, _Place] | None:
        """Return the nearest node that could serve a pod when those have ended who may, the first of equal ones."""
        for ranks, nodes in near:
            largest = kind.profiles[:1]  # none of a pod that lacks room only
            best: tuple[int, _Place] | None = None
            for position in nodes_in(nodes & ~self._unable.get((largest, span_s), 0)):
                left = self._when_left(position, span_s)
                if not all(map(left.gives, largest)):
                    self._unable[largest, span_s] = self._unable.get((largest, span_s), 0) | 1 << position
                    continue
                place = self._place(kind, position, left)
                if place and place.ranks[:1] == ranks and (best is None or place.ranks > best[1].ranks):
                    best = position, place
                    if len(kind.profiles) <= 1:
                        break
            if best:
                return best
        return None

    def _rooms(self, kind: Kind) -> Iterator[_Near]:
        """Yield the nodes, one by one, where something is free of all that a pod lacks, those first where it lacks least."""
        needs = sorted(kind.room, key=_dearest_first)
        near: list[tuple[list[int], int]] = []
        for position in nodes_in(kind.candidates):
            room = self.seating.room[position]
            short = [max(0, amount - room.get(name, 0)) for name, amount in needs]
            if not any(left >= amount > 0 for left, (_, amount) in zip(short, needs, strict=True)):
                near.append((short, position))
        yield from (((), 1 << position) for _, position in sorted(near))

    def _boards(self, kind: Kind) -> Iterator[_Near]:
        """Yield the nodes of which a board has anything free for the largest slice, those first of which it is nearest."""
        for rank, states in self._by_rank(kind.profiles[0]):
            if nodes := reduce(or_, [self.seating.members[state] for state in states]) & kind.candidates:
                yield (rank,), nodes

    def _place(self, kind: Kind, position: int, left: Left) -> _Place | None:
        """Return the nearest place on a node that could serve a pod when those have ended who may, and so much is left; or None.

        Slice after slice, the largest first, is looked for on the board that is nearest to giving it.
        """
        for name, amount in kind.room:
            if left.room.get(name, 0) < amount:
                return None
        packing, ranks, plots = self.seating.packing, list[Rank](), list[int]()
        then = list(left.states)
        now = self.seating.states[position].copy()
        for profile in kind.profiles:
            able = [(self._rank(now[n], profile), -n) for n, state in enumerate(then) if packing.add(state, profile)]
            if not able:
                return None
            rank, plot = max(able)
            ranks.append(rank)
            plots.append(-plot)
            for states in (then, now):
                if step := packing.add(states[-plot], profile):
                    states[-plot] = step.state
        return _Place(tuple(ranks), tuple(plots))

    def _free_on(self, position: int, kind: Kind, place: _Place) -> Iterator[tuple[int, str]]:
        """Yield what is free there: slices that the pod needs; else all that a board has, for anything could be in the way."""
        blocked: dict[int, None] = {}
        for profile, plot, rank in zip(kind.profiles, place.plots, place.ranks, strict=True):
            if rank == _THERE:
                yield plot, profile
            elif rank > _FAR:
                blocked[plot] = None
        for plot in blocked:
            state = self.seating.states[position][plot]
            yield from [(plot, _filler(state))] * self._room_for(state, _filler(state))

    def _when_left(self, position: int, span_s: float) -> Left:
        """Return what a node has when those have ended who have run for so many seconds at most, or are on their way out.

        Whom the scheduler has yet to bind has not come: what is free for it is not there for good.
        """
        node = self.seating.sites[position].node
        key = node.name, span_s
        if (left := self.found.get(key)) is None:
            bound, left = self.bound[node.name], self.before.get(key)
            if left is None or not left.holds_for(node, bound, self.now):
                left = self._look(node, bound, span_s)
            self.found[key] = left
        return left

    def _look(self, node: NodeView, bound: Sequence[PodView], span_s: float) -> Left:
        young = [pod for pod in bound if self.now - pod.since <= span_s]
        gone = {pod.key for pod in young}.union(pod.key for pod in bound if pod.key in self.going)
        then = survey(node, bound, leaving=gone)
        until = min((pod.since + span_s for pod in young), default=inf)
        states = tuple([self.seating.packing.start(plot.face) for plot in then.plots])
        return Left(node, bound, self.now, until, states, then.room)

    def _by_rank(self, profile: str) -> Iterator[tuple[Rank, list[State]]]:
        """Yield the states of boards that have anything free for a slice, the nearest first, equally near ones together."""
        members = self.seating.members  # to which more are added, none taken away
        found, seen = self._ranked.get(profile, ([], 0))
        if seen < len(members):
            more = ((self._rank(state, profile), state) for state in islice(members, seen, None))
            found = sorted([*found, *(one for one in more if one[0] > _FAR)], key=itemgetter(0), reverse=True)
            self._ranked[profile] = found, len(members)
        for rank, group in groupby(found, key=itemgetter(0)):
            yield rank, [state for _, state in group]

    def _rank(self, state: State, profile: str) -> Rank:
        if (found := state.near.get(profile)) is None:
            if self.seating.packing.add(state, profile):
                found = _THERE
            elif is_made(state.face.model, state.face.mode, profile):
                found = Rank(free=self._room_for(state, _filler(state)))
            else:
                found = _FAR
            state.near[profile] = found
        return found

    def _room_for(self, state: State, profile: str) -> int:
        """Return how many slices of a profile a board still takes."""
        count = 0
        while step := self.seating.packing.add(state, profile):
            state, count = step.state, count + 1
        return count


def _filler(state: State) -> str:
    """Return the smallest slice that a board makes."""
    model = state.face.model
    return model.profiles[0].name if state.face.mode == names.MIG else _ONE_GB


def _dearest_first(item: tuple[str, int]) -> tuple[bool, str]:
    return not item[0].startswith(names.NVIDIA_PREFIX), item[0]
