"""What a pod needs, from its containers: at its peak, and what of GPUs at the same moment. Amounts in thousandths."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from policies import names
from policies.model import Container, Pod
from policies.quantity import Amounts, amounts

_ALWAYS: Final = "Always"


def peak_request(pod: Pod) -> dict[str, int]:
    """Return what a pod needs of each resource at its peak, in thousandths.

    The larger of all app containers with all sidecars, and each init container with the sidecars started before it;
    plus overhead; pod-level requests where they are set. Source: k8s.io/component-helpers, resource/helpers.go.
    Raises QuantityError.
    """
    total: dict[str, int] = {}
    for moment in _moments(pod):
        for name, amount in moment.items():
            total[name] = max(total.get(name, 0), amount)
    if pod.spec.resources:
        total |= amounts(pod.spec.resources.limits) | amounts(pod.spec.resources.requests)
    _add(total, amounts(pod.spec.overhead))
    return total


def gpu_moments(pod: Pod) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return the GPU resources that a pod needs at the same time, for each moment that none other outdoes.

    What one moment needs is added up; the peaks of two moments are not. Raises QuantityError.
    """
    found = {tuple(sorted((name, n) for name, n in moment.items() if n and is_gpu(name))) for moment in _moments(pod)}
    return tuple(
        sorted(
            moment
            for moment in found
            if moment and not any(other != moment and _covers(dict(other), moment) for other in found)
        )
    )


def container_request(container: Container) -> dict[str, int]:
    """Return a container's requests in thousandths, with limits standing in where no request is written."""
    resources = container.resources
    return amounts(resources.limits) | amounts(resources.requests) if resources else {}


def is_slice(resource: str) -> bool:
    """Return whether a resource name has the shape of a MIG slice or of an MPS slice."""
    return resource.startswith((names.MIG_RESOURCE, names.MPS_RESOURCE))


def is_gpu(resource: str) -> bool:
    """Return whether a resource is a whole GPU, a turn of one, or a slice."""
    return resource in (names.GPU, names.GPU_SHARED) or is_slice(resource)


def _moments(pod: Pod) -> Iterator[dict[str, int]]:
    """Yield what a pod needs in all at each moment of its life: while each init container runs, and then."""
    running: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        request = container_request(container)
        if container.restart_policy == _ALWAYS:
            _add(running, request)
            yield dict(running)
        else:
            moment = dict(running)
            _add(moment, request)
            yield moment
    for container in pod.spec.containers:
        _add(running, container_request(container))
    yield running


def _covers(one: Mapping[str, int], other: Iterable[tuple[str, int]]) -> bool:
    return all(one.get(name, 0) >= amount for name, amount in other)


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
