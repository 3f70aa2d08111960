"""The patch of a pod whose slices are chosen, and the patch that keeps an admitted pod as it was.

Only what is ours is touched: GPU resources, the record, the capacity label, our gate, the fields that an MPS client
needs, node affinity where a slice's name is ambiguous, and the scheduler of nos. A pod that has all that already gets
an empty patch (pain W16).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from policies import names
from policies.model import Container, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements
from policies.needs import is_slice
from policies.patch import Operation, changed, put
from policies.policy import Rule
from policies.quantity import Quantity
from policies.record import Entry, read_record, write_record
from policies.requests import places
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
        *(operation for choice in clients for operation in _user(pod, choice, settings.mps.user_id)),
        *(_host_ipc(pod) if clients and rule.host_ipc else ()),
        *_affinity(pod.spec, dict.fromkeys(choice.products for choice in choices if choice.products)),
        *(_gate(pod.spec) if governed or any(choice.cut for choice in choices) else ()),
        *_scheduler(pod.spec),
        *changed(("metadata", "labels"), pod.metadata.labels, {names.CAPACITY_LABEL: capacity or None}),
        *_annotations(pod, choices),
    )


def restore(pod: Pod, old: Pod) -> tuple[Operation, ...]:
    """Return the patch that gives an updated pod the GPU resources and the record with which it was admitted.

    Applying the manifest again merges the request of the user back beside the slice that took its place; container
    resources cannot change, so the API server would refuse it. Empty unless the specification differs.
    """
    record = read_record(old.metadata.annotations)
    if not record or pod.spec == old.spec:
        return ()
    admitted = {place.container.name: place.container.resources for place in places(old)}
    operations: list[Operation] = []
    for place in places(pod):
        name = place.container.name
        if name in record and (before := admitted.get(name)):
            operations += _restored(("spec", place.field, place.index), place.container.resources, before)
    kept = {names.RECORD: (old.metadata.annotations or {}).get(names.RECORD)}
    operations += changed(("metadata", "annotations"), pod.metadata.annotations, kept)
    return tuple(operations)


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
        if choice.resource not in (amounts or {}):
            taken = {names.GPU: None} if names.GPU in wish.asked else {}
            yield from changed((*root, "resources", key), amounts, {**taken, **given})


def _user(pod: Pod, choice: Choice, user_id: int) -> Iterator[Operation]:
    place = choice.wish.place
    own, whole = place.container.security_context, pod.spec.security_context
    if not any(context and context.run_as_user is not None for context in (own, whole)):
        yield put(("spec", place.field, place.index), [("securityContext", own)], "runAsUser", user_id)


def _host_ipc(pod: Pod) -> Iterator[Operation]:
    if not pod.spec.host_ipc:
        yield put(("spec",), [], "hostIPC", value=True)


def _affinity(spec: PodSpec, products: Mapping[tuple[str, ...], None]) -> Iterator[Operation]:
    """Keep the pod to nodes of these products: in every term, for one term is enough for the scheduler."""
    if not products:
        return
    wanted = [{"key": names.PRODUCT_LABEL, "operator": "In", "values": list(values)} for values in products]
    nodes = spec.affinity.node_affinity if spec.affinity else None
    required = nodes.required_during_scheduling_ignored_during_execution if nodes else None
    if required is None:
        parents = [("affinity", spec.affinity), ("nodeAffinity", nodes)]
        yield put(("spec",), parents, _REQUIRED, {"nodeSelectorTerms": [{"matchExpressions": wanted}]})
        return
    for index, term in enumerate(required.node_selector_terms or ()):
        root = "spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms", index
        yield from _narrowed(root, term, wanted)


def _narrowed(root: tuple[str | int, ...], term: NodeSelectorTerm, wanted: Sequence[object]) -> Iterator[Operation]:
    if not term.match_expressions and not term.match_fields:
        return  # an empty term matches no node; with a requirement in it, it would
    if term.match_expressions is None:
        yield put(root, [], "matchExpressions", wanted)
        return
    for requirement in wanted:
        yield put((*root, "matchExpressions"), [], "-", requirement)


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
        yield put(root, [], "resources", {"limits": _gpus(before.limits), "requests": _gpus(before.requests)})
        return
    for key, now, then in (("limits", present.limits, before.limits), ("requests", present.requests, before.requests)):
        gone = dict.fromkeys(_gpus(now))
        yield from changed((*root, "resources", key), now, {**gone, **_gpus(then)})


def _gpus(amounts: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
    whole = (names.GPU, names.GPU_SHARED)
    return {name: amount for name, amount in (amounts or {}).items() if name in whole or is_slice(name)}
