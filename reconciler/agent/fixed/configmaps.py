"""Reads the ConfigMaps of our namespace that nodes name, each at most once in a while."""

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kube.client import Client
from kube.errors import ApiError, NotFound, Unreachable
from kube.resource import Resource
from policies import names
from reconciler.agent.fixed.files import ConfigMapError

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", namespaced=True)
FRESH_S: Final = 10.0  # an agent looks at its node at least every 30 s, so a change is seen within 40 s


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


class KubeConfigMaps:
    """The ConfigMaps of our namespace, as they were at most FRESH_S ago. Any thread may ask."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known: dict[str, tuple[float, Mapping[str, str]]] = {}

    def __call__(self, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap. Raises ConfigMapError if it is not there or nobody says."""
        now = self._clock()
        known = self._known.get(name)
        if known and now - known[0] < FRESH_S:
            return known[1]
        try:
            answer = self._client.get(CONFIG_MAPS.path(namespace=names.SYSTEM_NAMESPACE, name=name))
            data = _DECODER.decode(answer).data or {}
        except NotFound as error:
            self._known.pop(name, None)
            raise ConfigMapError("there is none: create it, or take the label from the node") from error
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            raise ConfigMapError(f"cannot be read: {error}") from error
        self._known[name] = now, data
        return data


_DECODER: Final = msgspec.json.Decoder(_ConfigMap)
