"""The cluster as the webhook remembers it: nodes with their boards, quotas with what they use, policies, namespaces.

No review waits for I/O. No pods are watched: what a quota uses stands in its status, as of the last fraction of a second.

While the API server is away the last picture stays, and reviews go on being answered from it.
"""

import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from kube.client import Client
from kube.informer import Informer
from kube.resource import COMPOSITE_QUOTAS, ELASTIC_QUOTAS, GPU_POLICIES, NAMESPACES, NODES
from policies import names
from policies.estimate import UNGOVERNED, Standings
from policies.governing import QuotaView, view_quota
from policies.gpupolicy import UNWRITTEN, Policies, view_policy
from policies.inventory import Inventory
from policies.model import CompositeElasticQuota, ElasticQuota, GpuPolicy, Namespace, Node
from policies.policy import PolicyView
from policies.quantity import Amounts, Quantity, QuantityError, amounts
from policies.settings import DEFAULTS, Settings
from policies.site import Site, site_of
from policies.view import view_node
from webhook.tally import Tally

# All that decisions read of a namespace; those without any share one answer.
_LABELS: Final = (names.POD_SECURITY_LABEL,)
_NO_LABELS: Final[Mapping[str, str]] = {}


class Standing(msgspec.Struct, frozen=True):
    """A quota, and what its status says that it uses."""

    quota: QuotaView
    used: Amounts


class _Status(msgspec.Struct, frozen=True):
    used: dict[str, Quantity] | None = None


class _Elastic(ElasticQuota, frozen=True):
    status: _Status | None = None


class _Composite(CompositeElasticQuota, frozen=True):
    status: _Status | None = None


_elastic: Final = msgspec.json.Decoder(_Elastic)
_composite: Final = msgspec.json.Decoder(_Composite)
_policies: Final = msgspec.json.Decoder(GpuPolicy)
_nodes: Final = msgspec.json.Decoder(Node)
_namespaces: Final = msgspec.json.Decoder(Namespace)


class _Informer(Protocol):
    synced: threading.Event

    def start(self) -> None: ...

    def stop(self) -> None: ...


class ClusterView:
    """What a replica knows. Any thread may read; one informer thread for each kind keeps it true."""

    def __init__(self, client: Client, settings: Settings = DEFAULTS) -> None:
        self.settings = settings
        self.inventory = Inventory({})
        self.tally = Tally(time.monotonic)
        self._sites = Informer(client, NODES, project_node)
        self._labels = Informer(client, NAMESPACES, project_namespace)
        self._quotas = (
            Informer(client, ELASTIC_QUOTAS, project_elastic),
            Informer(client, COMPOSITE_QUOTAS, project_composite),
        )
        self._policy_views = Informer(client, GPU_POLICIES, project_policy)
        self._informers: tuple[_Informer, ...] = (self._sites, self._labels, *self._quotas, self._policy_views)
        # Each with the versions of the stores that it was made from.
        self._standings = (0, 0), UNGOVERNED
        self._policies = 0, UNWRITTEN
        self._sites.on_change(self._node_changed)

    def start(self) -> None:
        """Begin to follow the cluster; returns at once."""
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """End that; what is known stays readable."""
        for informer in self._informers:
            informer.stop()

    def synced(self) -> bool:
        """Return whether everything has been read once, so that reviews may be answered."""
        return all(informer.synced.is_set() for informer in self._informers)

    @property
    def quotas(self) -> tuple[QuotaView, ...]:
        """Return all quotas, in force or not."""
        return tuple(standing.quota for quotas in self._quotas for standing in quotas.store.list())

    @property
    def standings(self) -> Standings:
        """Return the quotas with what they use; made anew by the first review after a change."""
        elastic, composite = (quotas.store for quotas in self._quotas)
        versions = elastic.version, composite.version  # read first: what changes meanwhile is for the next review
        known, standings = self._standings
        if known != versions:
            everybody = (*elastic.list(), *composite.list())
            standings = Standings.of((one.quota for one in everybody), {one.quota.title: one.used for one in everybody})
            self._standings = versions, standings
        return standings

    @property
    def policies(self) -> Policies:
        """Return the policies; made anew by the first review after a change."""
        version = self._policy_views.store.version  # read first: what changes meanwhile is for the next review
        known, policies = self._policies
        if known != version:
            policies = Policies(self._policy_views.store.list())
            self._policies = version, policies
        return policies

    def knows(self, namespace: str) -> bool:
        """Return whether there is a namespace of that name."""
        return self._labels.store.get(namespace) is not None

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace that decisions read; empty if it is not known (yet)."""
        return self._labels.store.get(namespace) or _NO_LABELS

    def _node_changed(self, name: str, before: Site | None, site: Site | None) -> None:
        self.inventory = self.inventory.replaced(name, site)
        self.tally.shown(before, site)  # afterwards: what is in neither would be given away twice


def project_node(raw: bytes) -> Site | None:
    """Return what is kept of a node; None if it has nothing to do with slices. Raises msgspec.DecodeError."""
    return site_of(view_node(_nodes.decode(raw)))


def project_elastic(raw: bytes) -> Standing:
    """Return what is kept of an ElasticQuota. Raises msgspec.DecodeError."""
    return _standing(_elastic.decode(raw))


def project_composite(raw: bytes) -> Standing:
    """Return what is kept of a CompositeElasticQuota. Raises msgspec.DecodeError."""
    return _standing(_composite.decode(raw))


def project_policy(raw: bytes) -> PolicyView:
    """Return what is kept of a GpuPolicy. Raises msgspec.DecodeError."""
    return view_policy(_policies.decode(raw))


def project_namespace(raw: bytes) -> Mapping[str, str]:
    """Return what is kept of a namespace: the labels that decisions read. Raises msgspec.DecodeError."""
    labels = _namespaces.decode(raw).metadata.labels or {}
    return {key: labels[key] for key in _LABELS if key in labels} or _NO_LABELS


def _standing(quota: _Elastic | _Composite) -> Standing:
    try:
        used = amounts(quota.status.used) if quota.status else {}
    except QuantityError:  # the reconciler will write it anew
        used = {}
    return Standing(view_quota(quota), used)
