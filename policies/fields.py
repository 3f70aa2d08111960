"""The fields of a pod that are ours to set, and the operations that set each where it is not set yet."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from policies import names
from policies.containers import Place
from policies.model import NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements
from policies.patch import Operation, changed, put

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def resources(place: Place, wanted: ResourceRequirements) -> Iterator[Operation]:
    """Make the resources of a container what they are to be."""
    root, present = ("spec", place.field, place.index), place.container.resources
    if present is None:
        yield put(root, [], "resources", {"limits": wanted.limits, "requests": wanted.requests})
        return
    for key, now, then in (("limits", present.limits, wanted.limits), ("requests", present.requests, wanted.requests)):
        yield from changed((*root, "resources", key), now, {**dict.fromkeys(now or ()), **(then or {})})


def run_as(pod: Pod, place: Place, user_id: int) -> Iterator[Operation]:
    """Have a container run as a user, unless it or its pod names one."""
    own, whole = place.container.security_context, pod.spec.security_context
    if not any(context and context.run_as_user is not None for context in (own, whole)):
        yield put(("spec", place.field, place.index), [("securityContext", own)], "runAsUser", user_id)


def threads(place: Place, percent: str) -> Iterator[Operation]:
    """Give an MPS client its slice's share of the compute, unless the user has set it, where that is allowed."""
    root, env = ("spec", place.field, place.index), place.container.env
    if not any(variable.name == names.THREAD_PERCENTAGE for variable in env or ()):
        variable = {"name": names.THREAD_PERCENTAGE, "value": percent}
        yield put((*root, "env"), [], "-", variable) if env else put(root, [], "env", [variable])


def host_ipc(spec: PodSpec) -> Iterator[Operation]:
    """Let a pod share the IPC namespace of its node."""
    if not spec.host_ipc:
        yield put(("spec",), [], "hostIPC", value=True)


def affinity(spec: PodSpec, products: Collection[tuple[str, ...]]) -> Iterator[Operation]:
    """Keep a pod to nodes of one product out of each tuple: in every term, for one term is enough for the scheduler."""
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


def gate(spec: PodSpec) -> Iterator[Operation]:
    """Hold a pod at our gate, which goes behind those of others."""
    ours = {"name": names.GATE}
    if not spec.scheduling_gates:
        yield put(("spec",), [], "schedulingGates", [ours])
    elif all(present.name != names.GATE for present in spec.scheduling_gates):
        yield put(("spec", "schedulingGates"), [], "-", ours)


def scheduler(spec: PodSpec) -> Iterator[Operation]:
    """Give a pod of nos to the default scheduler."""
    if spec.scheduler_name == names.NOS_SCHEDULER:
        yield put(("spec",), [], "schedulerName", names.DEFAULT_SCHEDULER)


# ---------------------------------------------------------------------------------------------------------------------


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
