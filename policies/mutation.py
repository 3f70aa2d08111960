"""The patch of a pod whose slices are chosen, and the patch that keeps an admitted pod as it was.

Only what is ours is touched: GPU resources, the record, the capacity label, our gate, the fields that an MPS client
needs, node affinity where a slice's name is ambiguous, and the scheduler of nos. A pod that has all that already gets
an empty patch (pain W16).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from policies import names
from policies.model import Container, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements
from policies.needs import is_slice
from policies.patch import Operation, changed, put
from policies.policy import Rule
from policies.quantity import Quantity, milli
from policies.record import Entry, read_record, write_record
from policies.requests import Place, places
from policies.settings import Settings
from policies.slicing import Choice

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


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
        *(operation for choice in clients for operation in _run_as(pod, choice.wish.place, settings.mps.user_id)),
        *(
            operation
            for choice in clients
            if rule.proportional_threads
            for operation in _threads(choice.wish.place, str(choice.percent))
        ),
        *(_host_ipc(pod) if clients and rule.host_ipc else ()),
        *_affinity(pod.spec, dict.fromkeys(choice.products for choice in choices if choice.products)),
        *(_gate(pod.spec) if governed or any(choice.cut for choice in choices) else ()),
        *_scheduler(pod.spec),
        *changed(("metadata", "labels"), pod.metadata.labels, {names.CAPACITY_LABEL: capacity or None}),
        *_annotations(pod, choices),
    )


def restore(pod: Pod, old: Pod) -> tuple[Operation, ...]:
    """Return the patch that gives an updated pod what it was given when it was admitted.

    A manifest that is applied again merges the request of the user back in beside the slice that took its place; one
    that replaces the pod knows nothing of what we have added. Neither field can change, so the API server would refuse.
    """
    operations = [] if old.spec.scheduler_name == names.NOS_SCHEDULER else [*_scheduler(pod.spec)]
    record = read_record(old.metadata.annotations)
    admitted = {place.container.name: place.container for place in places(old)}
    for place in places(pod):
        entry, before = record.get(place.container.name), admitted.get(place.container.name)
        if entry and before and before.resources:
            operations += _restored(("spec", place.field, place.index), place.container.resources, before.resources)
            operations += _client(pod, place, before) if entry.mode == names.MPS else ()
    if not record or names.RECORD in (pod.metadata.annotations or {}):
        return tuple(operations)
    return (
        *operations,
        *(_host_ipc(pod) if old.spec.host_ipc else ()),
        *_affinity(pod.spec, dict.fromkeys(sorted(_products(old.spec) - _products(pod.spec)))),
        *(_gate(pod.spec) if any(gate.name == names.GATE for gate in old.spec.scheduling_gates or ()) else ()),
        *_kept("labels", names.CAPACITY_LABEL, pod.metadata.labels, old.metadata.labels),
        *_kept("annotations", names.RECORD, pod.metadata.annotations, old.metadata.annotations),
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


def gpus(amounts: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
    """Return those of the amounts that are of GPUs: whole ones, shares, slices."""
    whole = (names.GPU, names.GPU_SHARED)
    return {name: amount for name, amount in (amounts or {}).items() if name in whole or is_slice(name)}


# ---------------------------------------------------------------------------------------------------------------------


def _with_slice(present: ResourceRequirements | None, choice: Choice) -> ResourceRequirements:
    """Return the resources of a container after `_resources`."""
    more: dict[str, Quantity] = {choice.resource: str(choice.wish.count)}
    gone = {names.GPU} if names.GPU in choice.wish.asked else set()
    limits, requests = (
        {name: amount for name, amount in (amounts or {}).items() if name not in gone} | more
        for amounts in ((present.limits, present.requests) if present else (None, None))
    )
    return ResourceRequirements(limits=limits, requests=requests)


def _resources(choice: Choice) -> Iterator[Operation]:
    """Write the slice into limits and requests alike, in place of a share of `nvidia.com/gpu`."""
    wish = choice.wish
    root = "spec", wish.place.field, wish.place.index
    present, given = wish.place.container.resources, {choice.resource: str(wish.count)}
    if present is None:
        yield put(root, [], "resources", {"limits": given, "requests": given})
        return
    for key, amounts in (("limits", present.limits), ("requests", present.requests)):
        if not milli((amounts or {}).get(choice.resource, 0)):  # none of it is no wish, and must not stand for one
            taken = {names.GPU: None} if names.GPU in wish.asked else {}
            yield from changed((*root, "resources", key), amounts, {**taken, **given})


def _run_as(pod: Pod, place: Place, user_id: int) -> Iterator[Operation]:
    own, whole = place.container.security_context, pod.spec.security_context
    if not any(context and context.run_as_user is not None for context in (own, whole)):
        yield put(("spec", place.field, place.index), [("securityContext", own)], "runAsUser", user_id)


def _threads(place: Place, percent: str) -> Iterator[Operation]:
    """Give an MPS client its slice's share of the compute, unless the user has set it, where that is allowed."""
    root, env = ("spec", place.field, place.index), place.container.env
    if not any(variable.name == names.THREAD_PERCENTAGE for variable in env or ()):
        variable = {"name": names.THREAD_PERCENTAGE, "value": percent}
        yield put((*root, "env"), [], "-", variable) if env else put(root, [], "env", [variable])


