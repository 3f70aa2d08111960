"""Which pods may be released now, so that each is served whichever node the scheduler chooses for the others.

kube-scheduler chooses the node and a gate cannot come back: a released pod that is not bound yet may land on any node
that its constraints allow. Pods are therefore released together only if nobody can be left without a slice; else the
wider ones are narrowed, by nodes that they must avoid, and who cannot be made safe waits until others are bound.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import reduce
from operator import or_
from typing import Final

from policies.nodesets import Nodes, nodes_in

_MOST_AVOIDED: Final = 16  # nodes that one pod is kept off for others: each is a requirement more in its spec
_PLENTY: Final = 1 << 30  # more pods than there are
_ROOM: Final = "room"
"""What is short at home if not slices; no profile is called so."""


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

    def competes_for(self, what: str) -> bool:
        """Return whether it takes some of what is short at a home: slices of a profile, or room."""
        return what == _ROOM or any(name == what for name, _ in self.need)


@dataclass(eq=False, slots=True)
class Stock:
    """What nodes have to give.

    Attributes:
        now: free slices by profile, for pods that are released now.
        later: the same when all that is planned has been done.
        room: what is left besides slices, in thousandths.
        ever: all slices by profile when all that is planned has been done: those in use become free when pods end.
        whole: all that a node has besides slices, in thousandths.
        count: how many slices there are in `ever`.
    """

    now: Sequence[Mapping[str, int]]
    later: Sequence[Mapping[str, int]]
    room: Sequence[Mapping[str, int]]
    ever: Sequence[Mapping[str, int]]
    whole: Sequence[Mapping[str, int]]
    count: list[int] = field(init=False)
    _holding: dict[tuple[str, int], Nodes] = field(default_factory=dict)
    _spare: dict[tuple[object, ...], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.count = [sum(slices.values()) for slices in self.ever]

    def fit(self, claim: Claim) -> Nodes:
        """Return the nodes where a pod would find its slices and room if all others ended."""
        fit = -1
        for amounts, needs in ((self.ever, claim.need), (self.whole, claim.room)):
            for name, amount in needs:
                if (name, amount) not in self._holding:
                    bits = ("1" if each.get(name, 0) >= amount else "0" for each in reversed(amounts))
                    self._holding[name, amount] = int("0" + "".join(bits), 2)
                fit &= self._holding[name, amount]
        return fit

    def spare_slices(self, need: tuple[tuple[str, int], ...], *, later: bool) -> list[int]:
        """Return for each node how many slices others must take at least until it has too few for a pod."""
        key = (need, later)
        if key not in self._spare:
            stock = self.later if later else self.now
            self._spare[key] = [
                max(0, min((there.get(name, 0) - amount + 1 for name, amount in need), default=_PLENTY))
                for there in stock
            ]
        return self._spare[key]

    def spare_rooms(self, own: tuple[tuple[str, int], ...], most: Mapping[str, int]) -> list[int]:
        """Return for each node how many pods must land there at least until its room is too small for one more."""
        key = (own, *sorted(most.items()))
        if key not in self._spare:
            self._spare[key] = [_spare_room(room, own, most) for room in self.room]
        return self._spare[key]


def release(claims: Iterable[Claim], stock: Stock) -> dict[str, Nodes]:
    """Return the candidates that may be released, with the nodes on which each may land.

    Law: if only these and the pods released before land, in any order and on any nodes left to them, each finds its
    slices. Pods released before that were in danger already do not count. As far as possible the slices that are on
    their way stay for those for whom they are made. Where many would have to be kept apart, those who find a place least
    easily are released, and the others, who have theirs whatever comes, wait until those are bound.
    """
    everybody = list(claims)
    candidates = [claim for claim in everybody if claim.role is Role.CANDIDATE]
    candidates.sort(key=lambda claim: (-sum(count for _, count in claim.need), claim.nodes.bit_count()))
    others = [claim for claim in everybody if claim.role is not Role.CANDIDATE]
    before = [claim for claim in others if claim.role is Role.RELEASED]
    lost = {claim.key for claim, _ in _Hall(before, stock).endangered()}
    count = len(candidates)
    while count:
        hall = _Hall([*others, *(replace(claim) for claim in candidates[:count])], stock)
        if hall.keep_apart(lost) and (released := [c for c in hall.claims if c.role is Role.CANDIDATE]):
            return {claim.key: claim.nodes for claim in released}
        count //= 2
    return {}


@dataclass(eq=False, slots=True)
class _Group:
    """Claims that differ only in their home.

    Attributes:
        role: what they have been given.
        need: slices by profile.
        room: what each takes besides slices.
        nodes: where they may land.
        fit: those of `nodes` that could ever be enough for one of them.
        claims: the claims.
    """

    role: Role
    need: dict[str, int]
    room: tuple[tuple[str, int], ...]
    nodes: Nodes
    fit: Nodes
    claims: list[Claim]


class _Hall:
    """All claims, each looked at against the others."""

    def __init__(self, claims: list[Claim], stock: Stock) -> None:
        self.claims, self._stock = claims, stock
        self._at_first = {claim.key: claim.nodes for claim in claims}

    def endangered(self) -> Iterator[tuple[Claim, set[str]]]:
        """Yield the claims whose place others could take, and what they would find too little of at home."""
        groups = self._groups()
        for group in groups:
            if not self._safe_anywhere(group, groups):
                for claim in group.claims:
                    if short := self._short_at_home(group, claim, groups):
                        yield claim, short

    def keep_apart(self, lost: set[str]) -> bool:
        """Narrow candidates until nobody is in danger, and drop those who cannot be made safe.

        Return False if a candidate would have to avoid too many nodes. `lost` are claims that nothing can make safe.
        """
        kept: set[tuple[int, str]] = set()
        while True:
            homes: set[tuple[int, str]] = set()
            soft: set[tuple[int, str]] = set()
            many: Counter[str] = Counter()
            for claim, short in self.endangered():
                places = {(claim.home, what) for what in short if claim.key not in lost} - kept
                if claim.role is Role.LATER:
                    soft |= places
                    continue
                many.update(what for _, what in places - homes)
                homes |= places
                if any(many[what] > _MOST_AVOIDED + 1 and self._compete_for(what) for what in short):
                    return False
            if not self._keep_off(homes):
                return False
            for home in sorted(soft)[:_MOST_AVOIDED]:
                self._keep_off({home})
            if not homes | soft:
                break
            kept |= homes | soft
        while unsafe := [c for c, _ in self.endangered() if c.key not in lost and c.role is not Role.LATER]:
            dropped = {claim for claim in unsafe if claim.role is Role.CANDIDATE} or self._rivals_of(unsafe)
            self.claims = [claim for claim in self.claims if claim not in dropped]
        return True

    def _compete_for(self, what: str) -> bool:
        """Return whether any candidate needs what is short: then it would have to avoid every such home but its own."""
        return any(claim.role is Role.CANDIDATE and claim.competes_for(what) for claim in self.claims)

    def _keep_off(self, homes: set[tuple[int, str]]) -> bool:
        """Keep candidates off the homes of others for which they compete; return False if some would avoid too many."""
        enough = True
        nodes: dict[str, Nodes] = {}
        for home, what in homes:
            nodes[what] = nodes.get(what, 0) | 1 << home
        for claim in self.claims:
            if claim.role is Role.CANDIDATE:
                off = reduce(or_, (nodes.get(name, 0) for name, _ in claim.need), nodes.get(_ROOM, 0))
                off &= ~(1 << claim.home)
                few = ((self._at_first[claim.key] & ~claim.nodes) | off).bit_count() <= _MOST_AVOIDED
                enough = enough and few
                claim.nodes &= ~off if few else -1
        return enough

    def _rivals_of(self, claims: list[Claim]) -> set[Claim]:
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
                fit = claim.nodes & self._stock.fit(claim)
                groups[key] = _Group(claim.role, dict(claim.need), claim.room, claim.nodes, fit, [])
            groups[key].claims.append(claim)
        return list(groups.values())

    def _stock_of(self, group: _Group) -> Sequence[Mapping[str, int]]:
        return self._stock.later if group.role is Role.LATER else self._stock.now

    def _safe_anywhere(self, group: _Group, groups: list[_Group]) -> bool:
        """Return whether the others cannot make every node unfit for a pod of the group, whatever they do.

        To make a node unfit takes at least as many slices as it could spare; or, where its room runs short before its
        slices, so many pods. Enough nodes of the first sort make safe, or enough of both, with every pod counted. Who
        may land on a node counts although it has not enough for it now: slices may be added, and do no harm but that.
        """
        rivals = _rivals(group, groups, group.fit)
        bare = sum(count for other, count in rivals if not other.need)  # of the others a node takes one a slice
        slices = self._stock.spare_slices(group.claims[0].need, later=group.role is Role.LATER)
        rooms = self._stock.spare_rooms(group.room, _largest_rooms(other for other, _ in rivals))
        roomy = roomy_spare = spare = 0
        for site in nodes_in(group.fit):
            by_slices, by_room = slices[site], rooms[site]
            spare += min(by_slices, by_room)
            if by_room > self._stock.count[site] + bare:
                roomy |= 1 << site
                roomy_spare += by_slices
        weights = [(other, count, sum(other.need.get(name, 0) for name in group.need)) for other, count in rivals]
        return (
            sum(count * weight for other, count, weight in weights if other.nodes & roomy) < roomy_spare
            or sum(count * max(weight, 1) for _, count, weight in weights) < spare
        )

    def _short_at_home(self, group: _Group, claim: Claim, groups: list[_Group]) -> set[str]:
        """Return of what a pod could find too little at home when all have landed there who may: profiles, or room."""
        home = 1 << claim.home
        stock, room = self._stock_of(group)[claim.home], self._stock.room[claim.home]
        rivals = _rivals(group, groups, home)
        short = {
            name
            for name, need in group.need.items()
            if sum(count * other.need.get(name, 0) for other, count in rivals) > stock.get(name, 0) - need
        }
        landing = [(other, count) for other, count in rivals if other.fit & home]
        taken = dict(group.room)
        for other, count in landing:
            for name, amount in other.room:
                taken[name] = taken.get(name, 0) + count * amount
        if _has(room, taken.items()):
            return short
        # Of those who need slices no more can land than the node has slices.
        pods = min(sum(count for other, count in landing if other.need), self._stock.count[claim.home])
        pods += sum(count for other, count in landing if not other.need)
        by_room = _spare_room(room, group.room, _largest_rooms(other for other, _ in landing))
        return short | {_ROOM} if pods >= by_room else short


def _rivals(group: _Group, groups: list[_Group], nodes: Nodes) -> list[tuple[_Group, int]]:
    """Return who may land on nodes before a pod of the group, with how many; who waits comes after who does not."""
    return [
        (other, count)
        for other in groups
        if other.nodes & nodes
        and (other.role is not Role.LATER or group.role is Role.LATER)
        and (count := len(other.claims) - (other is group))
    ]


def _has(left: Mapping[str, int], amounts: Iterable[tuple[str, int]]) -> bool:
    return all(left.get(name, 0) >= amount for name, amount in amounts)


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
