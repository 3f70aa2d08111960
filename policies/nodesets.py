"""Sets of nodes as bits of an integer: bit i is node i.

So "which nodes have such a board and may take such a pod" is one `&`, however many nodes there are.
"""

from collections.abc import Iterator, Sequence

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
