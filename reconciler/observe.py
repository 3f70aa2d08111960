"""From the API server's objects to the picture that decisions are made from, slimmer at each step.

Projections run once per change of an object, on the informers' threads; a `Picture` is put together once per cycle.
Of pods that ask nothing of us only the room that they take on a node is kept, so that their many changes of status
change nothing here; pods that hold and want nothing are not kept at all (pain R08).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from policies import names
from policies.model import Node, Pod
from policies.view import NodeView, PodView, View, view_node, view_pod

TOLD: Final = "told"

_POD: Final = msgspec.json.Decoder(Pod)
_NODE: Final = msgspec.json.Decoder(Node)


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
    """

    view: View
    nodes: Mapping[str, ObservedNode]
    pods: Mapping[str, PodView]


def project_pod(raw: bytes) -> PodView | None:
    """Return what is kept of a pod; None if it has ended, or neither wants anything of us nor is bound.

    Raises msgspec.DecodeError if it cannot be read.
    """
    seen = view_pod(_POD.decode(raw))
    if seen.finished:
        return None
    if seen.gated or any(name.startswith(names.NVIDIA_PREFIX) for name in seen.request):
        return seen
    return (
        PodView(namespace=seen.namespace, name=seen.name, node=seen.node, request=seen.request) if seen.node else None
    )


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


def told(pod: PodView) -> tuple[str, ...]:
    """Return the index of pods whose condition says that they wait."""
    return (TOLD,) if pod.waiting[0] else ()


def is_bystander(pod: PodView) -> bool:
    """Return whether a pod asks nothing of us and only takes room: no identity is kept of it."""
    return not pod.version


def picture(
    nodes: Iterable[ObservedNode],
    pods: Iterable[PodView],
    now: float,
    assumed: Mapping[str, PodView | ObservedNode] | None = None,
) -> Picture:
    """Return the picture at `now` (seconds since the epoch).

    Of pods that want nothing of us only those that take room on nodes of ours are in it. `assumed`, by namespace/name
    or node name, stands in for objects that a write of ours may have changed.
    """
    by_name = {node.view.name: node for node in nodes}
    managed = {name for name, node in by_name.items() if node.view.managed}
    kept = {pod.key: pod for pod in pods if pod.node in managed or not is_bystander(pod)}
    for key, done in (assumed or {}).items():
        if isinstance(done, PodView) and key in kept:
            kept[key] = done
        elif isinstance(done, ObservedNode) and key in by_name:
            by_name[key] = done
    view = View(nodes=tuple(node.view for node in by_name.values()), pods=tuple(kept.values()), now=now)
    return Picture(view=view, nodes=by_name, pods=kept)


def same_pod(old: PodView, new: PodView) -> bool:
    """Return whether a change leaves everything that decisions read as it was."""
    return msgspec.structs.replace(old, version=new.version, waiting=new.waiting) == new


def _told(node: Node) -> tuple[str, str]:
    for condition in (node.status and node.status.conditions) or ():
        if condition.type == names.PARTITIONING_CONDITION and condition.status == "False":
            return condition.reason or "", condition.message or ""
    return "", ""
