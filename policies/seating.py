"""Where pods sit while a plan is made: the working state of the planner, which puts pods on nodes and takes them off."""

from bisect import insort
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import islice
from operator import and_, itemgetter, or_

from policies.geometry import Profiles
from policies.guests import Guest, Kept, Kind, Seat
from policies.nodesets import Nodes, nodes_in
from policies.packing import NOTHING, Cost, Packing, State
from policies.plots import gives
from policies.ranking import Ranking
from policies.spreading import IMPOSSIBLE, Spread, Spreading
from policies.supply import Supply

_by_cost = itemgetter(0)


class Seating:
    """Boards and room of all nodes, with the pods planned so far.

    Attributes:
        sites: the nodes, by name.
        packing: the states of their boards.
        states: the state of each board of each node.
        members: the nodes that have a board in a state.
        room: what each node has left besides slices.
        guests: the pods on each node, in the order of their coming.
        shared: nodes on which there are any.
        kinds: the kinds of pods that have been looked at.
    """

    def __init__(self, sites: Sequence[Supply], packing: Packing | None = None) -> None:
        """Begin with the nodes, on which nobody sits; `packing` are states of boards that are known."""
        self.sites = list(sites)
        self.packing = Packing() if packing is None else packing
        self.states = [[self.packing.start(plot.face) for plot in site.plots] for site in self.sites]
        self.room = [dict(site.room) for site in self.sites]
        self.members: dict[State, Nodes] = {}
        self.guests: list[dict[Guest, None]] = [{} for _ in self.sites]
        self.shared: Nodes = 0
        self.kinds: list[Kind] = []
        self._kept: dict[int, list[Kept]] = {}
        self._ranked: dict[str, list[tuple[Cost, State]]] = {}
        self._spreading = Spreading(self.packing)
        self._bounds: dict[tuple[Profiles, bool], tuple[list[tuple[Cost, State]], int]] = {}
        self._spread: dict[tuple[Profiles, bool], Ranking] = {}
        self._givers: dict[str, Nodes] = {}
        self._changed: list[int] = []  # nodes whose boards have come into other states, in turn
        self._left: list[int] = []  # nodes on which there is more room than there was, in turn
        for position, states in enumerate(self.states):
            for state in states:
                self.members[state] = self.members.get(state, 0) | 1 << position

    def copy(self) -> "Seating":
        """Return another one with the same nodes; on neither anybody sits yet, and of this one nothing was asked."""
        self._changed.clear()
        self._left.clear()
        self.members = {state: nodes for state, nodes in self.members.items() if nodes}
        other = Seating((), self.packing)
        other.sites, other.guests = self.sites.copy(), [{} for _ in self.sites]
        other.states = [states.copy() for states in self.states]
        other.room = [room.copy() for room in self.room]
        other.members = self.members.copy()
        return other

    def find(self, kind: Kind, nodes: Nodes = -1) -> tuple[Cost, Seat] | None:
        """Return the cheapest seat for a pod with its cost, or None; of equal ones that of the first node and board.

        `nodes` are those that are looked at: all, if not said.
        """
        if len(kind.profiles) == 1:
            return self._find_one(kind, kind.profiles[0], nodes)
        if not kind.profiles:
            return next(((NOTHING, Seat(site, ())) for site in self.roomy(kind, kind.candidates & nodes)), None)
        return self._find_several(kind, kind.candidates & nodes)

    def find_on(self, kind: Kind, site: int) -> Seat | None:
        """Return the cheapest seat for a pod on one node, or None."""
        for _ in self.roomy(kind, kind.candidates & 1 << site):
            if spread := self.spread(kind, self.states[site]):
                return Seat(site, spread[1])
        return None

    def put(self, guest: Guest, seat: Seat) -> None:
        """Seat a pod."""
        guest.seat = seat
        self.guests[seat.site][guest] = None
        self.shared |= 1 << seat.site
        room = self.room[seat.site]
        for name, amount in guest.kind.room:
            room[name] = room.get(name, 0) - amount
        for profile, plot in zip(guest.kind.profiles, seat.plots, strict=True):
            step = self.packing.add(self.states[seat.site][plot], profile)
            assert step is not None, guest.key  # noqa: S101 - seats come from `find` and `spreads`
            self._enter(seat.site, plot, step.state)

    def take(self, guest: Guest) -> Seat:
        """Take a pod off its seat; return that."""
        seat, guest.seat = guest.home, None
        del self.guests[seat.site][guest]
        if not self.guests[seat.site]:
            self.shared &= ~(1 << seat.site)
        room = self.room[seat.site]
        for name, amount in guest.kind.room:
            room[name] += amount
        for profile, plot in zip(guest.kind.profiles, seat.plots, strict=True):
            self._enter(seat.site, plot, self.packing.remove(self.states[seat.site][plot], profile))
        self._left.append(seat.site)
        return seat

    def keep(self, site: int, kept: Kept) -> None:
        """Take slices, as far as they can be had, and room, which may fall below zero, from all who come later."""
        had = []
        for plot, profile in kept.slices:
            if step := self.packing.add(self.states[site][plot], profile):
                self._enter(site, plot, step.state)
                had.append((plot, profile))
        for name, amount in kept.room:
            self.room[site][name] = self.room[site].get(name, 0) - amount
        self._kept.setdefault(site, []).append(Kept(tuple(had), kept.room))

    def let_go(self) -> None:
        """Take back all that is kept: it stands for nobody's slices, so that none may be cut for it."""
        for site, everything in self._kept.items():
            for kept in everything:
                for name, amount in kept.room:
                    self.room[site][name] += amount
                for plot, profile in kept.slices:
                    self._enter(site, plot, self.packing.remove(self.states[site][plot], profile))
            self._left.append(site)
        self._kept.clear()

    def alter(self, position: int, site: Supply) -> None:
        """Let a node be another: pods have left it, or have not after all. Who was seated there keeps its seat.

        Raises AssertionError if somebody cannot.
        """
        guests = [(guest, self.take(guest)) for guest in reversed(list(self.guests[position]))]
        for state in set(self.states[position]):
            self.members[state] &= ~(1 << position)
        self.sites[position] = site
        self.states[position] = [self.packing.start(plot.face) for plot in site.plots]
        self.room[position] = dict(site.room)
        for state in self.states[position]:
            self._join(state, position)
        self._changed.append(position)
        self._givers.clear()
        for guest, seat in reversed(guests):
            self.put(guest, seat)
        kept = self._kept.pop(position, [])
        for each in kept:
            self.keep(position, each)
        self._left.append(position)
        for kind in self.kinds:
            kind.refused = False

    def roomy(self, kind: Kind, nodes: Nodes) -> Iterator[int]:
        """Yield the nodes among these that have room for a pod, first by name first."""
        for site in set(self._left[kind.seen :]):
            kind.full &= ~(1 << site)
        kind.seen = len(self._left)
        for site in nodes_in(nodes & ~kind.full):
            room = self.room[site]
            if all(room.get(name, 0) >= amount for name, amount in kind.room):
                yield site
            else:
                kind.full |= 1 << site

    def spread(self, kind: Kind, states: Sequence[State]) -> Spread | None:
        """Return the cheapest way to spread a pod's slices over the boards of a node, or None."""
        return self._spreading.best(kind.profiles, states, settled=kind.settled)

    def spreads(self, kind: Kind, site: int) -> list[Spread]:
        """Return the ways to spread a pod's slices over the boards of a node, cheapest first; equal boards count once."""
        return self._spreading.ways(kind.profiles, self.states[site], settled=kind.settled)

    def takers(self, profile: str) -> Nodes:
        """Return the nodes of which a board can take one slice more of a profile, be it created or not."""
        return reduce(or_, (self.members[state] for _, state in self._ranking(profile)), 0)

    def contested(self, kind: Kind) -> Nodes:
        """Return the nodes where a pod may find its place if others leave theirs: somebody sits there, boards give its slices."""
        return reduce(and_, map(self._giving, kind.need), kind.candidates & self.shared)

    def _giving(self, profile: str) -> Nodes:
        """Return the nodes that have a board which gives a slice, if not to all who want one."""
        if profile not in self._givers:
            states = (state for state in self.members if gives(state.face, profile))
            self._givers[profile] = reduce(or_, map(self.members.__getitem__, states), 0)
        return self._givers[profile]

    def _find_several(self, kind: Kind, among: Nodes) -> tuple[Cost, Seat] | None:
        """Return the cheapest seat for a pod of several slices, going through the nodes from the cheapest on."""
        key = kind.profiles, kind.settled
        if (ranking := self._spread.get(key)) is None:
            ranking = self._spread[key] = Ranking((1 << len(self.sites)) - 1, seen=len(self._changed))
        for site in set(self._changed[ranking.seen :]):
            ranking.forget(site)
        ranking.seen = len(self._changed)
        entry = ranking.cheapest(
            self._able(kind, ranking.stale & among),
            lambda nodes: self.roomy(kind, nodes & among),
            lambda site: self.spread(kind, self.states[site]),
        )
        return entry and (entry[0], Seat(*entry[1:]))

    def _able(self, kind: Kind, among: Nodes) -> Iterator[tuple[Cost, Nodes]]:
        """Yield nodes that may be able to take a pod's slices, with the least that it may cost there, which only grows."""
        profile = kind.profiles[0]
        if len(set(kind.profiles)) > 1:  # of which no bound is known
            yield -IMPOSSIBLE, among & self.takers(profile)
            return
        bounds, seen = self._bounds.get((kind.profiles, kind.settled), ([], 0))
        for state in islice(self.members, seen, None):  # to which more are added, none taken away
            least = self._spreading.least(state, kind.profiles, settled=kind.settled)
            if least != IMPOSSIBLE:
                insort(bounds, (least, state), key=_by_cost)
        self._bounds[kind.profiles, kind.settled] = bounds, len(self.members)
        for least, state in bounds:
            if nodes := self.members[state] & among:
                yield least, nodes

    def _find_one(self, kind: Kind, profile: str, among: Nodes) -> tuple[Cost, Seat] | None:
        """Return the cheapest seat for a pod of one slice, going through the states of boards from the cheapest on."""
        best: tuple[Cost, Seat] | None = None
        for cost, state in self._ranking(profile):
            if best and cost != best[0]:
                break
            nodes = self.members[state] & kind.candidates & among
            if not nodes or self._spreading.step(state, profile, settled=kind.settled) is None:
                continue
            for site in self.roomy(kind, nodes):
                seat = Seat(site, (self.states[site].index(state),))
                if best is None or seat < best[1]:
                    best = cost, seat
                break
        return best

    def _ranking(self, profile: str) -> list[tuple[Cost, State]]:
        """Return the states that can take one slice more of a profile, cheapest first."""
        ranking = self._ranked.get(profile)
        if ranking is None:
            steps = [(self.packing.add(state, profile), state) for state in self.members]
            ranking = self._ranked[profile] = sorted(
                ((step.cost, state) for step, state in steps if step), key=_by_cost
            )
        return ranking

    def _enter(self, site: int, plot: int, state: State) -> None:
        """Bring a board into another state."""
        before, self.states[site][plot] = self.states[site][plot], state
        self._changed.append(site)
        if before not in self.states[site]:
            self.members[before] &= ~(1 << site)
        self._join(state, site)

    def _join(self, state: State, site: int) -> None:
        """Note that a node has a board in a state, which the rankings may not know yet."""
        if state not in self.members:
            self.members[state] = 0
            for profile, ranking in self._ranked.items():
                if step := self.packing.add(state, profile):
                    insort(ranking, (step.cost, state), key=_by_cost)
        self.members[state] |= 1 << site
