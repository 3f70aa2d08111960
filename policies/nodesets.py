"""Sets of nodes as bits of an integer: bit i is node i.

So "which nodes have such a board and may take such a pod" is one `&`, however many nodes there are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Nodes = int
"""A set of nodes as bits."""


def nodes_in(nodes: Nodes) -> Iterator[int]:
    """Yield the positions of the nodes in a set, lowest first."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def set_of(places: Sequence[int]) -> Nodes:
    """Return a set of nodes from their positions, lowest first."""
    bits = bytearray(places[-1] // 8 + 1 if places else 0)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(bits, "little")


@dataclass(eq=False, slots=True)
class Counts:
    """How many of something each node has: for each binary digit the nodes in whose number it is 1, lowest first."""

    digits: list[Nodes] = field(default_factory=list)

    def add(self, nodes: Nodes) -> None:
        """Count one more on each of some nodes."""
        for place, digit in enumerate(self.digits):
            self.digits[place], nodes = digit ^ nodes, digit & nodes
            if not nodes:
                return
        self.digits.append(nodes)

    def on(self, nodes: Nodes) -> int:
        """Return how many some nodes have in all."""
        return sum([(digit & nodes).bit_count() << place for place, digit in enumerate(self.digits)])
