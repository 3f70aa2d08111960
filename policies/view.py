"""An immutable picture of the cluster: nodes with their boards, pods with what they need. The input of all decisions.

Built from the API's objects once per change of each object, so that deciding never parses. Holds only what
decisions read; 20,000 pods must fit in memory beside it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from policies import names
from policies.annotations import (
    BoardInventory,
    Layouts,
    PlacedSlice,
    Placement,
    read_counts,
    read_inventory,
    read_layouts,
    read_status,
)
from policies.budgets import BudgetView
from policies.catalogue import BoardModel, Profile, by_product, nominal_gb, size_order
from policies.constraints import Constraints, constraints_of
from policies.governing import QuotaView
from policies.model import Condition, Container, Node, Pod, Taint
from policies.quantity import Amounts, QuantityError, amounts
from policies.timestamps import epoch

ORDER_S: Final = 60
"""Seconds in which an agent carries out any order: the slowest board takes a few, and its retries come well before."""

_FINISHED: Final = ("Succeeded", "Failed")
_ALWAYS: Final = "Always"
_NEVER: Final = "Never"
_GRACE_S: Final = 30  # Kubernetes' own, where a pod says nothing
_COUNT: Final = re.compile(r"\d{1,2}", re.ASCII)  # boards of a node
_MEMORY: Final = re.compile(r"[1-9]\d{0,7}", re.ASCII)  # MiB of a board
_MOST_SLICES: Final = 1000  # of one kind for one pod: more than a node makes, so that more would wait all the same


class Board(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One GPU of a node.

    Attributes:
        index: NVML's index.
        uuid: NVML's UUID; empty where no agent has reported.
        model: what the board can do.
        mode: `mig`, `mps` or `timeslicing`.
        cuttable: whether its layout may be changed now (MIG mode on or switchable live, or MPS; and no fault reported).
        slices: what exists on it, sorted by start.
        counted: slices whose places are unknown (nos's counting annotations): (profile, used) pairs.
    """

    index: int
    uuid: str
    model: BoardModel
    mode: str
    cuttable: bool
    slices: tuple[PlacedSlice, ...] = ()
    counted: tuple[tuple[str, bool], ...] = ()


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as decisions see it.

    Attributes:
        name: its name.
        labels: its labels.
        taints: its taints.
        ready: condition Ready is True.
        cordoned: spec.unschedulable.
        managed: labelled for partitioning: ours to cut. Others are foreign: read, never cut.
        boards: its GPUs, by index; empty where nothing is known of them.
        allocatable: what the kubelet offers, in thousandths.
        capacity: what the node has, in thousandths.
        spec: the layouts that the leader ordered last, by board.
        spec_plan: id of that order; empty if there was none.
        status_plan: id of the order that the agent carried out last.
        cut: id of the order whose withdrawn slices may be destroyed.
        faults: what could not be understood of its annotations or labels, for a condition on the node.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    ready: bool
    cordoned: bool = False
    managed: bool
    boards: tuple[Board, ...] = ()
    allocatable: Amounts
    capacity: Amounts
    spec: Layouts = {}
    spec_plan: str = ""
    status_plan: str = ""
    cut: str = ""
    faults: tuple[str, ...] = ()

    @property
    def in_flight(self) -> bool:
        """Return whether the agent has not yet carried out the last order."""
        return self.spec_plan != self.status_plan

    def overdue(self, now: float) -> bool:
        """Return whether the agent has left the last order undone for so long that nothing is to be hoped of it."""
        return self.in_flight and self.spec_plan.isdecimal() and now - int(self.spec_plan) / 1000 > ORDER_S

    def target(self, board: Board) -> tuple[Placement, ...]:
        """Return the layout that the board has, or is about to have once its order is carried out."""
        if self.in_flight and board.index in self.spec:
            return self.spec[board.index]
        return tuple(item.placement for item in board.slices)


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as decisions see it.

    Attributes:
        namespace: its namespace.
        name: its name.
        uid: its uid: a pod of the same name made again is another pod.
        version: resourceVersion, as a precondition of writes.
        node: where it is bound; empty before.
        created: seconds since the epoch.
        priority: its priority.
        gated: our gate holds it.
        held: a gate of somebody else holds it, so it is not planned for.
        unschedulable_since: when the scheduler last said so, in seconds since the epoch; None if it did not.
        running: phase Running.
        finished: Succeeded or Failed: it holds nothing.
        terminating: a deletion is under way.
        controlled: a controller would make it again.
        request: what it needs of each resource at its peak, in thousandths.
        slices: the MIG and MPS slices among it: (resource name, count), sorted; all of them on one node.
        constraints: what it requires of its node.
        waiting: reason and message of the condition that we wrote last, so that it is written only when it changes.
        moments: the GPU resources among the request, (resource name, thousandths) sorted, at each moment of its life at
            which they differ and none other needs more of all; a quota counts the dearest.
        labels: its labels, by which budgets know it.
        capacity: its capacity label; empty if it has none.
        preempts: whether it may displace pods of lower priority of its own quota.
        non_preemptible: it may not be evicted, and so may not borrow.
        evicted_for: namespace/name of the pod for which we evict it; empty if we do not.
        grace_s: seconds that it may take to end.
        refused_until: seconds since the epoch until which its eviction is not tried again; the evictor's memory of a
            refusal (429), of which the object itself knows nothing.
    """

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    node: str = ""
    created: int = 0
    priority: int = 0
    gated: bool = False
    held: bool = False
    unschedulable_since: int | None = None
    running: bool = False
    finished: bool = False
    terminating: bool = False
    controlled: bool = False
    request: Amounts = {}
    slices: tuple[tuple[str, int], ...] = ()
    constraints: Constraints = Constraints()
    waiting: tuple[str, str] = ("", "")
    moments: tuple[tuple[tuple[str, int], ...], ...] = ()
    labels: Mapping[str, str] = {}
    capacity: str = ""
    preempts: bool = True
    non_preemptible: bool = False
    evicted_for: str = ""
    grace_s: int = 30
    refused_until: float = 0.0

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def holds(self) -> bool:
        """Return whether it is bound and has not ended: its slices are taken."""
        return bool(self.node) and not self.finished

    @property
    def released(self) -> bool:
        """Return whether the scheduler may bind it at any moment, so that its slices are promised."""
        return not (self.node or self.gated or self.held or self.finished or self.terminating)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision reads.

    Attributes:
        nodes: every node.
        pods: every pod that asks for a slice or a GPU, takes room on a node of ours, or is governed by a quota (with
            room on other nodes too, as soon as a quota governs anybody: there a governed pod may run).
        now: seconds since the epoch.
        quotas: every quota, in force or not.
        budgets: every PodDisruptionBudget of the governed namespaces.
    """

    nodes: tuple[NodeView, ...] = ()
    pods: tuple[PodView, ...] = ()
    now: float = 0.0
    quotas: tuple[QuotaView, ...] = ()
    budgets: tuple[BudgetView, ...] = ()


