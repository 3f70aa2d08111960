"""A cluster as the reconciler sees it, followed by watches: for verbs that go on showing it."""

import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from console.snapshot import UnreadableCluster
from kube.client import Client
from kube.errors import NotFound
from kube.informer import Informer
from kube.resource import BUDGETS, COMPOSITE_QUOTAS, ELASTIC_QUOTAS, NODES, PODS, Resource
from policies.budgets import BudgetView
from policies.view import PodView
from reconciler.observe import ObservedNode, Picture, picture, project_budget, project_node, project_pod
from reconciler.quotas import ObservedQuota, project_composite, project_elastic

PACE_S: Final = 0.5  # between two pictures: what happens meanwhile stands in the second one
AGAIN_S: Final = 10.0  # without any change: what depends on how long a pod has waited
SYNC_S: Final = 30.0  # until everything has been listed once

_Follower = Informer[PodView] | Informer[ObservedNode] | Informer[BudgetView] | Informer[ObservedQuota]


class Following:
    """The objects that decisions read, kept true from the `with` block's beginning to its end."""

    def __init__(self, client: Client) -> None:
        """Ask the API server what it serves. Raises ApiError or Unreachable, as a reader that asks once does."""
        client.get(NODES.path(), limit="1")
        self._changed = threading.Event()
        self._pods = Informer(client, PODS, project_pod)
        self._nodes = Informer(client, NODES, project_node)
        self._budgets = Informer(client, BUDGETS, project_budget)
        self._quotas = [
            Informer(client, resource, project)
            for resource, project in ((ELASTIC_QUOTAS, project_elastic), (COMPOSITE_QUOTAS, project_composite))
            if _serves(client, resource)
        ]
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        for informer in self._all:
            informer.on_change(self._note)
            informer.start()
        if not all(informer.synced.wait(SYNC_S) for informer in self._all):
            raise UnreadableCluster(f"the API server has not listed everything within {SYNC_S:.0f} s")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        for informer in self._all:
            informer.stop()

    def pictures(self) -> Iterator[Picture]:
        """Yield the cluster as it is now, and again after every change, without end."""
        while True:
            self._changed.clear()
            yield picture(
                self._nodes.store.list(),
                self._pods.store.list(),
                time.time(),
                quotas=(quota.view for informer in self._quotas for quota in informer.store.list()),
                budgets=self._budgets.store.list(),
            )
            self._changed.wait(AGAIN_S)
            self._ended.wait(PACE_S)

    @property
    def _all(self) -> tuple[_Follower, ...]:
        return self._pods, self._nodes, self._budgets, *self._quotas

    def _note(self, _key: str, _old: object, _new: object) -> None:
        self._changed.set()


def _serves(client: Client, resource: Resource) -> bool:
    try:
        client.get(resource.path(), limit="1")
    except NotFound:
        return False
    return True
