"""From the API server's objects to the picture that decisions are made from, slimmer at each step.

Projections run once per change of an object, on the informers' threads; a `Picture` is put together once per cycle.
Whether a quota governs a pod its projection cannot know, since quotas come and go: pods that have not ended are all
kept, and the picture takes those that decisions read.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from policies import names
from policies.budgets import BudgetView, view_budget
from policies.governing import Governed, QuotaView, govern
from policies.model import Node, Pod, PodDisruptionBudget
from policies.policy import PolicyView
from policies.view import NodeView, PodView, View, view_node, view_pod

TOLD: Final = "told"
MARK: Final = "mark"
MARKED: Final = "marked"
ENDING: Final = "ending"

_POD: Final = msgspec.json.Decoder(Pod)
_NODE: Final = msgspec.json.Decoder(Node)
_BUDGET: Final = msgspec.json.Decoder(PodDisruptionBudget)


class ObservedNode(msgspec.Struct, frozen=True, gc=False):
    """A node and what a write to it needs besides.

    Attributes:
        view: what decisions see of it.
        uid: its uid.
        version: its resourceVersion, the precondition of writes.
        counts: keys of the counting spec-annotations that it bears, to be taken away when they are no longer true.
        agent: whether an agent has ever reported its boards.
        told: reason and message of its condition, where that is False: what people are told is amiss.
    """

    view: NodeView
    uid: str
    version: str
    counts: tuple[str, ...] = ()
    agent: bool = False
    told: tuple[str, str] = ("", "")


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What one cycle decides from, and what its writes refer to.

    Attributes:
        view: the input of `settle`.
        nodes: by name.
        pods: by namespace/name; those of the view.
        governed: which quota governs which namespace.
    """

    view: View
    nodes: Mapping[str, ObservedNode]
    pods: Mapping[str, PodView]
    governed: Governed


def project_pod(raw: bytes) -> PodView | None:
    """Return what is kept of a pod; None if it has ended. Raises msgspec.DecodeError if it cannot be read."""
    seen = view_pod(_POD.decode(raw))
    return None if seen.finished else seen


def project_node(raw: bytes) -> ObservedNode:
    """Return what is kept of a node. Raises msgspec.DecodeError if it cannot be read."""
    node = _NODE.decode(raw)
    annotations = node.metadata.annotations or {}
    return ObservedNode(
        view=view_node(node),
        uid=node.metadata.uid or "",
        version=node.metadata.resource_version or "",
        counts=tuple(key for key in annotations if key.startswith(names.SPEC_GPU)),
        agent=names.INVENTORY in annotations,
        told=_told(node),
    )


def project_budget(raw: bytes) -> BudgetView:
    """Return what is kept of a PodDisruptionBudget. Raises msgspec.DecodeError if it cannot be read."""
    return view_budget(_BUDGET.decode(raw))


def told(pod: PodView) -> tuple[str, ...]:
    """Return the index of pods whose condition says that they wait."""
    return (TOLD,) if pod.waiting[0] else ()


def mark(pod: PodView) -> tuple[str, ...]:
    """Return the index of pods that are marked for eviction: whether they have begun to end."""
    return (ENDING if pod.terminating else MARKED,) if pod.evicted_for else ()


def is_bystander(pod: PodView) -> bool:
    """Return whether a pod asks nothing of us where no quota governs it: it only takes room, and bears no label of ours."""
    return not (pod.gated or pod.moments or pod.capacity)


def picture(
    nodes: Iterable[ObservedNode],
    pods: Iterable[PodView],
    now: float,
    assumed: Mapping[str, PodView | ObservedNode] | None = None,
    *,
    quotas: Iterable[QuotaView] = (),
    policies: Iterable[PolicyView] = (),
    budgets: Iterable[BudgetView] = (),
) -> Picture:
    """Return the picture at `now` (seconds since the epoch).

    Of pods that want nothing of us only those that take room are in it: on nodes of ours, and on all nodes as soon as
    a quota governs anybody, whose pods may run there. `assumed`, by namespace/name or node name, stands in for objects
    that a write of ours may have changed.
    """
    by_name = {node.view.name: node for node in nodes}
    quotas = tuple(quotas)
    governed = govern(quotas)
    spaces = governed.by_namespace
    where = by_name.keys() if spaces else {name for name, node in by_name.items() if node.view.managed}
    kept = {pod.key: pod for pod in pods if pod.node in where or pod.namespace in spaces or not is_bystander(pod)}
    for key, done in (assumed or {}).items():
        if isinstance(done, PodView) and key in kept:
            kept[key] = done
        elif isinstance(done, ObservedNode) and key in by_name:
            by_name[key] = done
    view = View(
        nodes=tuple(node.view for node in by_name.values()),
        pods=tuple(kept.values()),
        now=now,
        quotas=quotas,
        policies=tuple(policies),
        budgets=tuple(budget for budget in budgets if budget.namespace in spaces),
    )
    return Picture(view=view, nodes=by_name, pods=kept, governed=governed)


def same_pod(old: PodView, new: PodView) -> bool:
    """Return whether a change leaves everything that decisions read as it was."""
    return msgspec.structs.replace(old, version=new.version, waiting=new.waiting) == new


def _told(node: Node) -> tuple[str, str]:
    for condition in (node.status and node.status.conditions) or ():
        if condition.type == names.PARTITIONING_CONDITION and condition.status == "False":
            return condition.reason or "", condition.message or ""
    return "", ""
