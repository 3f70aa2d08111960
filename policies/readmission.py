"""Updates of a pod that was admitted: it keeps what it was given, and whoever asks for something else is told.

What a pod holds never changes. A manifest that is applied again asks for what the record says was asked, and is answered
by what was given then (design 3.5). One that asks for something else is refused here: the API server's own complaint
would be about slices that its author has never written (docs/adr/0010).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from policies import fields, names
from policies.admission import Admission
from policies.asked import at
from policies.containers import Place, places
from policies.faults import fault
from policies.model import Container, Pod, PodSpec, ResourceRequirements
from policies.needs import is_slice
from policies.patch import Operation, changed
from policies.quantity import Quantity
from policies.record import Entry, read_record
from policies.spelling import USER_KEYS

_ANEW: Final = "what a pod holds never changes: delete the pod and create it anew"
_ASKING: Final = tuple(key for key in USER_KEYS if key != names.NON_PREEMPTIBLE)


def readmit(pod: Pod, old: Pod) -> Admission:
    """Return the answer for an updated pod; one that is on its way out, or was not admitted by us, is left alone."""
    if pod.metadata.deletion_timestamp or old.metadata.deletion_timestamp:
        return Admission()
    faults = tuple(_other_wishes(pod, old)) if pod.spec != old.spec else ()
    if faults:
        return Admission(faults=faults)
    return Admission(
        patch=_restored(pod, old) if pod.spec != old.spec else (),
        warnings=tuple(_without_effect(pod, old)),
    )


# ---------------------------------------------------------------------------------------------------------------------


def _other_wishes(pod: Pod, old: Pod) -> Iterator[str]:
    """Yield a fault for each container with a record that now asks for something else than it did."""
    record = read_record(old.metadata.annotations)
    admitted = {place.container.name: _asks(place.container) for place in places(old)}
    for place in places(pod):
        entry, held = record.get(place.container.name), admitted.get(place.container.name, {})
        asks = _asks(place.container)
        if entry is None or asks == held:
            continue
        wish = {name: amount for name, amount in asks.items() if held.get(name) != amount}
        asked = {name: amount for name, amount in entry.asked.items() if not name.startswith(names.PREFIX)}
        if wish != asked:
            yield fault(f"{place.path}.resources", _text(wish) or "no GPU", f"{_held(place.container, entry)}: {_ANEW}")


def _restored(pod: Pod, old: Pod) -> tuple[Operation, ...]:
    """Return the patch that gives an updated pod what it was given when it was admitted.

    A manifest that is applied again merges the request of the user back in beside the slice that took its place; one
    that replaces the pod knows nothing of what we have added. Neither field can change, so the API server would refuse.
    """
    operations = [] if old.spec.scheduler_name == names.NOS_SCHEDULER else [*fields.scheduler(pod.spec)]
    record = read_record(old.metadata.annotations)
    admitted = {place.container.name: place.container for place in places(old)}
    for place in places(pod):
        entry, before = record.get(place.container.name), admitted.get(place.container.name)
        if entry and before and before.resources:
            operations += fields.resources(place, _held_again(place.container.resources, before.resources))
            operations += _client(pod, place, before) if entry.mode == names.MPS else ()
    if not record or names.RECORD in (pod.metadata.annotations or {}):
        return tuple(operations)
    return (
        *operations,
        *(fields.host_ipc(pod.spec) if old.spec.host_ipc else ()),
        *fields.affinity(pod.spec, sorted(_products(old.spec) - _products(pod.spec))),
        *(fields.gate(pod.spec) if any(gate.name == names.GATE for gate in old.spec.scheduling_gates or ()) else ()),
        *_kept("labels", names.CAPACITY_LABEL, pod.metadata.labels, old.metadata.labels),
        *_kept("annotations", names.RECORD, pod.metadata.annotations, old.metadata.annotations),
    )


def _held_again(present: ResourceRequirements | None, before: ResourceRequirements) -> ResourceRequirements:
    """Return the resources of a container with the GPUs and slices that it held before in place of those it has now."""

    def each(amounts: Mapping[str, Quantity] | None, held: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
        others = {name: amount for name, amount in (amounts or {}).items() if name not in _gpus(amounts)}
        return others | _gpus(held)

    now = present or ResourceRequirements()
    return ResourceRequirements(limits=each(now.limits, before.limits), requests=each(now.requests, before.requests))


def _client(pod: Pod, place: Place, before: Container) -> Iterator[Operation]:
    """Give an MPS client again what it was given when it was admitted."""
    if before.security_context and before.security_context.run_as_user is not None:
        yield from fields.run_as(pod, place, before.security_context.run_as_user)
    for variable in before.env or ():
        if variable.name == names.THREAD_PERCENTAGE and variable.value:
            yield from fields.threads(place, variable.value)


def _products(spec: PodSpec) -> set[tuple[str, ...]]:
    """Return the lists of products to which a pod is kept."""
    nodes = spec.affinity.node_affinity if spec.affinity else None
    required = nodes.required_during_scheduling_ignored_during_execution if nodes else None
    return {
        requirement.values or ()
        for term in (required.node_selector_terms if required else None) or ()
        for requirement in term.match_expressions or ()
        if requirement.key == names.PRODUCT_LABEL and requirement.operator == "In"
    }


def _kept(
    kind: str, key: str, present: Mapping[str, str] | None, before: Mapping[str, str] | None
) -> Iterator[Operation]:
    yield from changed(("metadata", kind), present, {key: (before or {}).get(key)})


def _gpus(amounts: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
    """Return those of the amounts that are of GPUs: whole ones, shares, slices."""
    whole = (names.GPU, names.GPU_SHARED)
    return {name: amount for name, amount in (amounts or {}).items() if name in whole or is_slice(name)}


def _without_effect(pod: Pod, old: Pod) -> Iterator[str]:
    """Yield a warning for each annotation that asks for something else than it did when the pod was admitted."""
    notes, earlier = pod.metadata.annotations or {}, old.metadata.annotations or {}
    if names.RECORD not in earlier:
        return
    for key, value in notes.items():
        if key.startswith(_ASKING) and earlier.get(key) != value:
            yield f"{at(key)}: {value} has no effect any more, for {_ANEW}"


def _asks(container: Container) -> dict[str, str]:
    """Return the GPU resources of a container, limits before requests, zeros left out."""
    resources = container.resources
    amounts = _gpus(resources.requests) | _gpus(resources.limits) if resources else {}
    return {name: str(amount) for name, amount in amounts.items() if str(amount) != "0"}


def _held(container: Container, entry: Entry) -> str:
    return f"{container.name} was admitted with {_text(entry.asked)} and holds {_text(entry.given)}"


def _text(amounts: dict[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())
