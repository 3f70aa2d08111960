"""What one decision leaves for the next, so that a small change costs little.

Nothing is decided by it: with a memo and without, a view comes to the same decision. All that it keeps follows from
frozen objects, and is given out only while those are the same, or equal in all that it follows from.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from policies.charges import Places
from policies.holding import Lefts
from policies.hosts import Hosts
from policies.seating import Seating
from policies.supply import Supply, survey
from policies.view import NodeView, PodView

_MOST_STATES: Final = 1 << 15  # of boards, some that are no more, until all are forgotten; some 30 MiB


class _Surveyed(msgspec.Struct, frozen=True, eq=False):
    """A node and what was seen of it, which decides what it can give."""

    node: NodeView
    bound: Sequence[PodView]
    promised: frozenset[str]
    supply: Supply


class Memo:
    """Kept by who decides again and again; for one decision at a time.

    Attributes:
        lefts: what nodes had in the last decision when those had ended who may.
    """

    def __init__(self) -> None:
        self.lefts: Lefts = {}
        self._surveyed: dict[str, _Surveyed] = {}
        self._charged: Sequence[NodeView] = ()
        self._places = Places(())
        self._planned: Sequence[NodeView] = ()
        self._hosts = Hosts(())
        self._empty = Seating(())

    def supply(
        self, node: NodeView, bound: Sequence[PodView], promised: frozenset[str], leaving: Collection[str]
    ) -> Supply:
        """Return what a node can give, as `survey` finds it; whether pods are `leaving` is seen of themselves."""
        known = self._surveyed.get(node.name)
        if (
            known is None
            or not (known.node is node or known.node == node)
            or known.bound != bound
            or known.promised != promised
        ):
            here = frozenset(pod.key for pod in bound if pod.key in leaving) if leaving else frozenset()
            known = _Surveyed(node, bound, promised, survey(node, bound, promised, here))
            self._surveyed[node.name] = known
        return known.supply

    def places(self, nodes: Sequence[NodeView]) -> Places:
        """Return the places of pods on these nodes."""
        if not _alike(self._charged, nodes):
            self._places = Places(nodes)
        self._charged = nodes
        return self._places

    def hosts(self, nodes: Sequence[NodeView]) -> Hosts:
        """Return these nodes, all of them up, by the pods that they admit."""
        if not _alike(self._planned, nodes):
            self._hosts = Hosts(nodes)
        self._planned = nodes
        return self._hosts

    def seating(self, sites: Sequence[Supply]) -> Seating:
        """Return these nodes with nobody on them."""
        empty = self._empty
        if len(empty.packing) > _MOST_STATES:
            empty, self.lefts = Seating(()), {}
        if len(empty.sites) != len(sites):
            empty = Seating(sites, empty.packing)
        self._empty = empty
        for position, (before, site) in enumerate(zip(empty.sites, sites, strict=True)):
            if before is not site:
                empty.alter(position, site)
        return empty.copy()

    def forget_others(self, nodes: Sequence[NodeView]) -> None:
        """Forget nodes that are no more."""
        if len(self._surveyed) > len(nodes):
            names = {node.name for node in nodes}
            self._surveyed = {name: known for name, known in self._surveyed.items() if name in names}


def _alike(before: Sequence[NodeView], nodes: Sequence[NodeView]) -> bool:
    """Return whether nodes are the same in the same order, in all that decides which pods they admit and what these cost."""
    return len(before) == len(nodes) and all(
        old is new
        or (
            old.name == new.name
            and old.labels == new.labels
            and old.taints == new.taints
            and [(board.mode, board.model) for board in old.boards]
            == [(board.mode, board.model) for board in new.boards]
        )
        for old, new in zip(before, nodes, strict=True)
    )
