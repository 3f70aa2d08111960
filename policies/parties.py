"""Pods that are alike to whoever counts who could take whose place, and why each of them finds one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policies.nodesets import Nodes

Takes = Mapping[str, int]
"""What a pod takes of a node: slices by profile, or room in thousandths. No profile is called like a kind of room."""


@dataclass(eq=False, slots=True)
class Guard:
    """Nodes on which there are more places for a pod than its rivals can take.

    Attributes:
        nodes: these.
        units: how much of each resource is one place; what is not named cannot run short there.
        tiers: the nodes that have at least one place, two, ...
        left: places that are left when all rivals have landed there; one is needed.
    """

    nodes: Nodes
    units: Takes
    tiers: list[Nodes]
    left: int = 0

    def weight(self, party: "Party") -> int:
        """Return how many places one pod takes at most, on whichever node."""
        most, takes, tiers = 0, party.takes, len(self.tiers)
        for what, unit in self.units.items():
            if (amount := takes.get(what, 0)) > most * unit:
                most = -(-amount // unit)
        return min(most, tiers)

    def places(self, nodes: Nodes) -> int:
        """Return how many places there are on those of some nodes that are ours."""
        return sum((tier & nodes & self.nodes).bit_count() for tier in self.tiers)


@dataclass(eq=False, slots=True)
class Party:
    """Pods that take the same and may land on the same nodes.

    Attributes:
        need: slices of each.
        room: what each takes besides.
        nodes: where they may land.
        homes: where the plan has them, by namespace/name.
        fixed: they have been released before, so that nothing can be changed any more.
        lost: nothing is known to make them safe, so that nothing is tried for them.
        off: nodes that they are kept off for others.
        guard: why each of them finds a place; None if it is that its home has enough for all who may land there.
    """

    need: Takes
    room: Takes
    nodes: Nodes
    homes: dict[str, int]
    fixed: bool = False
    lost: bool = False
    off: Nodes = 0
    guard: Guard | None = None
    takes: Takes = field(init=False)

    def __post_init__(self) -> None:
        self.takes = {**self.need, **self.room}

    def split(self, homes: dict[str, int]) -> "Party":
        """Return some of the pods as a party of their own; they are none of this one any more."""
        self.homes = {key: home for key, home in self.homes.items() if key not in homes}
        return replace(self, homes=homes, guard=self.guard and replace(self.guard))
