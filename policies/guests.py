"""Pods as the planner sees them: what they need, which nodes admit them, and where they sit."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from policies.geometry import Profiles
from policies.nodesets import Nodes


class Seat(NamedTuple):
    """A node, and for each slice of the pod the board (its position among the node's)."""

    site: int
    plots: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Kind:
    """Pods that need the same and may go to the same nodes.

    Attributes:
        profiles: a slice each, largest first.
        need: how many slices of each profile.
        room: what each takes besides slices, in thousandths.
        candidates: nodes that admit it.
        settled: released already, so that only slices that exist (or are coming) serve it.
        size: GB of its slices.
        full: candidates that have turned out to lack room, until somebody leaves them.
        seen: of how many departures that takes account.
        refused: one of them could not be served, so no later one can.
    """

    profiles: Profiles
    room: tuple[tuple[str, int], ...]
    candidates: Nodes
    settled: bool = False
    size: int = 0
    full: Nodes = 0
    seen: int = 0
    refused: bool = False
    need: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.need = Counter(self.profiles)

    def finds(self, slices: Mapping[str, int], room: Mapping[str, int]) -> bool:
        """Return whether slices, by profile, and room are enough for one pod."""
        return all(slices.get(profile, 0) >= count for profile, count in self.need.items()) and all(
            room.get(name, 0) >= amount for name, amount in self.room
        )


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


class Kept(NamedTuple):
    """What is kept on a node for somebody who cannot be seated yet: slices as (board, profile), and room."""

    slices: tuple[tuple[int, str], ...]
    room: tuple[tuple[str, int], ...]
