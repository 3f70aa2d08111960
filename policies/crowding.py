"""Whether pods that may land on the same nodes can leave one of them without a place, whatever the scheduler chooses.

A node has places for a pod, and a rival that lands there takes at most so many of them, be it by slices or by CPU. If
on some nodes all who may land there take fewer places than there are, one is left. What has landed takes no more from
the nodes than it did from the sum of what might come, and what nodes gain later only adds places: who is safe remains so.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from policies.levels import Levels
from policies.nodesets import Counts, Nodes, set_of
from policies.parties import Guard, Party, Takes

_State = tuple[list[tuple[Party, Party]], dict[tuple[int, str], int]]


@dataclass(eq=False, slots=True)
class Stock:
    """What nodes have to give.

    Attributes:
        now: free slices by profile, for pods that are released now.
        later: the same when all that is planned has been done.
        room: what is left besides slices, in thousandths.
        ever: all slices by profile when all that is planned has been done: those in use become free when pods end.
        whole: all that a node has besides slices, in thousandths.
    """

    now: Sequence[Mapping[str, int]]
    later: Sequence[Mapping[str, int]]
    room: Sequence[Mapping[str, int]]
    ever: Sequence[Mapping[str, int]]
    whole: Sequence[Mapping[str, int]]


class Field:
    """What nodes have for those who may come; for any number of crowds.

    Attributes:
        left: what nobody has.
        ever: slices that there would be if all others ended.
        spare: room that is left whoever comes.
    """

    def __init__(self, stock: Stock, everybody: Collection[Party], *, later: bool = False) -> None:
        """Look at nodes where at most everybody can come; `later`: at what they have when all that is planned is done."""
        slices = stock.later if later else stock.now
        self.left = Levels([{**some, **room} for some, room in zip(slices, stock.room, strict=True)])
        self.ever = Levels(stock.ever)
        self.spare = Levels(list(_spare_room(stock, everybody)))


class Crowd:
    """All who may land, and what the nodes have for them; of both every change is told."""

    def __init__(self, field: Field) -> None:
        """Begin with nobody."""
        self.parties: dict[Party, None] = {}
        self._field = field
        self._needing: dict[str, dict[Party, None]] = {}
        self._seats: dict[Party, Counts] = {}  # pods that go nowhere but home, by the party that they are of
        self._seated: dict[tuple[int, str], int] = {}  # what they take
        self._loads: dict[tuple[int, str], int] = {}

    def state(self) -> _State:
        """Return how everything stands, for `restore`."""
        parties = [(party, replace(party, guard=party.guard and replace(party.guard))) for party in self.parties]
        return parties, dict(self._loads)

    def restore(self, state: _State) -> None:
        """Let everything be as it was; who has come since has not."""
        parties, self._loads = state
        self.parties, self._needing = {}, {}
        for party, was in parties:
            party.nodes, party.homes, party.off, party.guard = was.nodes, was.homes, was.off, was.guard
            self._enter(party)

    def add(self, party: Party) -> None:
        """Let pods come."""
        pods = len(party.homes)
        for other in self.parties:
            if other.guard and other is not party and other.guard.nodes & party.nodes:
                other.guard.left -= pods * other.guard.weight(party)
        for home, what in self._loads:
            if party.nodes >> home & 1:
                self._loads[home, what] += pods * party.takes.get(what, 0)
        self._enter(party)

    def split(self, party: Party, homes: dict[str, int]) -> Party:
        """Return some pods of a party that has come as one of their own, which has come too."""
        other = party.split(homes)
        self._enter(other)
        return other

    def keep_off(self, party: Party, home: int) -> None:
        """Keep pods of a party off a node, but for those that are at home there: these are a party of their own then."""
        if there := {key: at for key, at in party.homes.items() if at == home}:
            self.split(party, there)
        party.nodes &= ~(1 << home)
        party.off |= 1 << home
        for what, amount in party.takes.items():
            if (home, what) in self._loads:
                self._loads[home, what] -= len(party.homes) * amount
        if party.guard:
            party.guard.left -= party.guard.places(1 << home)
            party.guard.nodes &= ~(1 << home)

    def has_place(self, party: Party) -> bool:
        """Return whether there is a node now where a pod finds all that it takes."""
        return self._field.left.having(party.takes, party.nodes) != 0

    def takes_from(self, party: Party, other: Party) -> bool:
        """Return whether pods of a party could leave one of another less to choose from."""
        shared = self._fit(other) & party.nodes
        return bool(shared if party.need.keys() & other.need.keys() else shared & ~self._roomy(other))

    def short(self, party: Party, home: int) -> list[str]:
        """Return of what a pod could find too little on one node when all have landed there who may."""
        roomy = self._roomy(party) >> home & 1
        return [what for what in (party.need if roomy else party.takes) if self.slack(home, what) < 0]

    def slack(self, home: int, what: str) -> int:
        """Return how much is left of something on a node when all have landed there who may; below zero: is lacking."""
        if (home, what) not in self._loads:
            parties = self._needing.get(what) or self.parties
            self._loads[home, what] = self._seated.get((home, what), 0) + sum(
                len(party.homes) * party.takes.get(what, 0) for party in parties if party.nodes >> home & 1
            )
        return self._field.left.amounts[home].get(what, 0) - self._loads[home, what]

    def fill(self, parties: Iterable[Party]) -> None:
        """Let pods come for whom nobody has a guard yet."""
        for party in parties:
            self._enter(party)

    def seat(self, party: Party, homes: Mapping[str, int]) -> None:
        """Let pods of a party come that go nowhere but home, and for whom nobody has a guard yet."""
        counts = self._seats.setdefault(party, Counts())
        pods = Counter(homes.values())
        for home, number in pods.items():
            for what, amount in party.takes.items():
                self._seated[home, what] = self._seated.get((home, what), 0) + number * amount
        for number in range(max(pods.values(), default=0)):
            counts.add(set_of(sorted(home for home in pods if pods[home] > number)))

    def guarded(self, party: Party) -> bool:
        """Return whether the pods of a party that have come are safe on many nodes together, and keep in mind why."""
        guards = (guard for guard in self._guards(party) if self._limit(guard, party) >= len(party.homes))
        party.guard = next(guards, None)
        if party.guard:
            party.guard.left -= (len(party.homes) - 1) * party.guard.weight(party)
        return party.guard is not None

    def send_home(self, place: int, what: str, created: Mapping[str, int], since: int) -> list[str]:
        """Let those stay at home who take some of what a node has and may land there, but for older ones; return who does.

        Those who are at home there stay too, if others who cannot be held could take the places of all. Nobody's guard may
        count them.
        """
        movable = [
            party for party in self.parties if party.nodes >> place & 1 and what in party.takes and not party.fixed
        ]
        sent: list[str] = []
        for at_home in (False, True):
            if self.slack(place, what) >= 0:
                break
            for party in movable:
                stay = {
                    key: home
                    for key, home in party.homes.items()
                    if (home == place) == at_home and created[key] >= since
                }
                for key in stay:
                    del party.homes[key]
                if stay:
                    self.seat(party, stay)
                    sent += stay
            self._loads.clear()
        return sent

    def room_for(self, party: Party) -> int:
        """Return how many pods of a party can come so that these and all who are there are safe as they are."""
        pods = max((self._limit(guard, party) for guard in self._guards(party)), default=0)
        for other in self.parties if pods > 0 else ():
            if guard := other.guard:
                if guard.nodes & party.nodes and (weight := guard.weight(party)):
                    pods = min(pods, (guard.left - 1) // weight)
            elif not other.lost:
                for home in set(other.homes.values()):
                    if party.nodes >> home & 1:
                        watched = other.need if self._roomy(other) >> home & 1 else other.takes
                        for what in watched.keys() & party.takes.keys():
                            pods = min(pods, self.slack(home, what) // party.takes[what])
        return max(0, min(pods, len(party.homes)))

    def _enter(self, party: Party) -> None:
        for parties in (self.parties, *(self._needing.setdefault(profile, {}) for profile in party.need)):
            parties[party] = None

    def _limit(self, guard: Guard, party: Party) -> int:
        """Return how many pods of one party are safe by a guard that does not count them."""
        weight = guard.weight(party)
        return len(party.homes) if guard.left > 0 == weight else (guard.left - 1) // weight + 1 if weight else 0

    def _guards(self, party: Party) -> Iterator[Guard]:
        """Yield ways to count places for the pods of a party, with what all others leave of them.

        Where room does not run short, only slices count: one by one, or as many as a pod needs. Elsewhere a place is
        all that a pod takes.
        """
        fit = self._fit(party)
        roomy = fit & self._roomy(party)
        if roomy and any(amount > 1 for amount in party.need.values()):
            yield self._counted(roomy, dict.fromkeys(party.need, 1), party)
        if roomy:
            yield self._counted(roomy, party.need, party)
        if roomy != fit:
            yield self._counted(fit, party.takes, party)

    def _counted(self, nodes: Nodes, units: Takes, party: Party) -> Guard:
        """Count places, and what all others can take of them, on those nodes where they leave most."""
        guard = Guard(nodes, units, self._tiers(nodes, party.takes, units))
        everybody = self.parties
        if len(units) == 1 and (only := next(iter(units))) in self._needing:
            everybody = self._needing[only]
        taken: dict[Nodes, int] = {}
        for other in everybody:
            if other is not party and other.nodes & nodes and (weight := guard.weight(other)):
                taken[other.nodes] = taken.get(other.nodes, 0) + weight * len(other.homes)
        seats = Counts()
        for other, pods in self._seats.items():
            if other is not party and not units.keys().isdisjoint(other.takes):
                seats.add_all(pods, guard.weight(other))
        guard.left = guard.places(-1) - seats.on(nodes) - sum(taken.values())
        if guard.left < 1 and self._seats:
            # Seen at once for all nodes, of which thousands may be homes.
            off = nodes & reduce(or_, (seats.above(count) & ~tier for count, tier in enumerate([*guard.tiers, 0])))
            guard.left += seats.on(off) - guard.places(off)
            guard.nodes &= ~off
        for off in sorted(taken, key=int.bit_count) if guard.left < 1 else ():
            gone = [nodes for nodes in taken if not nodes & guard.nodes & ~off]
            if (better := sum(map(taken.__getitem__, gone)) + seats.on(off & guard.nodes) - guard.places(off)) > 0:
                guard.left += better
                guard.nodes &= ~off
                taken = {nodes: places for nodes, places in taken.items() if nodes not in gone}
        return guard

    def _tiers(self, nodes: Nodes, takes: Takes, units: Takes) -> list[Nodes]:
        tiers: list[Nodes] = []
        while nodes and (units or not tiers):
            so_many = {what: amount + len(tiers) * units.get(what, 0) for what, amount in takes.items()}
            if nodes := self._field.left.having(so_many, nodes):
                tiers.append(nodes)
        return tiers

    def _fit(self, party: Party) -> Nodes:
        """Return the nodes where a pod would find its slices if all others ended."""
        return self._field.ever.having(party.need, party.nodes)

    def _roomy(self, party: Party) -> Nodes:
        """Return the nodes whose room does not run short for a pod before their slices do."""
        return self._field.spare.having(party.room, -1)


def _spare_room(stock: Stock, everybody: Collection[Party]) -> Iterator[dict[str, int]]:
    """Yield the room of each node that is left whoever lands there: of those who need slices no more than it has."""
    total: dict[str, int] = {}
    bare: dict[str, int] = {}
    most: dict[str, int] = {}
    for party in everybody:
        for what, amount in party.room.items():
            total[what] = total.get(what, 0) + len(party.homes) * amount
            if party.need:
                most[what] = max(most.get(what, 0), amount)
            else:
                bare[what] = bare.get(what, 0) + len(party.homes) * amount
    for room, slices in zip(stock.room, stock.ever, strict=True):
        pods = sum(slices.values())
        yield {
            what: room.get(what, 0) - min(amount, pods * most.get(what, 0) + bare.get(what, 0))
            for what, amount in total.items()
        }
