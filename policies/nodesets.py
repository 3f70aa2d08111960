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

    def add(self, nodes: Nodes, place: int = 0) -> None:
        """Count one more on each of some nodes; at another `place` than the first two more, or four, ..."""
        self.digits += [0] * (place - len(self.digits))
        for at in range(place, len(self.digits)):
            self.digits[at], nodes = self.digits[at] ^ nodes, self.digits[at] & nodes
            if not nodes:
                return
        self.digits.append(nodes)

    def add_all(self, other: "Counts", times: int) -> None:
        """Count so many times what others are."""
        for more in (place for place in range(times.bit_length()) if times >> place & 1):
            for place, nodes in enumerate(other.digits):
                self.add(nodes, place + more)

    def above(self, number: int) -> Nodes:
        """Return the nodes that have more than a number."""
        more, equal = 0, -1
        for place in reversed(range(max(len(self.digits), number.bit_length()))):
            digit = self.digits[place] if place < len(self.digits) else 0
            if number >> place & 1:
                equal &= digit
            else:
                more |= equal & digit
                equal &= ~digit
        return more

    def on(self, nodes: Nodes) -> int:
        """Return how many some nodes have in all."""
        return sum([(digit & nodes).bit_count() << place for place, digit in enumerate(self.digits)])
