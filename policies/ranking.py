"""Nodes by what it costs there to seat a pod of several slices, cheapest first; worked out no sooner than it is needed."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from policies.nodesets import Nodes
from policies.packing import Cost
from policies.spreading import Spread

Entry = tuple[Cost, int, tuple[int, ...]]
"""What it costs, the node, and for each slice the board."""


@dataclass(eq=False, slots=True)
class Ranking:
    """Nodes by what it costs there to spread some slices over their boards.

    Attributes:
        stale: nodes of which that is not known, or not any more.
        order: of the others those that can take the slices, cheapest first.
        seen: how many of the changes of nodes it knows.
    """

    stale: Nodes
    order: list[Entry] = field(default_factory=list)
    seen: int = 0
    _of: dict[int, Entry] = field(default_factory=dict)

    def copy(self) -> "Ranking":
        """Return another one that knows the same."""
        return Ranking(self.stale, self.order.copy(), self.seen, self._of.copy())

    def forget(self, site: int) -> None:
        """Note that a node has changed."""
        self.stale |= 1 << site
        if (before := self._of.pop(site, None)) is not None:
            del self.order[bisect_left(self.order, before)]

    def cheapest(
        self,
        able: Iterator[tuple[Cost, Nodes]],
        roomy: Callable[[Nodes], Iterator[int]],
        spread: Callable[[int], Spread | None],
    ) -> Entry | None:
        """Return where the slices cost least, of equal nodes at the first; None if they can be had nowhere.

        Args:
            able: nodes that may be able to take the slices, with the least that it may cost there, which only grows.
            roomy: those of some nodes that have room for the pod, in turn.
            spread: the cheapest way to spread the slices over the boards of a node.
        """
        best = next((entry for entry in self.order for _ in roomy(1 << entry[1])), None)
        for least, nodes in able:
            if best is not None and best[0] < least:
                break
            for site in roomy(nodes & self.stale):
                self.stale &= ~(1 << site)
                if (found := spread(site)) is None:
                    continue
                self._of[site] = entry = (found[0], site, found[1])
                insort(self.order, entry)
                if best is None or entry < best:
                    best = entry
        return best
