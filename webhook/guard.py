"""The guard: what is ours on pods and namespaces nobody but us may change, and no wish is let through unanswered."""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from policies.constraints import constraints_of
from policies.isolation import beyond_reach
from policies.model import Container, Namespace, ObjectMeta, Pod
from policies.validation import (
    came_late,
    changed_by_users,
    has_slices,
    marked_by_binding,
    relabelled_by_users,
    resized,
)
from webhook.cluster import Cluster
from webhook.envelope import Request, allowed, decode, forbidden, invalid
from webhook.pods import is_mirror


def guard_pod(request: Request, cluster: Cluster) -> bytes:
    """Return the answer for a new pod, its binding, or an update of it: its status, ephemeral containers, size."""
    if request.sub_resource == "binding":
        return guard_binding(request, cluster)
    pod, faults = decode(request.object, Pod)
    if request.operation == "CREATE":
        return invalid(request, faults) if pod is None else _guard_new(pod, request, cluster)
    old, older = decode(request.old_object, Pod)
    if pod is None or old is None:
        return invalid(request, (*faults, *older))
    policy = cluster.policies.governing(request.namespace)
    if request.sub_resource == "resize":  # the API server takes nothing else out of it
        found = resized(pod, old, namespace=request.namespace, standings=cluster.standings, gates=policy.gates)
        return forbidden(request, found.faults) if found.faults else allowed(request, warnings=found.warnings)
    faults = tuple(changed_by_users(pod, old))
    if request.sub_resource == "ephemeralcontainers":
        rule, own = policy.rule_for(old.metadata.labels), policy.is_own(request.namespace)
        faults += _debuggers(request, partial(beyond_reach, rule=rule, slices=has_slices(old), own=own))
    return forbidden(request, faults) if faults else allowed(request)


def guard_binding(request: Request, _cluster: Cluster) -> bytes:
    """Return the answer for a binding of a pod to its node."""
    binding, unreadable = decode(request.object, _Bound)
    if binding is None:
        return invalid(request, unreadable)
    faults = tuple(marked_by_binding(binding.metadata.annotations or {}))
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


def _guard_new(pod: Pod, request: Request, cluster: Cluster) -> bytes:
    if is_mirror(pod, request) or request.sub_resource:
        return allowed(request)
    rule = cluster.policies.governing(request.namespace).rule_for(pod.metadata.labels)
    faults = tuple(came_late(pod, cluster.inventory.offer(constraints_of(pod.spec)).foreign, rule))
    return invalid(request, faults) if faults else allowed(request)


class _Bound(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _DebuggedSpec(msgspec.Struct, frozen=True, rename="camel"):
    ephemeral_containers: tuple[Container, ...] | None = None


class _Debugged(msgspec.Struct, frozen=True):
    spec: _DebuggedSpec


def _debuggers(request: Request, judge: Callable[[str, Container], Iterable[str]]) -> tuple[str, ...]:
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
        for fault in judge(f"spec.ephemeralContainers[{index}]", container)
    )
