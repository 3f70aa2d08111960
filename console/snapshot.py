"""A cluster as the reconciler would see it now, read once from the API server: for verbs that only look."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import click
import msgspec
from msgspec.structs import replace

from kube.client import Client
from kube.errors import ApiError, ConfigError, NotFound, Unreachable
from kube.resource import (
    BUDGETS,
    COMPOSITE_QUOTAS,
    ELASTIC_QUOTAS,
    GPU_POLICIES,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)
from policies.gpupolicy import view_policy
from policies.model import GpuPolicy, Namespace
from policies.policy import PolicyView
from reconciler.observe import Picture, picture, project_budget, project_node, project_pod
from reconciler.quotas import project_composite, project_elastic

T = TypeVar("T")

PAGE: Final = 500

# A click option for every verb that asks a cluster.
kubeconfig_option = click.option("--kubeconfig", help="Default: $KUBECONFIG or ~/.kube/config.")


class _ListMeta(msgspec.Struct, frozen=True, rename={"continue_": "continue"}):
    continue_: str = ""


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


class UnreadableCluster(click.ClickException):
    """A cluster cannot be asked: no kubeconfig, nobody who answers, or no leave. To a verb it is input, as files are."""

    exit_code = 2


@contextlib.contextmanager
def connected(kubeconfig: str | None) -> Iterator[Client]:
    """Connect to a cluster for a verb. What goes wrong with it ends the verb with a message: UnreadableCluster."""
    try:
        client = Client.load(kubeconfig, user_agent="apportion")
    except ConfigError as error:
        raise UnreadableCluster(str(error)) from error
    try:
        yield client
    except (ApiError, Unreachable) as error:
        raise UnreadableCluster(f"{client.server}: {error}") from error
    finally:
        client.close()


def read(client: Client) -> Picture:
    """Return the cluster as it is now. An object that cannot be read is left out. Raises ApiError or Unreachable."""
    quotas = [
        *_all(client, ELASTIC_QUOTAS, project_elastic, or_none=True),
        *_all(client, COMPOSITE_QUOTAS, project_composite, or_none=True),
    ]
    budgets, nodes = _all(client, BUDGETS, project_budget), _all(client, NODES, project_node)
    pods = _all(client, PODS, project_pod)
    seen = picture(nodes, pods, time.time(), quotas=(quota.view for quota in quotas), budgets=budgets)
    policies = tuple(_all(client, GPU_POLICIES, _project_policy, or_none=True))
    return replace(seen, view=replace(seen.view, policies=policies))


def namespaces(client: Client) -> dict[str, Mapping[str, str]]:
    """Return the labels of all namespaces, by name. Raises ApiError or Unreachable."""
    return dict(_all(client, NAMESPACES, _project_namespace))


def _project_policy(raw: bytes) -> PolicyView:
    return view_policy(msgspec.json.decode(raw, type=GpuPolicy))


def _project_namespace(raw: bytes) -> tuple[str, Mapping[str, str]]:
    meta = msgspec.json.decode(raw, type=Namespace).metadata
    return meta.name or "", meta.labels or {}


def _all(
    client: Client, resource: Resource, project: Callable[[bytes], T | None], *, or_none: bool = False
) -> Iterator[T]:
    """Yield all objects of a kind; none where the API server does not know the kind, if that may be."""
    query = {"limit": str(PAGE)}
    while True:
        try:
            page = msgspec.json.decode(client.get(resource.path(), **query), type=_Page)
        except NotFound:
            if or_none:
                return
            raise
        for item in page.items or ():
            with contextlib.suppress(msgspec.DecodeError):
                if (seen := project(bytes(item))) is not None:
                    yield seen
        if not page.metadata.continue_:
            return
        query["continue"] = page.metadata.continue_
