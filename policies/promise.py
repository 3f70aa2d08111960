"""Which pods may be released now, so that each is served whichever node the scheduler chooses for the others.

kube-scheduler chooses the node and a gate cannot come back: a released pod that is not bound yet may land on any node
that its constraints allow. Pods are therefore released together only if nobody can be left without a slice; else the
wider ones are narrowed, by nodes that they must avoid, and who cannot be made safe waits until others are bound.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain, islice
from typing import Final, NamedTuple

from policies.crowding import Crowd, Field, Stock
from policies.levels import Levels
from policies.nodesets import Nodes
from policies.parties import Party

_MOST_AVOIDED: Final = 16  # nodes that one pod is kept off for others: each is a requirement more in its spec
_HELD_BACK: Final = 2  # times as many are released if the smallest come first: then they do
_MOST_IN_TURN: Final = 4  # sorts of pods that have to be made safe anew for the sake of one pod
_MUCH_YOUNGER_S: Final = 30  # seconds; who has come so long after a pod is not waited for
_MOST_FAILURES: Final = 8  # attempts to make others give way for a pod; each looks at everybody


class Role(IntEnum):
    """What a pod has been given."""

    RELEASED = 0  # released before, not bound yet: may land at any moment
    CANDIDATE = 1  # its slices are free: may be released now
    COMING = 2  # boards are being cut for it: it has its slices in a moment
    LATER = 3  # it has them when others have ended


@dataclass(eq=False, slots=True)
class Claim:
    """A pod that has been given slices.

    Attributes:
        key: namespace/name.
        role: what it has been given.
        need: slices by profile.
        room: what it takes besides slices, in thousandths.
        nodes: where it may land.
        home: the node where the plan has it.
        created: seconds since the epoch.
    """

    key: str
    role: Role
    need: tuple[tuple[str, int], ...]
    room: tuple[tuple[str, int], ...]
    nodes: Nodes
    home: int
    created: int = 0


class Let(NamedTuple):
    """Who is let in, and who yields.

    Attributes:
        nodes: the candidates that may be released, with the nodes on which each may land.
        yielding: those that could be, but for others for whom boards are being cut, with the node where these would miss
            what they could take.
    """

    nodes: dict[str, Nodes]
    yielding: dict[str, int]


def release(claims: Iterable[Claim], stock: Stock) -> Let:
    """Return which candidates may be released, and why others may not.

    Law: if only these and the pods released before land, in any order and on any nodes left to them, each finds its
    slices; but for those of the latter for whom none are left already. And where boards are being cut for others, these
    find theirs then.

    Sorts of pods are let in one after another, as many of each as endanger nobody, and then those for whose sake others
    can be kept off a node. The largest come first: what smaller ones take from them is lost for good, while smaller ones
    find their place a moment later. Only where that would hold back most, few large ones in the way of many small ones,
    it is the other way round. Who waits does not wait for ever: those who are let in are kept off the home of the first
    of its sort, and off slices that are on their way for others, where they are safe without.
    """
    claims, whole = list(claims), Levels(stock.whole)
    roles = _parties(claims, whole)
    now = Field(stock, roles[Role.RELEASED] + roles[Role.CANDIDATE])
    then = Field(stock, [party for parties in roles.values() for party in parties], later=True)
    wanted = sum(len(party.homes) for party in roles[Role.CANDIDATE])
    chosen = _choose(roles, now, then, 1)
    if _HELD_BACK * len(chosen.avoided()) < wanted:
        others = _choose(_parties(claims, whole), now, then, -1)
        chosen = others if len(others.avoided()) > _HELD_BACK * len(chosen.avoided()) else chosen
    yielding: dict[str, int] = {}
    if chosen.coming and chosen.avoided():
        yielding = _hold_back(then, chosen, {claim.key: claim.created for claim in claims})
    avoided = chosen.avoided()
    return Let({claim.key: claim.nodes & ~avoided[claim.key] for claim in claims if claim.key in avoided}, yielding)


@dataclass(eq=False, slots=True)
class _Choice:
    """Who is let in, among whom.

    Attributes:
        released: those who are let in, and who was released before.
        waiting: the other candidates.
        coming: those for whom boards are being cut.
        later: who comes later still.
    """

    released: list[Party]
    waiting: list[Party]
    coming: list[Party]
    later: list[Party]

    def avoided(self) -> dict[str, Nodes]:
        """Return the candidates let in, with the nodes that they are kept off."""
        return {key: party.off for party in self.released if not party.fixed for key in party.homes}


def _choose(roles: dict[Role, list[Party]], now: Field, then: Field, sign: int) -> _Choice:
    """Let candidates in, the largest first (1), or the smallest (-1); of equal ones those who may go to most nodes."""
    candidates = sorted(
        roles[Role.CANDIDATE], key=lambda party: (-sign * sum(party.need.values()), -party.nodes.bit_count())
    )
    admission = _Admission(now, roles[Role.RELEASED])
    waiting = admission.admit(candidates)
    later = roles[Role.COMING] + roles[Role.LATER]
    homes = _homes_at_risk(then, [*admission.crowd.parties], waiting, later)
    admission.favour(islice(homes, _MOST_AVOIDED))
    return _Choice([*admission.crowd.parties], waiting, roles[Role.COMING], roles[Role.LATER])


def _parties(claims: list[Claim], whole: Levels) -> dict[Role, list[Party]]:
    found: dict[tuple[object, ...], Party] = {}
    roles: dict[Role, list[Party]] = {role: [] for role in Role}
    for claim in claims:
        key = (claim.role, claim.need, claim.room, claim.nodes)
        if key not in found:
            room = {what: amount for what, amount in claim.room if amount}
            nodes = whole.having(room, claim.nodes)
            found[key] = Party(dict(claim.need), room, nodes, {}, fixed=claim.role is Role.RELEASED)
            roles[claim.role].append(found[key])
        found[key].homes[claim.key] = claim.home
    return roles


def _homes_at_risk(
    then: Field, released: list[Party], waiting: list[Party], later: list[Party]
) -> Iterator[tuple[int, str]]:
    """Yield the homes of the first pods that wait, and of those who come later, where others could leave too little."""
    crowd = Crowd(then)
    parties = [replace(party, guard=None) for party in (*released, *waiting, *later)]
    crowd.fill(parties)
    for place, party in enumerate(parties[len(released) :]):
        if not crowd.guarded(party):
            homes = list(dict.fromkeys(party.homes.values()))
            for home in homes[:1] if place < len(waiting) else sorted(homes):
                yield from ((home, what) for what in crowd.short(party, home))


def _hold_back(then: Field, chosen: _Choice, created: Mapping[str, int]) -> dict[str, int]:
    """Let those wait who could land where others would miss it for whom boards are being cut; return who, and where.

    They do not wait for much younger ones: else a stream of those could hold them back for ever.
    """
    crowd = Crowd(then)
    crowd.fill(replace(party, guard=None) for party in chosen.released)
    for party in chain(chosen.waiting, chosen.coming):
        crowd.seat(party, party.homes)
    yielding: dict[str, int] = {}
    for party in chosen.coming:
        oldest: dict[int, int] = {}
        for key, home in party.homes.items():
            oldest[home] = min(created[key], oldest.get(home, created[key]))
        short = [(home, what) for home in sorted(oldest) for what in crowd.short(party, home)]
        for home, what in () if not short or crowd.guarded(party) else short:
            for key in crowd.send_home(home, what, created, oldest[home] - _MUCH_YOUNGER_S):
                yielding[key] = home
    return yielding


class _Admission:
    """Lets candidates into a crowd in which everybody is safe.

    Attributes:
        crowd: the pods released before, and who has been let in.
    """

    def __init__(self, now: Field, before: list[Party]) -> None:
        self._failures = 0
        self._doubtful: list[Party] = []
        self.crowd = Crowd(now)
        self.crowd.fill(before)
        for party in before:
            if not self.crowd.guarded(party) and (unsafe := self._unsafe(party)):
                lost = self.crowd.split(party, unsafe)
                lost.lost = True
                self._doubtful += [lost] if self.crowd.has_place(lost) else []

    def admit(self, candidates: list[Party]) -> list[Party]:
        """Let in as many as can be; return the others."""
        asking = [
            party for party in candidates if not any(self.crowd.takes_from(party, other) for other in self._doubtful)
        ]
        for party in asking:
            if pods := self.crowd.room_for(party):
                some = party.split(dict([*party.homes.items()][:pods]))
                self.crowd.add(some)
                self.crowd.guarded(some)
        for party in asking:
            if party.homes and not self._make_way(party, party.homes):
                hopeless: set[int] = set()
                for key, home in party.homes.items() if len(party.homes) > 1 else ():
                    if home not in hopeless and not self._make_way(party, {key: home}):
                        hopeless.add(home)
        return [party for party in candidates if party.homes]

    def favour(self, homes: Iterable[tuple[int, str]]) -> None:
        """Keep candidates off the homes of others, where these have too little of something, if they are safe without."""
        for home, what in homes:
            for party in self._movable(home, what):
                if party.off.bit_count() < _MOST_AVOIDED and self._is_safe_without(party, home):
                    self.crowd.keep_off(party, home)

    def _is_safe_without(self, party: Party, home: int) -> bool:
        """Return whether pods that are safe remain so without a node: elsewhere together, or each at its own home."""
        if party.guard and party.guard.places(1 << home) >= party.guard.left:
            if any(self.crowd.short(party, at) for at in {*party.homes.values()}):
                return False
            party.guard = None
        return True

    def _make_way(self, party: Party, homes: dict[str, int]) -> bool:
        """Let some pods in, with them and others kept off homes that cannot be shared; return whether that makes all safe."""
        if self._failures >= _MOST_FAILURES:
            return False
        before = self.crowd.state()
        self.crowd.add(comer := replace(party, homes=homes))
        taken = {place for place in self._homes_short() if comer.nodes >> place & 1 and {*homes.values()} != {place}}
        for place in taken if len(taken) <= _MOST_AVOIDED else ():
            self.crowd.keep_off(comer, place)
        unsafe: list[Party] = []
        enough = self._note_unsafe(self.crowd.parties, unsafe)
        while enough and unsafe:
            shared = unsafe.pop()
            enough = all(self._free(place, shared, unsafe) for place in set(self._unsafe(shared).values()))
        if enough:
            party.split(homes)
        else:
            self.crowd.restore(before)
            self._failures += 1
        return enough

    def _homes_short(self) -> Iterator[int]:
        """Yield the homes that have too little for those who are to be safe there."""
        for party in self.crowd.parties:
            if not (party.guard or party.lost):
                yield from (home for home in set(party.homes.values()) if self.crowd.short(party, home))

    def _free(self, home: int, party: Party, unsafe: list[Party]) -> bool:
        """Keep others off a home of a party, and note who is unsafe then; return whether that helps."""
        for what in self.crowd.short(party, home):
            moved = self._movable(home, what)
            if any(other.off.bit_count() >= _MOST_AVOIDED for other in moved):
                return False
            for other in moved:
                self.crowd.keep_off(other, home)
            if not self._note_unsafe(moved, unsafe):
                return False
        return not self.crowd.short(party, home)

    def _note_unsafe(self, parties: Iterable[Party], unsafe: list[Party]) -> bool:
        """Add those who are not safe to some; return whether they are few enough to see to each."""
        unsafe += islice((party for party in parties if not self._is_safe(party)), _MOST_IN_TURN + 1)
        return len(unsafe) <= _MOST_IN_TURN

    def _movable(self, home: int, what: str) -> list[Party]:
        """Return the candidates let in that take some of what a home has, may land there, and are not at home there."""
        return [
            party
            for party in self.crowd.parties
            if party.nodes >> home & 1
            and what in party.takes
            and not party.fixed
            and any(at != home for at in party.homes.values())
        ]

    def _is_safe(self, party: Party) -> bool:
        return party.lost or not self._unsafe(party)

    def _unsafe(self, party: Party) -> dict[str, int]:
        """Return the pods of a party that others could leave without a place, with their homes."""
        if party.guard and party.guard.left > 0:
            return {}
        unsafe = {key: home for key, home in party.homes.items() if self.crowd.short(party, home)}
        return {} if not unsafe or self.crowd.guarded(party) else unsafe
