"""What a decision looks like as a request to the API server: bodies of patches, pure.

All are merge patches (RFC 7386) that name the resourceVersion they were decided from, so that the API server refuses
them (409) if the object has changed since. A merge patch, unlike a JSON patch, needs no knowledge of which parents are
there: an absent affinity is made, a present one is changed in the one place that is ours.
"""

from collections.abc import Mapping
from typing import Final

from policies import names
from policies.annotations import stale_counts, write_spec
from policies.decision import Cut, Evict, Layout, Relabel, Release
from policies.model import NodeSelectorRequirement, NodeSelectorTerm
from policies.timestamps import timestamp
from policies.view import PodView
from reconciler.observe import ObservedNode

Body = Mapping[str, object]

_NODE_NAME: Final = "metadata.name"  # the field; the label kubernetes.io/hostname need not be the node's name


def release_patch(pod: PodView, release: Release, now: float) -> Body:
    """Return the patch that removes our gate and, in the same step, writes the label and keeps off the nodes to avoid.

    And the time, `now`: the scheduler's condition that a pod is unschedulable bears the time of the gate's own.

    The API server lets affinity be narrowed only while a gate is there, so it must be one patch. Ours is the last gate:
    a pod that somebody else holds is not released.
    """
    spec: dict[str, object] = {"schedulingGates": None}
    if release.avoid:
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": _narrowed(pod.constraints.terms, release.avoid)
                }
            }
        }
    labels = {"labels": {names.CAPACITY_LABEL: release.capacity}} if release.capacity else {}
    annotations = {names.RELEASED_AT: timestamp(now)}
    return {"metadata": {"resourceVersion": release.version, "annotations": annotations, **labels}, "spec": spec}


def relabel_patch(relabel: Relabel) -> Body:
    """Return the patch that makes a pod's capacity label true; one without a quota loses it."""
    labels = {names.CAPACITY_LABEL: relabel.capacity or None}
    return {"metadata": {"resourceVersion": relabel.version, "labels": labels}}


def mark_patch(pod: PodView, claimant: str | None) -> Body:
    """Return the patch that notes on a pod for whom it is evicted; None takes that back."""
    precondition = {"uid": pod.uid, "resourceVersion": pod.version}
    return {"metadata": {**precondition, "annotations": {names.EVICTED_FOR: claimant}}}


def eviction(evict: Evict) -> Body:
    """Return the Eviction (policy/v1) of one pod, and of no other that bears its name."""
    namespace, _, name = evict.pod.rpartition("/")
    # A mark has changed its victim's resourceVersion. Who bears none may have been bound meanwhile, and so may stay.
    state = {} if evict.claimant else {"resourceVersion": evict.version}
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": evict.uid, **state}, "gracePeriodSeconds": evict.grace_s},
    }


def order_patch(node: ObservedNode, layout: Layout, plan: str) -> Body:
    """Return the patch that orders a node's agent to bring boards into a layout."""
    written = write_spec(layout.target, layout.basis, plan)
    stale = stale_counts(names.SPEC_GPU, dict.fromkeys(node.counts, ""), written)
    return _annotate(node, {**written, **stale})


def cut_patch(node: ObservedNode, cut: Cut) -> Body:
    """Return the patch that allows a node's agent to destroy what it has withdrawn."""
    return _annotate(node, {names.SPEC_CUT: cut.plan})


def _annotate(node: ObservedNode, annotations: Mapping[str, str | None]) -> Body:
    return {"metadata": {"resourceVersion": node.version, "annotations": annotations}}


def _narrowed(terms: tuple[NodeSelectorTerm, ...] | None, avoid: tuple[str, ...]) -> list[Body]:
    """Return required node affinity with these nodes excluded from each term, since any one term admits a node.

    One requirement per node: on fields the API server takes a single value. A term without requirements matches no
    node; one more requirement would make it match, so it stays as it is.
    """
    off: list[Body] = [{"key": _NODE_NAME, "operator": "NotIn", "values": [node]} for node in avoid]
    if terms is None:
        return [{"matchFields": off}]
    return [_term(term, off) if term.match_expressions or term.match_fields else {} for term in terms]


def _term(term: NodeSelectorTerm, more: list[Body]) -> Body:
    fields = [*map(_requirement, term.match_fields or ()), *more]
    if not term.match_expressions:
        return {"matchFields": fields}
    return {"matchExpressions": [_requirement(item) for item in term.match_expressions], "matchFields": fields}


def _requirement(requirement: NodeSelectorRequirement) -> Body:
    written = {"key": requirement.key, "operator": requirement.operator}
    return {**written, "values": list(requirement.values)} if requirement.values else written
