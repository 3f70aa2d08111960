"""Whether the pods of a few nodes, and one more, can be spread over these nodes anew: exactly, and without their costs.

A pod is bound to a node, not to a board, so only two things are asked: how many pods of each kind go to each node, and
whether the boards of a node together make so many slices of each profile. Pods of one kind are not told apart, nor are
boards in one state; what boards make is worked out once for each state.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from operator import or_

from policies.guests import Guest, Kind, Seat
from policies.nodesets import nodes_in
from policies.packing import Packing, State
from policies.placement import largest_first, size_of
from policies.search import Budget
from policies.seating import Seating

Amounts = tuple[int, ...]
"""Slices, in the order of a list of profiles."""

_NODES = 3  # whose pods are spread anew at a time
_FREEST = 24  # nodes that are looked at for one pod
_TRIES = 5_000  # for one pod
_MOST_MIXES = 256  # that one board can make and that are looked at: more than any MIG board has


@dataclass(eq=False, slots=True)
class Regroup:
    """Spreads pods over nodes anew, and remembers what boards make.

    Attributes:
        seating: the pods on their seats.
        budget: of the work; a question that was answered before costs nothing.
    """

    seating: Seating
    budget: Budget
    _mixes: dict[tuple[State, tuple[str, ...]], list[Amounts]] = field(default_factory=dict)
    _free: dict[tuple[State, ...], tuple[int, int]] = field(default_factory=dict)
    _packed: dict[tuple[object, ...], list[Amounts] | None] = field(default_factory=dict)

    def make_room(self, guest: Guest) -> bool:
        """Seat a pod on a few of the freest nodes, who sit there being spread over them anew; return whether it sits."""
        seating, budget = self.seating, self.budget.at_most(_TRIES)
        shared = seating.contested(guest.kind)
        if not shared or not self.budget.spend():
            return False
        sites, profiles = guest.kind.candidates, dict.fromkeys(guest.kind.profiles)
        for site in nodes_in(shared):
            for other in seating.guests[site]:
                sites |= other.kind.candidates
                profiles |= dict.fromkeys(other.kind.profiles)
        # Where nobody sits and nothing more can be had nobody moves to.
        sites &= seating.shared | reduce(or_, map(seating.takers, profiles), 0)
        need = _sum(map(size_of, guest.kind.profiles))
        free = {site: self._left(tuple(seating.states[site])) for site in nodes_in(sites)}
        freest = sorted(free, key=lambda site: (*(-left for left in free[site]), site))[:_FREEST]
        hosts = {
            site for site in freest if shared >> site & 1 and budget.spend() and self._could_host(guest.kind, site)
        }
        if not hosts:
            return False
        for size in range(1, _NODES + 1):
            for group in combinations(freest, size):
                enough = all(
                    left >= asked for left, asked in zip(_sum(free[site] for site in group), need, strict=True)
                )
                if not enough or hosts.isdisjoint(group):
                    continue
                if not budget.spend():
                    return False
                if self._seat(guest, group, budget):
                    return True
        return False

    def _movable(self, site: int) -> list[Guest]:
        """Return the pods on a node that may move."""
        return [other for other in self.seating.guests[site] if other.kind.profiles and not other.kind.settled]

    def _could_host(self, kind: Kind, site: int) -> bool:
        """Return whether a node would hold a pod if all who may move had left, and that could be for another pod's place.

        Pods of its own kind do not give way to it: of slices that are alike a node holds as many whoever has them.
        """
        movable = self._movable(site)
        if len(set(kind.profiles)) == 1 and all(other.kind is kind for other in movable):
            return False
        place = _Place.without(self.seating, site, movable, kind.profiles)
        roomy = all(place.room.get(name, 0) >= amount for name, amount in kind.room)
        return roomy and self.seating.spread(kind, place.boards) is not None

    def _left(self, states: tuple[State, ...]) -> tuple[int, int]:
        """Return about how many GB and compute slices of a node's boards nobody holds, rather too many than too few."""
        if states not in self._free:
            self._free[states] = _sum(map(_left, states))
        return self._free[states]

    def _seat(self, guest: Guest, sites: Sequence[int], budget: Budget) -> bool:
        """Seat a pod on one of these nodes, moving others among them; return whether it sits, else nothing has changed."""
        movable = [other for site in sites for other in self._movable(site)]
        everybody = [*movable, guest]
        kinds = sorted(Counter(other.kind for other in everybody).items(), key=_hardest_first)
        profiles = tuple(sorted({name for kind, _ in kinds for name in kind.profiles}, key=largest_first))
        places = [_Place.without(self.seating, site, movable, profiles) for site in sites]
        if not self._spread(kinds, places, budget):
            return False
        for other in movable:
            self.seating.take(other)
        for place in places:
            self._settle(place, everybody, profiles)
        return True

    def _spread(self, kinds: Sequence[tuple[Kind, int]], places: Sequence["_Place"], budget: Budget) -> bool:
        """Give every pod a node so that each can hold its own; what is found is in the places."""
        if not kinds:
            return True
        (kind, count), *others = kinds
        for shares in _shares(count, [bool(kind.candidates >> place.site & 1) for place in places]):
            if not budget.spend():
                return False
            for place, share in zip(places, shares, strict=True):
                place.add(kind, share)
            given = [place for place, share in zip(places, shares, strict=True) if share]
            if all(self._holds(place, budget) for place in given) and self._spread(others, places, budget):
                return True
            for place, share in zip(places, shares, strict=True):
                place.add(kind, -share)
        return False

    def _holds(self, place: "_Place", budget: Budget) -> bool:
        return (
            all(left >= 0 for left in place.room.values())
            and self._fill(place.boards, tuple(place.need), tuple(place.need.values()), budget) is not None
        )

    def _fill(
        self, boards: tuple[State, ...], profiles: tuple[str, ...], need: Amounts, budget: Budget
    ) -> list[Amounts] | None:
        """Return for each board the slices that it makes so that all make what is needed, or None."""
        if not any(need):
            return [()] * len(boards)
        key = (boards, profiles, need)
        if key in self._packed:
            return self._packed[key]
        if not boards or not budget.spend():
            return None
        found = None
        mixes = [self._mixes_of(board, profiles) for board in boards]
        if all(sum(max(mix[i] for mix in each) for each in mixes) >= count for i, count in enumerate(need)):
            weights = [size_of(profile)[0] for profile in profiles]
            for used in _useful(mixes[0], need, weights):
                left = tuple(count - had for count, had in zip(need, used, strict=True))
                rest = self._fill(boards[1:], profiles, left, budget)
                if rest is not None:
                    found = [used, *rest]
                    break
        if found is not None or budget.tries >= 0:
            self._packed[key] = found
        return found

    def _mixes_of(self, board: State, profiles: tuple[str, ...]) -> list[Amounts]:
        """Return what a board can make of these profiles: the sets to which nothing can be added."""
        key = (board, profiles)
        if key not in self._mixes:
            self._mixes[key] = _mixes(self.seating.packing, board, profiles)
        return self._mixes[key]

    def _settle(self, place: "_Place", guests: Sequence[Guest], profiles: tuple[str, ...]) -> None:
        """Seat the pods of a place, from `guests` that have no seat yet."""
        found = self._packed[place.boards, tuple(place.need), tuple(place.need.values())] if place.pods.total() else []
        assert found is not None  # noqa: S101 - asked before, and remembered
        slots = {
            profile: [
                plot for plot, mix in zip(place.plots, found, strict=True) for _ in range(mix[index] if mix else 0)
            ]
            for index, profile in enumerate(profiles)
        }
        for kind, count in place.pods.items():
            waiting = [guest for guest in guests if guest.kind is kind and guest.seat is None]
            for guest in waiting[:count]:
                plots = tuple(slots[profile].pop() for profile in kind.profiles)
                self.seating.put(guest, Seat(place.site, plots))


