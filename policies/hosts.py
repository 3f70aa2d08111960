"""Which of many nodes pods may run on, by what they require of their node: asked of all nodes at once.

Many nodes have the same label or taints, so a requirement is looked at once for each value of its label, not for each
node. What `Constraints` says of one node is the rule; this says the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Final, TypeVar

from policies.constraints import Constraints
from policies.labels import holds
from policies.model import NodeSelectorRequirement, NodeSelectorTerm, Taint
from policies.nodesets import Nodes, set_of
from policies.view import NodeView

_REMEMBERED: Final = 1 << 12  # constraints, some of pods that are no more, until all are forgotten
_NAME: Final = "metadata.name"  # the only field of nodes by which they are selected

V = TypeVar("V")


@dataclass(eq=False, slots=True)
class Hosts:
    """Some nodes, of which sets are bits: bit i is the i-th of them. Remembers what it was asked.

    Attributes:
        nodes: the nodes.
    """

    nodes: Sequence[NodeView]
    _open: dict[tuple[Constraints, bool], Nodes] = field(default_factory=dict)
    _meeting: dict[tuple[NodeSelectorRequirement, bool], Nodes] = field(default_factory=dict)
    _having: dict[tuple[str, bool], dict[str | None, Nodes]] = field(default_factory=dict)
    _tainted: dict[tuple[Taint, ...], Nodes] = field(init=False)

    def __post_init__(self) -> None:
        self._tainted = self.sets(lambda node: node.taints)

    def open_to(self, constraints: Constraints, *, although_away: bool = False) -> Nodes:
        """Return the nodes that a pod may run on by its constraints; `although_away` passes over Kubernetes' own taints."""
        key = (constraints, although_away)
        if key not in self._open:
            if len(self._open) >= _REMEMBERED:
                self._open, self._meeting, self._having = {}, {}, {}
            found: Nodes = 0
            for taints, nodes in self._tainted.items():
                if constraints.tolerates(taints, although_away=although_away):
                    found |= nodes
            for name, value in constraints.selector:
                found &= self._by_value(name, fields=False).get(value, 0)
            if constraints.terms is not None:
                found &= reduce(or_, map(self._term, constraints.terms), 0)
            self._open[key] = found
        return self._open[key]

    def sets(self, what: Callable[[NodeView], V]) -> dict[V, Nodes]:
        """Return the nodes that have something in common, by what that is."""
        places: dict[V, list[int]] = {}
        for place, node in enumerate(self.nodes):
            places.setdefault(what(node), []).append(place)
        return {value: set_of(where) for value, where in places.items()}

    def _term(self, term: NodeSelectorTerm) -> Nodes:
        expressions, fields = term.match_expressions or (), term.match_fields or ()
        if not expressions and not fields:
            return 0  # an empty term matches nothing, by Kubernetes' rule
        every = [self._meets(one, fields=False) for one in expressions] + [
            self._meets(one, fields=True) for one in fields
        ]
        return reduce(and_, every)

    def _meets(self, requirement: NodeSelectorRequirement, *, fields: bool) -> Nodes:
        key = (requirement, fields)
        if key not in self._meeting:
            name, found = requirement.key, 0
            for value, nodes in self._by_value(name, fields=fields).items():
                if holds(requirement, {} if value is None else {name: value}):
                    found |= nodes
            self._meeting[key] = found
        return self._meeting[key]

    def _by_value(self, name: str, *, fields: bool) -> dict[str | None, Nodes]:
        """Return the nodes by the value of a label, or of a field; None where they have none."""
        key = (name, fields)
        if key not in self._having:
            by_field: Callable[[NodeView], str | None] = lambda node: node.name if name == _NAME else None  # noqa: E731
            self._having[key] = self.sets(by_field if fields else lambda node: node.labels.get(name))
        return self._having[key]
