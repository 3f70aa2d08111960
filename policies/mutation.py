"""The patch of a pod whose slices are chosen, and the pod that comes of it.

Only what is ours is touched: GPU resources, the record, the marks that only we write, the capacity label, our gate, the
fields that an MPS client needs, node affinity where a slice's name is ambiguous, and the scheduler of nos. A pod that
has all that already gets an empty patch (pain W16).
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from policies import fields, names
from policies.model import Container, Pod, ResourceRequirements
from policies.patch import Operation, changed
from policies.policy import Rule
from policies.quantity import Quantity, milli
from policies.record import Entry, write_record
from policies.settings import Settings
from policies.slicing import Choice


def mutate(
    pod: Pod, choices: Sequence[Choice], *, rule: Rule, settings: Settings, capacity: str = "", governed: bool = False
) -> tuple[Operation, ...]:
    """Return the patch for a pod with these slices (none: only what users may not write is taken away).

    Args:
        pod: the pod.
        choices: its slices.
        rule: the policy.
        settings: of the cluster.
        capacity: its capacity label; empty where no quota governs it.
        governed: whether it waits at the gate for its quota too.
    """
    clients = [choice for choice in choices if choice.mode == names.MPS]
    return (
        *(operation for choice in choices for operation in _resources(choice)),
        *(operation for choice in clients for operation in fields.run_as(pod, choice.wish.place, settings.mps.user_id)),
        *(
            operation
            for choice in clients
            if rule.proportional_threads
            for operation in fields.threads(choice.wish.place, str(choice.percent))
        ),
        *(fields.host_ipc(pod.spec) if clients and rule.host_ipc else ()),
        *fields.affinity(pod.spec, dict.fromkeys(choice.products for choice in choices if choice.products)),
        *(fields.gate(pod.spec) if governed or any(choice.cut for choice in choices) else ()),
        *fields.scheduler(pod.spec),
        *changed(("metadata", "labels"), pod.metadata.labels, {names.CAPACITY_LABEL: capacity or None}),
        *_annotations(pod, choices),
    )


def given(pod: Pod, choices: Sequence[Choice]) -> Pod:
    """Return a pod with its slices in place of what it asked for, as far as resources go."""
    slices = {(choice.wish.place.field, choice.wish.place.index): choice for choice in choices}

    def each(field: str, containers: Sequence[Container] | None) -> tuple[Container, ...]:
        return tuple(
            replace(container, resources=_with_slice(container.resources, slices[field, index]))
            if (field, index) in slices
            else container
            for index, container in enumerate(containers or ())
        )

    spec = pod.spec
    containers, init = each("containers", spec.containers), each("initContainers", spec.init_containers)
    return replace(pod, spec=replace(spec, containers=containers, init_containers=init))


# ---------------------------------------------------------------------------------------------------------------------


def _with_slice(present: ResourceRequirements | None, choice: Choice) -> ResourceRequirements:
    """Return the resources of a container with its slice, in limits and requests alike, in place of `nvidia.com/gpu`."""
    gone = {names.GPU} if names.GPU in choice.wish.asked else set()

    def each(amounts: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
        kept = {name: amount for name, amount in (amounts or {}).items() if name not in gone}
        # None of it is no wish, and must not stand for one.
        return kept if milli(kept.get(choice.resource, 0)) else kept | {choice.resource: str(choice.wish.count)}

    now = present or ResourceRequirements()
    return ResourceRequirements(limits=each(now.limits), requests=each(now.requests))


def _resources(choice: Choice) -> Iterator[Operation]:
    place = choice.wish.place
    return fields.resources(place, _with_slice(place.container.resources, choice))


def _annotations(pod: Pod, choices: Sequence[Choice]) -> Iterator[Operation]:
    entries = {
        choice.wish.place.container.name: Entry(
            asked=choice.wish.asked,
            given={choice.resource: str(choice.wish.count)},
            mode=choice.mode,
            model=choice.model,
        )
        for choice in choices
    }
    stale = dict.fromkeys((names.EVICTED_FOR, names.RELEASED_AT))
    ours = {**stale, names.RECORD: write_record(entries) if entries else None}
    yield from changed(("metadata", "annotations"), pod.metadata.annotations, ours)