def view_node(node: Node) -> NodeView:
    """Return what decisions see of a node. What cannot be understood becomes a fault of that node, never an error."""
    labels = node.metadata.labels or {}
    annotations = node.metadata.annotations or {}
    status, spec = node.status, node.spec
    faults: list[str] = []
    mode = read_mode(labels, faults)
    return NodeView(
        name=node.metadata.name or "",
        labels=labels,
        taints=(spec and spec.taints) or (),
        ready=any(c.type == "Ready" and c.status == "True" for c in (status and status.conditions) or ()),
        cordoned=bool(spec and spec.unschedulable),
        managed=bool(mode),
        boards=_boards(labels, annotations, mode, faults) if mode else (),
        allocatable=_amounts(status.allocatable if status else None, "status.allocatable", faults),
        capacity=_amounts(status.capacity if status else None, "status.capacity", faults),
        spec=read_layouts(names.SPEC_PLACEMENTS, annotations, faults),
        spec_plan=annotations.get(names.SPEC_PLAN, ""),
        status_plan=annotations.get(names.STATUS_PLAN, ""),
        cut=annotations.get(names.SPEC_CUT, ""),
        faults=tuple(faults),
    )


def read_mode(labels: Mapping[str, str], faults: list[str]) -> str:
    """Return the mode that a node's label gives its boards, or "" if they are not ours to cut (or it is no mode)."""
    mode = labels.get(names.PARTITIONING_LABEL, "")
    if mode and mode not in names.MODES:
        faults.append(f"label {names.PARTITIONING_LABEL}: {mode!r} is no mode; write one of {', '.join(names.MODES)}")
        return ""
    return mode


