"""Which pods may be released now, so that each is served whichever node the scheduler chooses for the others.

kube-scheduler chooses the node and a gate cannot come back: a released pod that is not bound yet may land on any node
that its constraints allow. Pods are therefore released together only if nobody can be left without a slice; else the
wider ones are narrowed, by nodes that they must avoid, and who cannot be made safe waits until others are bound.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from policies.seating import Nodes, nodes_in


class Role(IntEnum):
    """What a pod has been given."""

    RELEASED = 0  # released before, not bound yet: may land at any moment
    CANDIDATE = 1  # its slices are free: may be released now
    LATER = 2  # its slices are on their way


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
    """

    key: str
    role: Role
    need: tuple[tuple[str, int], ...]
    room: tuple[tuple[str, int], ...]
    nodes: Nodes
    home: int


@dataclass(eq=False, slots=True)
class Stock:
    """What nodes have to give.

    Attributes:
        now: free slices by profile, for pods that are released now.
        later: the same when all that is planned has been done.
        room: what is left besides slices, in thousandths.
    """

    now: Sequence[Mapping[str, int]]
    later: Sequence[Mapping[str, int]]
    room: Sequence[Mapping[str, int]]


def release(claims: Iterable[Claim], stock: Stock) -> dict[str, Nodes]:
    """Return the candidates that may be released, with the nodes on which each may land.

    Law: if only these and the pods released before land, in any order and on any nodes left to them, each finds its
    slices. Pods released before that were in danger already do not count. As far as possible the slices that are on
    their way stay for those for whom they are made.
    """
    everybody = list(claims)
    hall = _Hall(everybody, stock)
    lost = {claim.key for claim in _Hall([c for c in everybody if c.role is Role.RELEASED], stock).unsafe()}
    hall.narrow(lost)
    while True:
        unsafe = [claim for claim in hall.unsafe() if claim.key not in lost and claim.role is not Role.LATER]
        if not unsafe:
            return {claim.key: claim.nodes for claim in hall.claims if claim.role is Role.CANDIDATE}
        given_up = {claim for claim in unsafe if claim.role is Role.CANDIDATE} or hall.rivals_of(unsafe)
        if not given_up:  # pragma: no cover - who is safe alone is endangered by a candidate only
            return {}
        hall.claims = [claim for claim in hall.claims if claim not in given_up]


@dataclass(eq=False, slots=True)
class _Group:
    """Claims that differ only in their home.

    `fit_now` and `fit_later` are the nodes whose stock is enough for one of them.
    """

    role: Role
    need: dict[str, int]
    room: tuple[tuple[str, int], ...]
    fit_now: Nodes
    fit_later: Nodes
    claims: list[Claim]


