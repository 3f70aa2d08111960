"""The cluster as it is watched during one term of leadership: live copies of everything that decisions read.

A watch tells late, by milliseconds or, if it is broken, by minutes. Two decisions must not be made from what may be old:
to cut a board, and to let through a pod whose quota is not seen. For these the API server is asked.
"""

import threading
import time
from collections.abc import Mapping
from typing import Protocol

from kube.client import Client
from kube.informer import Informer
from kube.resource import BUDGETS, COMPOSITE_QUOTAS, ELASTIC_QUOTAS, GPU_POLICIES, NAMESPACES, NODES, PODS
from policies import names
from policies.view import PodView
from reconciler.changes import Changes
from reconciler.observe import (
    MARK,
    TOLD,
    ObservedNode,
    Picture,
    mark,
    picture,
    project_budget,
    project_node,
    project_pod,
    told,
)
from reconciler.policies import project_policy
from reconciler.quotas import project_composite, project_elastic, project_namespace


class _Informer(Protocol):
    synced: threading.Event

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Cluster:
    """Informers of one term.

    Attributes:
        pods, nodes, budgets, namespaces: of all namespaces.
        quotas: by kind.
        policies: of all namespaces.
        changes: what they have told since the last decision.
    """

    def __init__(self, client: Client) -> None:
        self.pods = Informer(client, PODS, project_pod, indexes={TOLD: told, MARK: mark})
        self.nodes = Informer(client, NODES, project_node)
        self.quotas = {
            names.ELASTIC_QUOTA: Informer(client, ELASTIC_QUOTAS, project_elastic),
            names.COMPOSITE_QUOTA: Informer(client, COMPOSITE_QUOTAS, project_composite),
        }
        self.policies = Informer(client, GPU_POLICIES, project_policy)
        self.budgets = Informer(client, BUDGETS, project_budget)
        self.namespaces = Informer(client, NAMESPACES, project_namespace)
        self.changes = Changes()
        self.pods.on_change(self.changes.pod)
        self.nodes.on_change(self.changes.node)
        for quotas in self.quotas.values():
            quotas.on_change(self.changes.quota)
        self.policies.on_change(self.changes.policy)
        self.budgets.on_change(self.changes.budget)
        self._informers: tuple[_Informer, ...] = (
            self.nodes,
            *self.quotas.values(),
            self.policies,
            self.budgets,
            self.namespaces,
            self.pods,
        )

    def start(self) -> None:
        """Begin to list and to watch."""
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """End the watches; what was seen stays readable."""
        for informer in reversed(self._informers):
            informer.stop()

    def wait(self, timeout_s: float) -> bool:
        """Return whether everything has been listed, after waiting for it for at most so many seconds."""
        give_up = time.monotonic() + timeout_s
        return all(informer.synced.wait(max(0.0, give_up - time.monotonic())) for informer in self._informers)

    def look(self, now: float, assumed: Mapping[str, PodView | ObservedNode]) -> Picture:
        """Return what is seen at `now` (seconds since the epoch); `assumed` stands in for what our writes have changed."""
        seen = picture(
            self.nodes.store.list(),
            self.pods.store.list(),
            now,
            assumed,
            quotas=(quota.view for quotas in self.quotas.values() for quota in quotas.store.list()),
            policies=(policy.view for policy in self.policies.store.list()),
            budgets=self.budgets.store.list(),
        )
        self.changes.heed(seen)
        return seen

    def read_pods_of(self, node: str, timeout_s: float) -> bool:
        """See what the API server itself says of the pods bound to a node; False if that could not be had.

        A slice that has been withdrawn goes to no pod any more, so what may still hold one is bound by now, or was
        released by us, and that we know from our own writes.
        """
        return self.pods.read_afresh(field_selector=f"spec.nodeName={node}", timeout_s=timeout_s)

    def read_quotas(self, timeout_s: float) -> bool:
        """See what the API server itself says of all quotas; False if that could not be had."""
        return all(quotas.read_afresh(timeout_s=timeout_s) for quotas in self.quotas.values())