def view_pod(pod: Pod) -> PodView:
    """Return what decisions see of a pod. Raises QuantityError for a resource that is no quantity."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    gates = [gate.name for gate in spec.scheduling_gates or ()]
    phase = status.phase if status else None
    conditions = {c.type: c for c in (status and status.conditions) or ()}
    labels, annotations = meta.labels or {}, meta.annotations or {}
    request = peak_request(pod)
    return PodView(
        namespace=meta.namespace or "",
        name=meta.name or "",
        uid=meta.uid or "",
        version=meta.resource_version or "",
        node=spec.node_name or "",
        created=epoch(meta.creation_timestamp),
        priority=spec.priority or 0,
        gated=names.GATE in gates,
        held=any(gate != names.GATE for gate in gates),
        unschedulable_since=_unschedulable_since(conditions.get("PodScheduled")),
        running=phase == "Running",
        finished=phase in _FINISHED,
        terminating=meta.deletion_timestamp is not None,
        controlled=any(owner.controller for owner in meta.owner_references or ()),
        request=request,
        slices=tuple(
            sorted(
                (name, min(count // 1000, _MOST_SLICES)) for name, count in request.items() if count and is_slice(name)
            )
        ),
        constraints=constraints_of(spec),
        waiting=_waiting(conditions.get(names.ADMITTED_CONDITION)),
        moments=gpu_moments(pod) if any(map(_is_gpu, request)) else (),
        labels=labels,
        capacity=labels.get(names.CAPACITY_LABEL, ""),
        preempts=spec.preemption_policy != _NEVER,
        non_preemptible=annotations.get(names.NON_PREEMPTIBLE) == "true",
        evicted_for=annotations.get(names.EVICTED_FOR, ""),
        grace_s=_GRACE_S if spec.termination_grace_period_seconds is None else spec.termination_grace_period_seconds,
    )


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
    found = {tuple(sorted((name, n) for name, n in moment.items() if n and _is_gpu(name))) for moment in _moments(pod)}
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


def inventory_model(entry: BoardInventory) -> BoardModel:
    """Return the model of a discovered board; what the driver does not say (nominal GB, clients) is the table's."""
    known = by_product(entry.model)
    largest = max(entry.profiles, key=lambda profile: profile.memory_units, default=None)
    return BoardModel(
        name=entry.model,
        memory_mib=entry.memory_mib,
        nominal_gb=nominal_gb(entry.model, entry.memory_mib),
        compute=entry.compute_slices or (largest.compute if largest else 0),
        memory_units=entry.memory_units or (largest.memory_units if largest else 0),
        profiles=tuple(sorted(map(_with_max, entry.profiles), key=size_order)),
        max_clients=known.max_clients if known else 48,
    )


# ---------------------------------------------------------------------------------------------------------------------


def _boards(
    labels: Mapping[str, str], annotations: Mapping[str, str], mode: str, faults: list[str]
) -> tuple[Board, ...]:
    inventory = read_inventory(annotations, faults)
    placed = read_status(annotations, faults)
    counts = {} if placed is not None else read_counts(annotations)
    kinds = _from_inventory(inventory, mode) if inventory is not None else _from_labels(labels, mode, faults)
    return tuple(
        msgspec.structs.replace(
            board,
            slices=tuple(sorted((placed or {}).get(board.index, ()), key=_by_start)),
            counted=tuple(
                (profile, used)
                for used, profiles in sorted(counts.get(board.index, {}).items(), reverse=True)
                for profile, count in sorted(profiles.items())
                for _ in range(count)
            ),
        )
        for board in kinds
    )


def _from_inventory(inventory: tuple[BoardInventory, ...], mode: str) -> list[Board]:
    return [
        Board(
            index=entry.index,
            uuid=entry.uuid,
            model=inventory_model(entry),
            mode=entry.mode or mode,
            cuttable=_cuttable(entry, entry.mode or mode),
        )
        for entry in sorted(inventory, key=lambda entry: entry.index)
    ]


def _cuttable(entry: BoardInventory, mode: str) -> bool:
    if entry.fault:
        return False
    return mode == names.MPS or (mode == names.MIG and (entry.mig or entry.switch == "live"))


def _from_labels(labels: Mapping[str, str], mode: str, faults: list[str]) -> list[Board]:
    """Return the boards that the table knows by the labels of GPU feature discovery; until an agent reports."""
    product, count = labels.get(names.PRODUCT_LABEL, ""), labels.get(names.COUNT_LABEL, "1")
    model = by_product(product)
    if model is None:
        faults.append(
            f"label {names.PRODUCT_LABEL}: {product!r} is in no table and no agent has reported {names.INVENTORY}; "
            "its boards are left alone"
        )
        return []
    if not _COUNT.fullmatch(count):
        faults.append(f"label {names.COUNT_LABEL}: {count!r} is no count; its boards are left alone")
        return []
    memory = labels.get(names.MEMORY_LABEL, "")
    if _MEMORY.fullmatch(memory):
        model = msgspec.structs.replace(model, memory_mib=int(memory))
    return [
        Board(index=index, uuid="", model=model, mode=mode, cuttable=mode != names.TIMESLICING)
        for index in range(int(count))
    ]


def _with_max(profile: Profile) -> Profile:
    """Return the profile; where no most is said, there is one media engine set to give (`+me`, `+me.all`)."""
    if profile.max == 0 and profile.name.endswith(("+me", "+me.all")):
        return msgspec.structs.replace(profile, max=1)
    return profile


def _amounts(quantities: Mapping[str, str | int | float] | None, path: str, faults: list[str]) -> dict[str, int]:
    try:
        return amounts(quantities)
    except QuantityError as error:
        faults.append(f"{path}: {error}")
        return {}


def _by_start(item: PlacedSlice) -> tuple[int, str, bool]:
    return -1 if item.start is None else item.start, item.profile, item.used


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


def _is_gpu(resource: str) -> bool:
    return resource in (names.GPU, names.GPU_SHARED) or is_slice(resource)


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _unschedulable_since(condition: Condition | None) -> int | None:
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return None
    return epoch(condition.last_transition_time)


def _waiting(condition: Condition | None) -> tuple[str, str]:
    if condition is None or condition.status != "False":
        return "", ""
    return condition.reason or "", condition.message or ""
