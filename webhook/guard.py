"""The guard: what is ours on pods and namespaces that exist, nobody but us may change."""

import msgspec

from policies.isolation import reaching_variables
from policies.model import EnvVar, Namespace, Pod
from policies.policy import BUILT_IN
from policies.validation import changed_by_users, has_slices, relabelled_by_users, resized
from webhook.cluster import Cluster
from webhook.envelope import Request, allowed, decode, forbidden, invalid


def guard_pod(request: Request, cluster: Cluster) -> bytes:
    """Return the answer for an update of a pod, of its ephemeral containers, or of its size."""
    if request.operation != "UPDATE":
        return allowed(request)
    pod, faults = decode(request.object, Pod)
    old, older = decode(request.old_object, Pod)
    if pod is None or old is None:
        return invalid(request, (*faults, *older))
    faults = tuple(changed_by_users(pod, old))
    if request.sub_resource == "ephemeralcontainers" and has_slices(old) and not BUILT_IN.visible_devices:
        faults += _debuggers(request)
    if request.sub_resource == "resize":
        found = resized(pod, old, namespace=request.namespace, standings=cluster.standings)
        return forbidden(request, found.faults) if found.faults else allowed(request, warnings=found.warnings)
    return forbidden(request, faults) if faults else allowed(request)


def guard_namespace(request: Request, _cluster: Cluster) -> bytes:
    """Return the answer for an update of a namespace."""
    if request.operation != "UPDATE":
        return allowed(request)
    namespace, faults = decode(request.object, Namespace)
    old, older = decode(request.old_object, Namespace)
    if namespace is None or old is None:
        return invalid(request, (*faults, *older))
    faults = tuple(relabelled_by_users(namespace, old))
    return forbidden(request, faults) if faults else allowed(request)


# ---------------------------------------------------------------------------------------------------------------------


class _EphemeralContainer(msgspec.Struct, frozen=True):
    name: str
    env: tuple[EnvVar, ...] | None = None


class _DebuggedSpec(msgspec.Struct, frozen=True, rename="camel"):
    ephemeral_containers: tuple[_EphemeralContainer, ...] | None = None


class _Debugged(msgspec.Struct, frozen=True):
    spec: _DebuggedSpec


def _debuggers(request: Request) -> tuple[str, ...]:
    """Return the faults of ephemeral containers that come with this update; those that are there cannot change."""
    now, faults = decode(request.object, _Debugged)
    before, _ = decode(request.old_object, _Debugged)
    if now is None:
        return faults
    known = {container.name for container in (before and before.spec.ephemeral_containers) or ()}
    return tuple(
        fault
        for index, container in enumerate(now.spec.ephemeral_containers or ())
        if container.name not in known
        for fault in reaching_variables(f"spec.ephemeralContainers[{index}]", container.env or ())
    )