class _Hall:
    """All claims, each looked at against the others."""

    def __init__(self, claims: list[Claim], stock: Stock) -> None:
        self.claims, self._stock = claims, stock
        self._fits: dict[tuple[object, ...], tuple[Nodes, Nodes]] = {}

    def unsafe(self) -> list[Claim]:
        """Return the claims whose place others could take."""
        groups = self._groups()
        found: list[Claim] = []
        for group in groups:
            if not self._safe_anywhere(group, groups):
                found += [claim for claim in group.claims if self._endangered_at_home(group, claim, groups)]
        return found

    def narrow(self, lost: set[str]) -> None:
        """Keep candidates away from the homes of those whom they could harm."""
        kept: set[tuple[int, str]] = set()
        while True:
            groups = self._groups()
            homes: set[tuple[int, str]] = set()
            for group in groups:
                if not self._safe_anywhere(group, groups):
                    for claim in group.claims:
                        if claim.key not in lost:
                            homes |= {(claim.home, what) for what in self._endangered_at_home(group, claim, groups)}
            if homes <= kept:
                return
            for claim in self.claims:
                if claim.role is Role.CANDIDATE:
                    kinds = {name for name, _ in claim.need} | {_ROOM}
                    for home in {home for home, what in homes - kept if what in kinds and home != claim.home}:
                        claim.nodes &= ~(1 << home)
            kept |= homes

    def rivals_of(self, claims: list[Claim]) -> set[Claim]:
        """Return the candidates that could land where these could."""
        return {
            other
            for other in self.claims
            if other.role is Role.CANDIDATE and any(other.nodes & claim.nodes for claim in claims)
        }

    def _groups(self) -> list[_Group]:
        groups: dict[tuple[object, ...], _Group] = {}
        for claim in self.claims:
            key = (claim.role, claim.need, claim.room, claim.nodes)
            if key not in groups:
                now, later = self._fit(claim)
                groups[key] = _Group(
                    claim.role, dict(claim.need), claim.room, claim.nodes & now, claim.nodes & later, []
                )
            groups[key].claims.append(claim)
        return list(groups.values())

    def _fit(self, claim: Claim) -> tuple[Nodes, Nodes]:
        """Return the nodes where a pod would find its slices, now and later, and room, if it came first."""
        key = (claim.need, claim.room)
        if key not in self._fits:
            now = later = 0
            for site, room in enumerate(self._stock.room):
                if all(room.get(name, 0) >= amount for name, amount in claim.room):
                    bit, need = 1 << site, claim.need
                    now |= bit if all(self._stock.now[site].get(name, 0) >= n for name, n in need) else 0
                    later |= bit if all(self._stock.later[site].get(name, 0) >= n for name, n in need) else 0
            self._fits[key] = now, later
        return self._fits[key]

    @staticmethod
    def _fit_of(group: _Group, other: _Group) -> Nodes:
        """Return where pods of another group may land before those of a group; who waits comes after who does not."""
        if group.role is Role.LATER:
            return other.fit_later | other.fit_now
        return 0 if other.role is Role.LATER else other.fit_now

    def _safe_anywhere(self, group: _Group, groups: list[_Group]) -> bool:
        """Return whether the others cannot make every node unfit for a pod of the group, whatever they do.

        To make a node unfit takes at least as many slices as it could spare; or, where its room runs short before its
        slices, so many pods. Enough nodes of the first sort make safe, or enough of both, with every pod counted.
        """
        late = group.role is Role.LATER
        fit, stock = (group.fit_later, self._stock.later) if late else (group.fit_now, self._stock.now)
        rivals = [
            (other, count)
            for other in groups
            if self._fit_of(group, other) & fit and (count := len(other.claims) - (other is group))
        ]
        most = _largest_rooms(other for other, _ in rivals)
        bare = sum(count for other, count in rivals if not other.need)  # of the others a node takes one a slice
        roomy = roomy_spare = spare = 0
        for site in nodes_in(fit):
            by_slices = min((stock[site].get(name, 0) - n + 1 for name, n in group.need.items()), default=_PLENTY)
            by_room = _spare_room(self._stock.room[site], group.room, most)
            spare += min(by_slices, by_room)
            if by_room > sum(stock[site].values()) + bare:
                roomy |= 1 << site
                roomy_spare += by_slices
        weights = [(other, count, sum(other.need.get(name, 0) for name in group.need)) for other, count in rivals]
        return (
            sum(count * weight for other, count, weight in weights if self._fit_of(group, other) & roomy) < roomy_spare
            or sum(count * max(weight, 1) for _, count, weight in weights) < spare
        )

    def _endangered_at_home(self, group: _Group, claim: Claim, groups: list[_Group]) -> set[str]:
        """Return of what a pod could find too little at home when all have landed there who may: profiles, or room."""
        site = claim.home
        stock = (self._stock.later if group.role is Role.LATER else self._stock.now)[site]
        here = [
            (other, count)
            for other in groups
            if self._fit_of(group, other) >> site & 1 and (count := len(other.claims) - (other is group))
        ]
        short = {
            name
            for name, need in group.need.items()
            if sum(count * other.need.get(name, 0) for other, count in here) > stock.get(name, 0) - need
        }
        taken = dict(group.room)
        for other, count in here:
            for name, amount in other.room:
                taken[name] = taken.get(name, 0) + count * amount
        room = self._stock.room[site]
        pods = sum(count for _, count in here)
        crowded = any(amount > room.get(name, 0) for name, amount in taken.items()) and (
            pods >= _spare_room(room, group.room, _largest_rooms(other for other, _ in here))
        )
        return short | {_ROOM} if crowded else short


_PLENTY = 1 << 30
_ROOM = "room"
"""What is short at home if not slices; no profile is called so."""


def _spare_room(room: Mapping[str, int], own: tuple[tuple[str, int], ...], most: Mapping[str, int]) -> int:
    """Return how many pods must land on a node at least until its room is too small for one more."""
    spare = _PLENTY
    for name, amount in own:
        left = room.get(name, 0) - amount
        if left < 0:
            return 0
        if most.get(name, 0):
            spare = min(spare, left // most[name] + 1)
    return spare


def _largest_rooms(groups: Iterable[_Group]) -> dict[str, int]:
    """Return the most that one pod of any of the groups takes of each kind of room."""
    most: dict[str, int] = {}
    for group in groups:
        for name, amount in group.room:
            most[name] = max(most.get(name, 0), amount)
    return most
