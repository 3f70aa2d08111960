"""Where pods sit while a plan is made: the working state of the planner, which puts pods on nodes and takes them off.

Sets of nodes are bits of an integer (bit i is node i), so that "which nodes have such a board and may take such a
pod" is one `&` however many nodes there are.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import NamedTuple

from policies.geometry import Profiles
from policies.packing import NOTHING, Cost, Packing, State
from policies.spreading import Spread, Spreading
from policies.supply import Supply

Nodes = int
"""A set of nodes as bits."""


class Seat(NamedTuple):
    """A node, and for each slice of the pod the board (its position among the node's)."""

    site: int
    plots: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Kind:
    """Pods that need the same and may go to the same nodes.

    Attributes:
        profiles: a slice each, largest first.
        room: what each takes besides slices, in thousandths.
        candidates: nodes that admit it.
        settled: released already, so that only slices that exist (or are coming) serve it.
        size: GB of its slices.
        crowded: candidates that have turned out to lack room, until somebody leaves them.
        refused: one of them could not be served, so no later one can.
    """

    profiles: Profiles
    room: tuple[tuple[str, int], ...]
    candidates: Nodes
    settled: bool = False
    size: int = 0
    crowded: Nodes = 0
    refused: bool = False


@dataclass(eq=False, slots=True)
class Guest:
    """A pod in the plan, and where it sits; None while it does not."""

    key: str
    kind: Kind
    seat: Seat | None = None

    @property
    def home(self) -> Seat:
        """Return the seat of a pod that has one."""
        assert self.seat is not None, self.key  # noqa: S101 - who asks has seen it seated
        return self.seat


def nodes_in(nodes: Nodes) -> Iterator[int]:
    """Yield the positions of the nodes in a set, lowest first."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


class Kept(NamedTuple):
    """What is kept on a node for somebody who cannot be seated yet: slices as (board, profile), and room."""

    slices: tuple[tuple[int, str], ...]
    room: tuple[tuple[str, int], ...]


@dataclass(eq=False, slots=True)
class _Ranking:
    """Nodes by what it costs there to spread some slices.

    Attributes:
        order: (cost, node, boards), cheapest first.
        of: the entry of each node that has one.
        seen: how many of the changes of nodes it knows.
        stale: nodes that have changed since their entry was made.
    """

    stale: Nodes
    order: list[tuple[Cost, int, tuple[int, ...]]] = field(default_factory=list)
    of: dict[int, tuple[Cost, int, tuple[int, ...]]] = field(default_factory=dict)
    seen: int = 0

    def enter(self, site: int, spread: Spread | None) -> None:
        """Note what it costs on a node now; None if it cannot be had there."""
        if (before := self.of.pop(site, None)) is not None:
            del self.order[bisect_left(self.order, before)]
        if spread is not None:
            self.of[site] = entry = (spread[0], site, spread[1])
            insort(self.order, entry)


@dataclass(eq=False, slots=True)
class Seating:
    """Boards and room of all nodes, with the pods planned so far.

    Attributes:
        sites: the nodes, by name.
        packing: the states of their boards.
        states: the state of each board of each node.
        room: what each node has left besides slices.
        guests: the pods on each node, in the order of their coming.
        shared: nodes on which there are any.
    """

    sites: list[Supply]
    packing: Packing = field(default_factory=Packing)
    states: list[list[State]] = field(init=False)
    room: list[dict[str, int]] = field(init=False)
    guests: list[dict[Guest, None]] = field(init=False)
    shared: Nodes = 0
    kinds: list[Kind] = field(default_factory=list)
    _kept: dict[int, list["Kept"]] = field(default_factory=dict)
    _members: dict[State, Nodes] = field(default_factory=dict)
    _ranked: dict[str, list[tuple[Cost, int, State]]] = field(default_factory=dict)
    _spreading: Spreading = field(init=False)
    _spread: dict[tuple[Profiles, bool], _Ranking] = field(default_factory=dict)
    _changed: list[int] = field(default_factory=list)  # nodes whose boards have come into other states, in turn

    def __post_init__(self) -> None:
        self._spreading = Spreading(self.packing)
        self.states = [[self.packing.start(plot) for plot in site.plots] for site in self.sites]
        self.room = [dict(site.room) for site in self.sites]
        self.guests = [{} for _ in self.sites]
        for position, states in enumerate(self.states):
            for state in states:
                self._members[state] = self._members.get(state, 0) | 1 << position

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
        for kind in self.kinds:
            kind.crowded &= ~(1 << seat.site)
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

    def boards_on(self, nodes: Nodes) -> Iterator[tuple[State, Nodes]]:
        """Yield the states of boards on some nodes, each once, with those of the nodes that have such a board."""
        for state, where in self._members.items():
            if where & nodes:
                yield state, where & nodes

    def let_go(self) -> None:
        """Take back all that is kept: it stands for nobody's slices, so that none may be cut for it."""
        for site, everything in self._kept.items():
            for kept in everything:
                for name, amount in kept.room:
                    self.room[site][name] += amount
                for plot, profile in kept.slices:
                    self._enter(site, plot, self.packing.remove(self.states[site][plot], profile))
            for kind in self.kinds:
                kind.crowded &= ~(1 << site)
        self._kept.clear()

    def alter(self, position: int, site: Supply) -> None:
        """Let a node be another: pods have left it, or have not after all. Who was seated there keeps its seat.

        Raises AssertionError if somebody cannot.
        """
        guests = [(guest, self.take(guest)) for guest in reversed(list(self.guests[position]))]
        for state in set(self.states[position]):
            self._members[state] &= ~(1 << position)
        self.sites[position] = site
        self.states[position] = [self.packing.start(plot) for plot in site.plots]
        self.room[position] = dict(site.room)
        for state in self.states[position]:
            self._join(state, position)
        self._changed.append(position)
        for guest, seat in reversed(guests):
            self.put(guest, seat)
        kept = self._kept.pop(position, [])
        for each in kept:
            self.keep(position, each)
        for kind in self.kinds:
            kind.crowded &= ~(1 << position)
            kind.refused = False

    def roomy(self, kind: Kind, nodes: Nodes) -> Iterator[int]:
        """Yield the nodes among these that have room for a pod, first by name first."""
        for site in nodes_in(nodes & ~kind.crowded):
            room = self.room[site]
            if all(room.get(name, 0) >= amount for name, amount in kind.room):
                yield site
            else:
                kind.crowded |= 1 << site

    def spread(self, kind: Kind, states: Sequence[State]) -> Spread | None:
        """Return the cheapest way to spread a pod's slices over the boards of a node, or None."""
        return self._spreading.best(kind.profiles, states, settled=kind.settled)

    def spreads(self, kind: Kind, site: int) -> list[Spread]:
        """Return the ways to spread a pod's slices over the boards of a node, cheapest first; equal boards count once."""
        return self._spreading.ways(kind.profiles, self.states[site], settled=kind.settled)

    def takers(self, profile: str) -> Nodes:
        """Return the nodes of which a board can take one slice more of a profile, be it created or not."""
        return reduce(or_, (self._members[state] for _, _, state in self._ranking(profile)), 0)

    def _find_several(self, kind: Kind, among: Nodes) -> tuple[Cost, Seat] | None:
        """Return the cheapest seat for a pod of several slices, going through the nodes from the cheapest on."""
        key = kind.profiles, kind.settled
        if (ranking := self._spread.get(key)) is None:
            ranking = self._spread[key] = _Ranking(stale=(1 << len(self.sites)) - 1)
        for site in set(self._changed[ranking.seen :]):
            ranking.stale |= 1 << site
        ranking.seen = len(self._changed)
        able = self.takers(kind.profiles[0])
        for site in nodes_in(ranking.stale & among):
            ranking.enter(site, self.spread(kind, self.states[site]) if able >> site & 1 else None)
        ranking.stale &= ~among
        for cost, site, plots in ranking.order:
            for _ in self.roomy(kind, among & 1 << site):
                return cost, Seat(site, plots)
        return None

    def _find_one(self, kind: Kind, profile: str, among: Nodes) -> tuple[Cost, Seat] | None:
        """Return the cheapest seat for a pod of one slice, going through the states of boards from the cheapest on."""
        best: tuple[Cost, Seat] | None = None
        for cost, _, state in self._ranking(profile):
            if best and cost != best[0]:
                break
            nodes = self._members.get(state, 0) & kind.candidates & among
            if not nodes or self._spreading.step(state, profile, settled=kind.settled) is None:
                continue
            for site in self.roomy(kind, nodes):
                seat = Seat(site, (self.states[site].index(state),))
                if best is None or seat < best[1]:
                    best = cost, seat
                break
        return best

    def _ranking(self, profile: str) -> list[tuple[Cost, int, State]]:
        """Return the states that can take one slice more of a profile, cheapest first."""
        ranking = self._ranked.get(profile)
        if ranking is None:
            steps = [(self.packing.add(state, profile), state) for state in self._members]
            ranking = sorted((step.cost, state.number, state) for step, state in steps if step)
            self._ranked[profile] = ranking
        return ranking

    def _enter(self, site: int, plot: int, state: State) -> None:
        """Bring a board into another state."""
        before, self.states[site][plot] = self.states[site][plot], state
        self._changed.append(site)
        if before not in self.states[site]:
            self._members[before] &= ~(1 << site)
        self._join(state, site)

    def _join(self, state: State, site: int) -> None:
        """Note that a node has a board in a state, which the rankings may not know yet."""
        if state not in self._members:
            self._members[state] = 0
            for profile, ranking in self._ranked.items():
                if step := self.packing.add(state, profile):
                    insort(ranking, (step.cost, state.number, state))
        self._members[state] |= 1 << site
