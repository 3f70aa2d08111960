"""Finds what is left of nos in the cluster: two planners over one set of boards would undo each other's work.

nos's partitioner and agents act on the same annotations as ours, its webhooks judge the same quotas. While they are
there we do nothing, and say which objects they are.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from kube.client import Client
from kube.errors import ApiError, Unreachable
from kube.resource import VALIDATING_WEBHOOKS, Resource

WORKLOADS: Final = (
    Resource("apps", "v1", "deployments", namespaced=True),
    Resource("apps", "v1", "daemonsets", namespaced=True),
)
# The labels that nos's chart gives to its workloads, and the paths that its webhooks are served at (kubebuilder's).
LABELS: Final = (
    "app.kubernetes.io/part-of=nos,app.kubernetes.io/component in (gpu-partitioner,mig-agent,gpu-agent,operator)"
)
PATHS: Final = "/validate-nos-nebuly-com-"


class _Meta(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""


class _Service(msgspec.Struct, frozen=True):
    path: str | None = None


class _ClientConfig(msgspec.Struct, frozen=True):
    service: _Service | None = None


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig = _ClientConfig()


class _Object(msgspec.Struct, frozen=True):
    metadata: _Meta
    webhooks: tuple[_Webhook, ...] | None = None


class _List(msgspec.Struct, frozen=True):
    items: tuple[_Object, ...] | None = None


_LIST: Final = msgspec.json.Decoder(_List)


class RivalWatch:
    """Looks for nos again and again; while the API server does not answer, what was seen last counts."""

    def __init__(self, client: Client, *, every_s: float, clock: Callable[[], float]) -> None:
        self._client, self._every_s, self._clock = client, every_s, clock
        self._seen: tuple[str, ...] = ()
        self._due = clock()

    def look(self) -> tuple[str, ...]:
        """Return what there is of nos, as seen at most `every_s` seconds ago."""
        if self._clock() < self._due:
            return self._seen
        log = structlog.get_logger()
        try:
            self._seen = find_rivals(self._client)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            log.warning("rivals_not_looked_for", error=str(error))
        self._due = self._clock() + self._every_s
        if self._seen:
            log.error("nos_is_here", objects=self._seen, way_out="uninstall nos, then this goes on by itself")
        return self._seen


def find_rivals(client: Client) -> tuple[str, ...]:
    """Return nos's workloads and webhook configurations as `plural namespace/name`, sorted; empty if there are none.

    Raises ApiError or Unreachable.
    """
    found = [
        f"{resource.plural} {item.metadata.namespace}/{item.metadata.name}"
        for resource in WORKLOADS
        for item in _LIST.decode(client.get(resource.path(), labelSelector=LABELS)).items or ()
    ]
    found += [
        f"{VALIDATING_WEBHOOKS.plural} {item.metadata.name}"
        for item in _LIST.decode(client.get(VALIDATING_WEBHOOKS.path())).items or ()
        if any(_path(webhook).startswith(PATHS) for webhook in item.webhooks or ())
    ]
    return tuple(sorted(found))


def _path(webhook: _Webhook) -> str:
    service = webhook.client_config.service
    return (service.path if service else None) or ""
