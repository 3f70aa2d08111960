"""The cluster as the webhook remembers it: nodes with their boards, and labels of namespaces. No review waits for I/O.

While the API server is away the last picture stays, and reviews go on being answered from it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kube.client import Client
from kube.informer import Informer
from kube.resource import NAMESPACES, NODES
from policies import names
from policies.inventory import Inventory
from policies.model import Namespace, Node
from policies.settings import DEFAULTS, Settings
from policies.site import Site, site_of
from policies.view import view_node

# All that decisions read of a namespace; a namespace without any is not kept.
_LABELS: Final = (names.POD_SECURITY_LABEL,)

_nodes: Final = msgspec.json.Decoder(Node)
_namespaces: Final = msgspec.json.Decoder(Namespace)


class ClusterView:
    """What a replica knows. Any thread may read; one informer thread for each kind keeps it true."""

    def __init__(self, client: Client, settings: Settings = DEFAULTS) -> None:
        self.settings = settings
        self.inventory = Inventory({})
        self._sites = Informer(client, NODES, project_node)
        self._labels = Informer(client, NAMESPACES, project_namespace)
        self._sites.on_change(self._node_changed)

    def start(self) -> None:
        """Begin to follow the cluster; returns at once."""
        self._sites.start()
        self._labels.start()

    def stop(self) -> None:
        """End that; what is known stays readable."""
        self._sites.stop()
        self._labels.stop()

    def synced(self) -> bool:
        """Return whether everything has been read once, so that reviews may be answered."""
        return self._sites.synced.is_set() and self._labels.synced.is_set()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace that decisions read; empty if it is not known (yet)."""
        return self._labels.store.get(namespace) or {}

    def _node_changed(self, name: str, _: Site | None, site: Site | None) -> None:
        self.inventory = self.inventory.replaced(name, site)


def project_node(raw: bytes) -> Site | None:
    """Return what is kept of a node; None if it has nothing to do with slices. Raises msgspec.DecodeError."""
    return site_of(view_node(_nodes.decode(raw)))


def project_namespace(raw: bytes) -> Mapping[str, str] | None:
    """Return what is kept of a namespace; None if nothing. Raises msgspec.DecodeError."""
    labels = _namespaces.decode(raw).metadata.labels or {}
    return {key: labels[key] for key in _LABELS if key in labels} or None
