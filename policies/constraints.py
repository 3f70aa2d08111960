"""Which nodes a pod may run on: selector, required node affinity, taints. The scheduler's rules, for our planning.

Source: k8s.io/component-helpers, scheduling/corev1 (node affinity and tolerations).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from policies.labels import holds
from policies.model import NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration

# Taints that Kubernetes sets itself while a node is away or pressed; they come and go with the node's state.
AWAY_TAINTS: Final = "node.kubernetes.io/"
_BINDING_EFFECTS: Final = ("NoSchedule", "NoExecute")


class Constraints(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod requires of its node. Hashable: pods with equal constraints are one group.

    Attributes:
        selector: pairs of the node selector, sorted.
        terms: required node affinity, of which one term must hold; None where the pod has none.
        tolerations: taints that the pod bears.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether selector and required affinity admit a node of that name with those labels."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.terms is None or any(_term_holds(term, name, labels) for term in self.terms)

    def narrowing(self, left: int, of: int, which: str) -> str:
        """Return that selector and affinity leave so many of some nodes, as the end of a sentence; "" if they leave all.

        `which` nodes: the end of "2 of 40 nodes".
        """
        wants = [f"nodeSelector ({', '.join('='.join(pair) for pair in self.selector)})"] if self.selector else []
        wants += ["required node affinity"] if self.terms is not None else []
        if left >= of or not wants:
            return ""
        have, verb = "has" if left == 1 else "have", "wants" if len(wants) == 1 else "want"
        return f"; only {left} of {of} nodes{which} {have} what the pod's {' and '.join(wants)} {verb}"

    def allows(self, key: str, value: str) -> bool:
        """Return whether a node whose label has this value could be selected, whatever its other labels are."""
        if any(each == key and wanted != value for each, wanted in self.selector):
            return False
        if self.terms is None:
            return True
        return any(
            all(
                holds(requirement, {key: value})
                for requirement in term.match_expressions or ()
                if requirement.key == key
            )
            for term in self.terms
            if term.match_expressions or term.match_fields
        )

    def within(self, key: str, values: tuple[str, ...]) -> "Constraints":
        """Return the same for a pod that is kept, besides, to nodes whose label has one of these values."""
        only = NodeSelectorRequirement(key=key, operator="In", values=values)
        if self.terms is None:
            return replace(self, terms=(NodeSelectorTerm(match_expressions=(only,)),))
        terms = (
            replace(term, match_expressions=(*(term.match_expressions or ()), only))
            for term in self.terms
            if term.match_expressions or term.match_fields
        )
        return replace(self, terms=tuple(terms))

    def tolerates(self, taints: Iterable[Taint], *, although_away: bool = False) -> bool:
        """Return whether the pod bears all taints that keep pods off; `although_away` passes over those of Kubernetes."""
        return all(
            any(_bears(toleration, taint) for toleration in self.tolerations)
            for taint in taints
            if taint.effect in _BINDING_EFFECTS and not (although_away and taint.key.startswith(AWAY_TAINTS))
        )


def constraints_of(spec: PodSpec) -> Constraints:
    """Return what a pod requires of its node."""
    affinity = spec.affinity and spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    return Constraints(
        selector=tuple(sorted((spec.node_selector or {}).items())),
        terms=(required.node_selector_terms or ()) if required else None,
        tolerations=spec.tolerations or (),
    )


def _term_holds(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # an empty term matches nothing, by Kubernetes' rule
    return all(holds(requirement, labels) for requirement in term.match_expressions or ()) and all(
        holds(requirement, {"metadata.name": name}) for requirement in term.match_fields or ()
    )


def _bears(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == (taint.value or "")