def _client(pod: Pod, place: Place, before: Container) -> Iterator[Operation]:
    """Give an MPS client again what it was given when it was admitted."""
    if before.security_context and before.security_context.run_as_user is not None:
        yield from _run_as(pod, place, before.security_context.run_as_user)
    for variable in before.env or ():
        if variable.name == names.THREAD_PERCENTAGE and variable.value:
            yield from _threads(place, variable.value)


def _host_ipc(pod: Pod) -> Iterator[Operation]:
    if not pod.spec.host_ipc:
        yield put(("spec",), [], "hostIPC", value=True)


def _affinity(spec: PodSpec, products: Mapping[tuple[str, ...], None]) -> Iterator[Operation]:
    """Keep the pod to nodes of these products: in every term, for one term is enough for the scheduler."""
    if not products:
        return
    wanted = [NodeSelectorRequirement(names.PRODUCT_LABEL, "In", values) for values in products]
    nodes = spec.affinity.node_affinity if spec.affinity else None
    required = nodes.required_during_scheduling_ignored_during_execution if nodes else None
    if required is None:
        parents = [("affinity", spec.affinity), ("nodeAffinity", nodes)]
        terms = [{"matchExpressions": [*map(_written, wanted)]}]
        yield put(("spec",), parents, _REQUIRED, {"nodeSelectorTerms": terms})
        return
    for index, term in enumerate(required.node_selector_terms or ()):
        root = "spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms", index
        yield from _narrowed(root, term, wanted)


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


def _narrowed(
    root: tuple[str | int, ...], term: NodeSelectorTerm, wanted: Sequence[NodeSelectorRequirement]
) -> Iterator[Operation]:
    if not term.match_expressions and not term.match_fields:
        return  # an empty term matches no node; with a requirement in it, it would
    present = term.match_expressions or ()
    lacking = [each for each in wanted if not any(_is_within(requirement, each) for requirement in present)]
    if term.match_expressions is None:
        yield put(root, [], "matchExpressions", [*map(_written, lacking)])
        return
    for requirement in lacking:
        yield put((*root, "matchExpressions"), [], "-", _written(requirement))


def _written(requirement: NodeSelectorRequirement) -> object:
    """Return a requirement as JSON has it."""
    return {"key": requirement.key, "operator": requirement.operator, "values": list(requirement.values or ())}


def _is_within(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    """Return whether a requirement In admits nothing that another one does not."""
    return (one.key, one.operator) == (other.key, other.operator) and {*(one.values or ())} <= {*(other.values or ())}


def _gate(spec: PodSpec) -> Iterator[Operation]:
    gate = {"name": names.GATE}
    if not spec.scheduling_gates:
        yield put(("spec",), [], "schedulingGates", [gate])
    elif all(present.name != names.GATE for present in spec.scheduling_gates):
        yield put(("spec", "schedulingGates"), [], "-", gate)


def _scheduler(spec: PodSpec) -> Iterator[Operation]:
    if spec.scheduler_name == names.NOS_SCHEDULER:
        yield put(("spec",), [], "schedulerName", names.DEFAULT_SCHEDULER)


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


def _restored(
    root: tuple[str | int, ...], present: ResourceRequirements | None, before: ResourceRequirements
) -> Iterator[Operation]:
    if present is None:
        yield put(root, [], "resources", {"limits": gpus(before.limits), "requests": gpus(before.requests)})
        return
    for key, now, then in (("limits", present.limits, before.limits), ("requests", present.requests, before.requests)):
        gone = dict.fromkeys(gpus(now))
        yield from changed((*root, "resources", key), now, {**gone, **gpus(then)})


def _kept(
    kind: str, key: str, present: Mapping[str, str] | None, before: Mapping[str, str] | None
) -> Iterator[Operation]:
    yield from changed(("metadata", kind), present, {key: (before or {}).get(key)})
