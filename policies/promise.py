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
    """Claims that differ only in their home."""

    role: Role
    need: dict[str, int]
    room: tuple[tuple[str, int], ...]
    nodes: Nodes
    claims: list[Claim]


class _Hall:
    """All claims, each looked at against the others."""

    def __init__(self, claims: list[Claim], stock: Stock) -> None:
        self.claims, self._stock = claims, stock

    def unsafe(self) -> list[Claim]:
        """Return the claims whose slices others could take."""
        groups = self._groups()
        found: list[Claim] = []
        for group in groups:
            rivals = [(other, len(other.claims) - (other is group)) for other in groups]
            rivals = [(other, count) for other, count in rivals if count and self._may_meet(group, other)]
            if not self._safe_anywhere(group, rivals):
                found += [claim for claim in group.claims if not self._safe_at_home(group, claim, groups)]
        return found

    def narrow(self, lost: set[str]) -> None:
        """Keep candidates away from the homes of those whom they could harm."""
        kept: set[tuple[int, str]] = set()
        while True:
            homes = {(c.home, name) for c in self.unsafe() if c.key not in lost for name, _ in c.need} - kept
            if not homes:
                return
            kept |= homes
            for claim in self.claims:
                if claim.role is Role.CANDIDATE:
                    shared = {home for home, name in homes if home != claim.home and name in dict(claim.need)}
                    for home in shared:
                        claim.nodes &= ~(1 << home)

    def rivals_of(self, claims: list[Claim]) -> set[Claim]:
        """Return the candidates that could take what these need."""
        return {
            other
            for claim in claims
            for other in self.claims
            if other.role is Role.CANDIDATE and other.nodes & claim.nodes
        }

    def _groups(self) -> list[_Group]:
        groups: dict[tuple[object, ...], _Group] = {}
        for claim in self.claims:
            key = (claim.role, claim.need, claim.room, claim.nodes)
            if key not in groups:
                groups[key] = _Group(claim.role, dict(claim.need), claim.room, claim.nodes, [])
            groups[key].claims.append(claim)
        return list(groups.values())

    @staticmethod
    def _may_meet(group: _Group, other: _Group) -> bool:
        """Return whether pods of another group could land before those of this one: slices on their way come too late."""
        return bool(group.nodes & other.nodes) and (other.role is not Role.LATER or group.role is Role.LATER)

    def _safe_anywhere(self, group: _Group, rivals: list[tuple[_Group, int]]) -> bool:
        """Return whether the others cannot make every node unfit for a pod of the group, whatever they do.

        To make a node unfit takes at least as many slices (or pods, where its room is short) as it could spare.
        """
        spare, pods_count, fit = 0, False, 0
        most = _largest_rooms(other for other, _ in rivals)
        for site in nodes_in(group.nodes):
            by_slices, by_room = self._spare(group, site, most)
            if by_slices > 0 and by_room > 0:
                fit |= 1 << site
                spare += min(by_slices, by_room)
                pods_count = pods_count or by_room < by_slices
        taken = 0
        for other, count in rivals:
            if other.nodes & fit:
                weight = sum(other.need.get(name, 0) for name in group.need)
                taken += count * max(weight, int(pods_count))
        return taken < spare

    def _safe_at_home(self, group: _Group, claim: Claim, groups: list[_Group]) -> bool:
        """Return whether all who may land at a pod's home leave its slices there."""
        site, taken, pods = claim.home, dict.fromkeys(group.need, 0), 0
        here = [other for other in groups if other.nodes >> site & 1 and self._may_meet(group, other)]
        for other in here:
            count = len(other.claims) - (other is group)
            pods += count
            for name in taken:
                taken[name] += count * other.need.get(name, 0)
        stock = self._stock_of(group, site)
        _, by_room = self._spare(group, site, _largest_rooms(here))
        return pods < by_room and all(taken[name] <= stock.get(name, 0) - count for name, count in group.need.items())

    def _stock_of(self, group: _Group, site: int) -> Mapping[str, int]:
        return (self._stock.later if group.role is Role.LATER else self._stock.now)[site]

    def _spare(self, group: _Group, site: int, most: Mapping[str, int]) -> tuple[int, int]:
        """Return how many slices others must take on a node, or how many of them must land there, to make it unfit."""
        stock, room = self._stock_of(group, site), self._stock.room[site]
        by_slices = min(stock.get(name, 0) - count + 1 for name, count in group.need.items())
        by_room = 1 << 30
        for name, amount in group.room:
            left = room.get(name, 0) - amount
            if left < 0:
                return by_slices, 0
            if most.get(name, 0):
                by_room = min(by_room, left // most[name] + 1)
        return by_slices, by_room


def _largest_rooms(groups: Iterable[_Group]) -> dict[str, int]:
    """Return the most that one pod of any of the groups takes of each kind of room."""
    most: dict[str, int] = {}
    for group in groups:
        for name, amount in group.room:
            most[name] = max(most.get(name, 0), amount)
    return most