@dataclass(eq=False, slots=True)
class _Place:
    """A node without the pods that may move, and those that it is given.

    Attributes:
        site: its position.
        plots: the positions of its boards.
        boards: their states, in the same order; equal ones side by side.
        room: what is left besides slices.
        need: slices of the pods that it is given, by profile.
        pods: how many it is given, by kind.
    """

    site: int
    plots: tuple[int, ...]
    boards: tuple[State, ...]
    room: dict[str, int]
    need: dict[str, int]
    pods: Counter[Kind] = field(default_factory=Counter)

    @classmethod
    def without(cls, seating: Seating, site: int, movable: Sequence[Guest], profiles: tuple[str, ...]) -> "_Place":
        """Return a node as it is without some pods."""
        states, room = list(seating.states[site]), dict(seating.room[site])
        for guest in movable:
            if guest.home.site == site:
                for name, amount in guest.kind.room:
                    room[name] += amount
                for profile, plot in zip(guest.kind.profiles, guest.home.plots, strict=True):
                    states[plot] = seating.packing.remove(states[plot], profile)
        plots = sorted(range(len(states)), key=lambda plot: (states[plot].cost, states.index(states[plot])))
        return cls(site, tuple(plots), tuple(states[plot] for plot in plots), room, dict.fromkeys(profiles, 0))

    def add(self, kind: Kind, count: int) -> None:
        """Give it so many pods of a kind more, or fewer."""
        self.pods[kind] += count
        for name, amount in kind.room:
            self.room[name] = self.room.get(name, 0) - amount * count
        for profile in kind.profiles:
            self.need[profile] += count


