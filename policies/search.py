"""The best seats for a few pods on a few boards, found by looking at all of them.

Depth first over the pods, the largest first; equal boards count once, and what was reached as cheaply before is left.
"""

from dataclasses import dataclass

from policies.guests import Guest, Seat
from policies.nodesets import Nodes, nodes_in
from policies.packing import NOTHING, Cost, growing
from policies.seating import Seating

GUESTS = 12  # pods
PLOTS = 16  # and boards that a search may concern


@dataclass(eq=False, slots=True)
class Budget:
    """Tries left, of which each part of the work may have so many."""

    tries: int
    whole: "Budget | None" = None

    def spend(self) -> bool:
        """Take one try; return whether there was one left."""
        self.tries -= 1
        return self.tries >= 0 and (self.whole is None or self.whole.spend())

    def at_most(self, tries: int) -> "Budget":
        """Return a part of what is left."""
        return Budget(tries, self)


def is_small(seating: Seating, guests: list[Guest], sites: Nodes) -> bool:
    """Return whether these pods and nodes are few enough to look at every way."""
    return (
        len(guests) <= GUESTS
        and sites.bit_count() <= PLOTS
        and sum(len(seating.states[site]) for site in nodes_in(sites)) <= PLOTS
    )


@dataclass(eq=False, slots=True)
class Found:
    """The best seats found for pods, and whether everything was looked at."""

    seats: list[tuple[Guest, Seat]]
    complete: bool

    def apply(self, seating: Seating) -> bool:
        """Seat the pods so, if seats were found; return whether they were."""
        for guest, _ in self.seats:
            if guest.seat:
                seating.take(guest)
        for guest, seat in self.seats:
            seating.put(guest, seat)
        return bool(self.seats)


def search(seating: Seating, guests: list[Guest], budget: Budget, among: Nodes = -1, *, first: bool) -> Found:
    """Return the cheapest seats for all pods together (or the first found) on these nodes; the seating is as before afterwards."""
    before = [(guest, seating.take(guest)) for guest in guests if guest.seat]
    # Those that must find slices that exist come first, then the largest: they have the fewest choices.
    order = sorted(range(len(guests)), key=lambda i: (not guests[i].kind.settled, -guests[i].kind.size, i))
    searching = _Search(seating, [guests[i] for i in order], budget, among, first=first)
    searching.descend(0, NOTHING)
    for guest, seat in before:
        seating.put(guest, seat)
    return Found(searching.best_seats, complete=not searching.exhausted)


class _Search:
    """Depth first over pods, boards in equal states counted once, beaten or repeated situations left."""

    def __init__(self, seating: Seating, guests: list[Guest], budget: Budget, among: Nodes, *, first: bool) -> None:
        self.seating, self.guests, self.budget, self.among, self.first = seating, guests, budget, among, first
        self.best: Cost | None = None
        self.best_seats: list[tuple[Guest, Seat]] = []
        self.exhausted = False
        self._seen: dict[tuple[object, ...], Cost] = {}
        kinds = list(dict.fromkeys(guest.kind for guest in guests))
        self._sites = [
            site for site in range(len(seating.sites)) if any((k.candidates & among) >> site & 1 for k in kinds)
        ]
        # Nodes that admit the same pods and have the same boards and room are one.
        self._admits = {site: tuple(kind.candidates >> site & 1 for kind in kinds) for site in self._sites}

    def descend(self, index: int, cost: Cost) -> None:
        """Seat the pods from this one on."""
        if index == len(self.guests):
            if self.best is None or cost < self.best:
                self.best, self.best_seats = cost, [(guest, guest.home) for guest in self.guests]
            return
        if self._repeats(index, cost):
            return
        guest = self.guests[index]
        for more, seat in self._options(guest):
            if not self.budget.spend():
                self.exhausted = True
            if self.exhausted or (self.first and self.best is not None):
                return
            self.seating.put(guest, seat)
            self.descend(index + 1, cost + more)
            self.seating.take(guest)

    def _options(self, guest: Guest) -> list[tuple[Cost, Seat]]:
        seen: set[tuple[object, ...]] = set()
        options: list[tuple[Cost, Seat]] = []
        for site in self.seating.roomy(guest.kind, guest.kind.candidates & self.among):
            look = self._look(site)
            if look not in seen:
                seen.add(look)
                spreads = self.seating.spreads(guest.kind, site)
                options += [(cost, Seat(site, plots)) for cost, plots in spreads]
        return sorted(options)

    def _look(self, site: int) -> tuple[object, ...]:
        """Return what distinguishes a node from others here."""
        states = sorted(map(id, self.seating.states[site]))
        return self._admits[site], tuple(states), tuple(sorted(self.seating.room[site].items()))

    def _repeats(self, index: int, cost: Cost) -> bool:
        """Return whether the same situation was reached as cheaply before, or the best is beaten no more."""
        if self.best is not None and growing(cost) > growing(self.best):
            return True
        situation = (index, *sorted(self._look(site) for site in self._sites))
        before = self._seen.get(situation)
        if before is not None and (self.first or before <= cost):
            return True
        self._seen[situation] = cost
        return False
