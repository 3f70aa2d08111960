"""A stand-in for kube-scheduler: which node a released pod is bound to, or why there is none.

Knows what the planner counts on: selector, required node affinity, taints, cordon, readiness, and room of every
resource. Where the real one scores, this takes the node that was planned, then the first by name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from policies.model import Taint
from policies.needs import is_slice
from policies.supply import room_request
from policies.view import NodeView, PodView

_CORDON = (Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),)


Usage = dict[str, Counter[str]]
"""What is taken of each node, in thousandths of each resource."""


def usage(bound: Iterable[PodView]) -> Usage:
    """Return what pods take that have a node and have not ended."""
    taken: Usage = {}
    for pod in bound:
        add(taken, pod)
    return taken


def add(taken: Usage, pod: PodView) -> None:
    """Count a pod that has been bound."""
    taken.setdefault(pod.node, Counter()).update(_needs(pod))


def choose(pod: PodView, nodes: Mapping[str, NodeView], taken: Usage, planned: str) -> tuple[str, str]:
    """Return (node, "") or ("", why there is none); `planned` is the node that the pod was planned on, if any."""
    objections = {name: _objection(pod, node, taken.get(name, Counter())) for name, node in nodes.items()}
    fit = [name for name, objection in objections.items() if not objection]
    if fit:
        return min(fit, key=lambda name: (name != planned, name)), ""
    counts = Counter(objections.values())
    return "", "; ".join(f"{count} of {len(nodes)} nodes: {why}" for why, count in sorted(counts.items())) or "no nodes"


def _objection(pod: PodView, node: NodeView, taken: Counter[str]) -> str:
    """Return why a pod cannot be bound to a node, or "" if it can."""
    if not node.ready:
        return "not ready"
    if node.cordoned and not pod.constraints.tolerates(_CORDON):
        return "cordoned"
    if not pod.constraints.selects(node.name, node.labels):
        return "not selected"
    if not pod.constraints.tolerates(node.taints):
        return "tainted"
    lacking = [
        name
        for name, amount in _needs(pod).items()
        if amount > 0 and node.allocatable.get(name, 0) - taken[name] < amount
    ]
    return f"not enough {', '.join(sorted(lacking))}" if lacking else ""


def _needs(pod: PodView) -> dict[str, int]:
    """Return all that a pod takes of a node, slices and its place among the pods included, in thousandths."""
    return dict(room_request(pod)) | {name: amount for name, amount in pod.request.items() if is_slice(name)}