def _left(state: State) -> tuple[int, int]:
    face = state.face
    held = Counter(item.profile for item in face.fixed) - Counter(item.profile for item in face.open)
    gigabytes, compute = _sum(size_of(profile) for profile in [*held.elements(), *state.demand])
    # The names of profiles round up, by less than 1 GB for each memory unit.
    return face.model.nominal_gb - gigabytes + face.model.memory_units, max(face.model.compute - compute, 0)


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    gigabytes, compute = 0, 0
    for one, other in pairs:
        gigabytes, compute = gigabytes + one, compute + other
    return gigabytes, compute


def _mixes(packing: Packing, board: State, profiles: tuple[str, ...]) -> list[Amounts]:
    """Return the sets of slices that a board can have more, without those that are part of another."""
    nothing = (0,) * len(profiles)
    found: dict[Amounts, State] = {nothing: board}
    frontier, whole = [nothing], []
    for mix in frontier:  # grows while it is gone through
        grown = False
        for index, profile in enumerate(profiles):
            if step := packing.add(found[mix], profile):
                grown = True
                more = (*mix[:index], mix[index] + 1, *mix[index + 1 :])
                if more not in found and len(found) < _MOST_MIXES:
                    found[more] = step.state
                    frontier.append(more)
        if not grown or len(found) >= _MOST_MIXES:
            whole.append(mix)
    return whole


def _useful(mixes: Sequence[Amounts], need: Amounts, weights: Sequence[int]) -> list[Amounts]:
    """Return what of each mix is needed, that which is worth most first."""
    used = {tuple(map(min, mix, need)) for mix in mixes}
    worth = {mix: sum(count * weight for count, weight in zip(mix, weights, strict=True)) for mix in used}
    return sorted(used, key=lambda mix: (-worth[mix], mix))


def _shares(count: int, open_to: Sequence[bool]) -> Iterator[Amounts]:
    """Yield the ways to divide so many among nodes, those that are not open getting none."""
    first, *others = open_to
    if not others:
        if first or not count:
            yield (count,)
        return
    for share in range(count if first else 0, -1, -1):
        for rest in _shares(count - share, others):
            yield share, *rest


def _hardest_first(item: tuple[Kind, int]) -> tuple[int, int]:
    kind, _ = item
    return -len(kind.profiles), -kind.size
