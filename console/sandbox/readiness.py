"""When a booted cluster can be used: a pod created now would be accepted, scheduled and run."""

from collections.abc import Sequence

import msgspec

from console.sandbox.apiclient import ApiClient, Refused
from policies.model import Node, ObjectMeta

_NOT_READY = "node.kubernetes.io/not-ready"


class _Nodes(msgspec.Struct):
    items: tuple[Node, ...]


class _Object(msgspec.Struct):
    metadata: ObjectMeta


class _Objects(msgspec.Struct):
    items: tuple[_Object, ...]


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


def server_version(client: ApiClient) -> str:
    """Return the version of the API server, such as `v1.36.3`."""
    return msgspec.json.decode(client.get("/version"), type=_Version).git_version


def list_nodes(client: ApiClient) -> tuple[Node, ...]:
    """Return all nodes. Raises as `ApiClient.get`."""
    return msgspec.json.decode(client.get("/api/v1/nodes"), type=_Nodes).items


def cluster_ready(client: ApiClient, nodes: Sequence[str]) -> bool:
    """Return whether pods can be created in `default` and run on these nodes.

    Each node is created with a taint (admission plugin NodeTaint) that the controller manager takes off, and kwok runs
    pods of a node once it holds its lease. Pods are refused until the service account `default` exists.
    """
    try:
        client.get("/api/v1/namespaces/default/serviceaccounts/default")
        listed = list_nodes(client)
        leases = client.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    except (OSError, Refused):
        return False
    usable = {node.metadata.name for node in listed if not _is_tainted(node)}
    held = {lease.metadata.name for lease in msgspec.json.decode(leases, type=_Objects).items}
    return set(nodes) <= usable & held


def _is_tainted(node: Node) -> bool:
    taints = node.spec.taints if node.spec else None
    return any(taint.key == _NOT_READY for taint in taints or ())
