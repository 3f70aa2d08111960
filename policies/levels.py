"""Which nodes have at least so much of something, as a set, however many nodes there are."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import accumulate
from operator import and_, or_

from policies.nodesets import Nodes


class Levels:
    """What nodes have, by resource; nothing where it is not named or below zero. What is asked for once is remembered."""

    def __init__(self, amounts: Sequence[Mapping[str, int]]) -> None:
        self.amounts = amounts
        self._known: dict[str, tuple[list[int], list[Nodes]]] = {}

    def at_least(self, what: str, amount: int) -> Nodes:
        """Return the nodes that have so much, which is more than nothing."""
        if what not in self._known:
            self._known[what] = self._sorted(what)
        steps, nodes = self._known[what]
        place = bisect_left(steps, amount)
        return nodes[place] if place < len(nodes) else 0

    def having(self, takes: Mapping[str, int], among: Nodes) -> Nodes:
        """Return those of some nodes that have all that is taken, each amount being more than nothing."""
        return reduce(and_, (self.at_least(*item) for item in takes.items()), among)

    def _sorted(self, what: str) -> tuple[list[int], list[Nodes]]:
        """Return the amounts that there are, the least first, with the nodes that have at least that."""
        having: dict[int, Nodes] = {}
        for node, amounts in enumerate(self.amounts):
            if (amount := amounts.get(what, 0)) > 0:
                having[amount] = having.get(amount, 0) | 1 << node
        steps = sorted(having, reverse=True)
        nodes = list(accumulate((having[step] for step in steps), or_))
        return steps[::-1], nodes[::-1]
