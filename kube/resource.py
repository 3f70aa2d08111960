"""Which kinds of objects there are and where the API server keeps them; pure."""

from typing import Final
from urllib.parse import quote

import msgspec

from policies.names import API_GROUP, API_VERSION


class Resource(msgspec.Struct, frozen=True):
    """A kind of objects, as its path names it; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of the collection (of one namespace or of all), of one object, or of its subresource.

        Raises ValueError if a namespace is missing or out of place: the server would answer a puzzling 404.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace: leave out {namespace!r}")
        if name is not None and namespace is None and self.namespaced:
            raise ValueError(f"{self.plural} are namespaced: name the namespace of {name!r}")
        parts = ["", "apis", self.group, self.version] if self.group else ["", "api", self.version]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
            if subresource is not None:
                parts.append(subresource)
        elif subresource is not None:
            raise ValueError(f"subresource {subresource!r} of no object: name the object")
        return "/".join(parts)


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """What identifies one state of an object; a bookmark has no name."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` alone for cluster-scoped objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Object(msgspec.Struct, frozen=True):
    metadata: Meta


_OBJECT: Final = msgspec.json.Decoder(_Object)


def read_meta(raw: bytes | msgspec.Raw) -> Meta:
    """Return the metadata of a raw object. Raises msgspec.DecodeError if it has none or is no JSON."""
    return _OBJECT.decode(raw).metadata


PODS: Final = Resource("", "v1", "pods", namespaced=True)
NODES: Final = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", namespaced=True)
EVENTS: Final = Resource("", "v1", "events", namespaced=True)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", namespaced=True)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
GPU_POLICIES: Final = Resource(API_GROUP, API_VERSION, "gpupolicies", namespaced=True)
ELASTIC_QUOTAS: Final = Resource(API_GROUP, API_VERSION, "elasticquotas", namespaced=True)
COMPOSITE_QUOTAS: Final = Resource(API_GROUP, API_VERSION, "compositeelasticquotas", namespaced=True)
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", namespaced=True)
