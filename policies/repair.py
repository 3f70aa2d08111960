"""Making room for a pod by seating others elsewhere.

Serving pod by pod, each on its best seat, can leave the last one standing though all could sit (two 3g on one board,
and 4g + 2g + 2g do not fit on the other). Small cases are searched to the end; in large ones single pods move, in
chains, or a board is emptied and filled again, or a few nodes are (`regroup`). All work is bounded by counting tries,
so the answer is the same on every machine.
"""

from collections.abc import Iterable

from policies.guests import Guest
from policies.nodesets import Nodes, nodes_in
from policies.packing import State
from policies.regroup import Regroup
from policies.search import GUESTS, Budget, is_small, search
from policies.seating import Seating

_CHAIN = 2  # pods that move one after another to make room
_SEARCH_TRIES = 3000  # for one exact search
_MOVE_TRIES = 300  # for one pod in a large cluster, each way


def make_room(seating: Seating, guest: Guest, budget: Budget, groups: Regroup) -> bool:
    """Seat a pod for which no seat was found by moving others; return whether it sits now. Else nothing has changed."""
    if not seating.contested(guest.kind):
        return False
    concerned = _concerned(seating, guest)
    if concerned is not None:
        found = search(seating, concerned, budget.at_most(_SEARCH_TRIES), first=True)
        if found.complete or found.seats:
            return found.apply(seating)
    moves = budget.at_most(_MOVE_TRIES)
    return (
        any(_Chain(seating, moves).seat(guest, length, {guest}) for length in range(1, _CHAIN + 1))
        or _refill(seating, guest, budget.at_most(_MOVE_TRIES))
        or groups.make_room(guest)
    )


def improve(seating: Seating, guests: Iterable[Guest], budget: Budget, among: Nodes = -1) -> None:
    """Bring pods to the seats that cost least in all: exactly if they are few, else one by one where slices would be destroyed.

    Only nodes `among` these are looked at, and who sits elsewhere stays there.
    """
    everybody = [guest for guest in guests if guest.kind.profiles and among >> guest.home.site & 1]
    sites = 0
    for guest in everybody:
        sites |= guest.kind.candidates & among
    if is_small(seating, everybody, sites):
        found = search(seating, everybody, budget.at_most(_SEARCH_TRIES), sites, first=False)
        if found.complete:
            found.apply(seating)
            return
    for guest in reversed(everybody):
        if any(state.layout and state.layout.destroyed for state in _boards(seating, guest)) and budget.spend():
            seat = seating.take(guest)
            better = seating.find(guest.kind, among)
            seating.put(guest, better[1] if better else seat)


def _boards(seating: Seating, guest: Guest) -> list[State]:
    return [seating.states[guest.home.site][plot] for plot in guest.home.plots]


def _concerned(seating: Seating, guest: Guest) -> list[Guest] | None:
    """Return the pods whose seats bear upon a pod's, itself the last; None if there are too many for a search."""
    sites = pending = guest.kind.candidates
    found: dict[Guest, None] = {}
    while pending:
        more: Nodes = 0
        for site in nodes_in(pending & seating.shared):
            for other in seating.guests[site]:
                found[other] = None
                more |= other.kind.candidates
            if len(found) >= GUESTS:
                return None
        pending = more & ~sites
        sites |= more
    everybody = [*found, guest]
    return everybody if is_small(seating, everybody, sites) else None


class _Chain:
    """Seats a pod where another gives way, which finds a seat or in turn makes somebody give way."""

    def __init__(self, seating: Seating, budget: Budget) -> None:
        self.seating, self.budget = seating, budget

    def seat(self, guest: Guest, length: int, standing: set[Guest]) -> bool:
        """Seat a pod; of those standing nobody is asked. Return whether it sits; else nothing has changed."""
        tried: set[tuple[object, ...]] = set()
        for site in nodes_in(self.seating.contested(guest.kind)):
            others = list(self.seating.guests[site])
            look = tuple(sorted(map(id, self.seating.states[site])))
            for other in others:
                # Where nodes look the same, giving way on one is worth as much as on another.
                place = (look, other.kind, *_boards(self.seating, other))
                if other in standing or other.kind is guest.kind or place in tried:
                    continue
                tried.add(place)
                if not self.budget.spend():
                    return False
                if self._gives_way(guest, other, length, standing):
                    return True
        return False

    def _gives_way(self, guest: Guest, other: Guest, length: int, standing: set[Guest]) -> bool:
        before = self.seating.take(other)
        seat = self.seating.find_on(guest.kind, before.site)
        if seat is not None:
            self.seating.put(guest, seat)
            found = self.seating.find(other.kind)
            if found is not None:
                self.seating.put(other, found[1])
                return True
            if length > 1 and self.seat(other, length - 1, standing | {other}):
                return True
            self.seating.take(guest)
        self.seating.put(other, before)
        return False


def _refill(seating: Seating, guest: Guest, budget: Budget) -> bool:
    """Seat a pod on a board that is emptied for it, if all who sat there find other seats."""
    for site in nodes_in(seating.contested(guest.kind)):
        for plot in range(len(seating.states[site])):
            others = [other for other in seating.guests[site] if plot in other.home.plots]
            if not others or not budget.spend():
                continue
            before = [(other, seating.take(other)) for other in others]
            if _seat_all(seating, [guest, *others]):
                return True
            for other, seat in before:
                seating.put(other, seat)
    return False


def _seat_all(seating: Seating, guests: list[Guest]) -> bool:
    """Seat all, in this order, or nobody."""
    for count, guest in enumerate(guests):
        found = seating.find(guest.kind)
        if found is None:
            for other in reversed(guests[:count]):
                seating.take(other)
            return False
        seating.put(guest, found[1])
    return True
