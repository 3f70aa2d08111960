"""An immutable picture of the cluster: nodes with their boards, pods with what they need. The input of all decisions.

Built from the API's objects once per change of each object, so that deciding never parses. Holds only what
decisions read, and what many pods have in common once (pain R08): 20,000 pods must fit in memory beside it, and what
is read of them at each decision in the processor's cache.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec.structs import force_setattr

from policies import names
from policies.annotations import Layouts, Placement, listed, read_layouts
from policies.boards import Board, read_boards
from policies.budgets import BudgetView
from policies.constraints import Constraints, constraints_of
from policies.governing import QuotaView
from policies.legible import Doubts, told
from policies.model import Condition, Node, Pod, Taint
from policies.needs import gpu_moments, is_gpu, is_slice, peak_request
from policies.policy import PolicyView
from policies.quantity import Amounts, QuantityError, amounts
from policies.timestamps import epoch

UNSCHEDULABLE_S: Final = 30
"""Seconds for which the scheduler may find no node for a released pod before its slices are no longer kept for it."""

PROMPT_S: Final = 5
"""Seconds in which an agent carries out nearly any order; who could have something else does not wait for longer."""

ORDER_S: Final = 60
"""Seconds in which an agent carries out any order: the slowest board takes a few, and its retries come well before."""

_PLAN: Final = re.compile(r"[0-9]{1,15}")  # ms since the epoch; what anybody else has written may be of any length
_FINISHED: Final = ("Succeeded", "Failed")
_NEVER: Final = "Never"
_GRACE_S: Final = 30  # Kubernetes' own, where a pod says nothing
_REMEMBERED: Final = 1 << 14  # values of pods that many have in common
_MOST_SLICES: Final = 1000  # of one kind for one pod: more than a node makes, so that more would wait all the same

H = TypeVar("H", bound=Hashable)
V = TypeVar("V")


class NodeView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
        unable: why its agent can carry out nothing now, in its own words; empty if it does not say so.
        silent: its agent does not carry out orders, so nothing is planned on the last one; found when it is decided.
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
    unable: str = ""
    silent: bool = False

    @property
    def reported(self) -> bool:
        """Return whether an agent has reported the boards; if not, all are guessed from labels. True of a node without any."""
        return not self.boards or any(board.uuid for board in self.boards)

    @property
    def in_flight(self) -> bool:
        """Return whether the agent has not yet carried out the last order."""
        return self.spec_plan != self.status_plan

    @property
    def ordered_at(self) -> float:
        """Return when the last order was given, in seconds since the epoch; infinity if there was none that says it."""
        return ordered_at(self.spec_plan)

    def overdue(self, now: float) -> bool:
        """Return whether the agent has left the last order undone for so long that nothing is to be hoped of it.

        The same holds of one that does not say when it was given, or names a time that has not come.
        """
        return self.in_flight and abs(now - self.ordered_at) > ORDER_S

    def heeds(self, now: float) -> bool:
        """Return whether the agent is to be expected to do at once as it is told, as far as the last order shows."""
        if self.in_flight:
            return abs(now - self.ordered_at) <= PROMPT_S
        there = {board.index: board for board in self.boards} if self.spec else {}
        return all(index in there and there[index].layout == listed(layout) for index, layout in self.spec.items())

    def next_plan(self, now: float) -> str:
        """Return the id of a new order: milliseconds since the epoch, larger than that of any plan that the node bears.

        Clocks of successive leaders may differ, so the last id may lie ahead; one far ahead is not of a leader.
        """
        borne = map(ordered_at, (self.spec_plan, self.status_plan))
        last_s = max((moment for moment in borne if moment <= now + ORDER_S), default=0.0)
        return str(max(int(now * 1000), round(last_s * 1000) + 1))

    def target(self, board: Board) -> tuple[Placement, ...]:
        """Return the layout that the board has, or is about to have once its order is carried out."""
        if self.in_flight and board.index in self.spec:
            return self.spec[board.index]
        return board.layout


class PodView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
        unschedulable_since: since when the scheduler finds no node for it, in seconds since the epoch, and not before our
            gate was removed; None if it does not say so.
        released_at: when our gate was removed, in seconds since the epoch; 0 if it has not been.
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
        key: namespace/name, made of these; one string for all who ask, since pods are looked up by it again and again.
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
    released_at: int = 0
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
    key: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "key", f"{self.namespace}/{self.name}")

    @property
    def since(self) -> int:
        """Return since when it has been to be bound, in seconds since the epoch: about as long a bound one has run."""
        return max(self.created, self.released_at)

    @property
    def holds(self) -> bool:
        """Return whether it is bound and has not ended: its slices are taken."""
        return bool(self.node) and not self.finished

    def given_up(self, now: float) -> bool:
        """Return whether the scheduler has found no node for a pod for so long that its slices are not kept for it."""
        return self.unschedulable_since is not None and now - self.unschedulable_since >= UNSCHEDULABLE_S

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
        policies: every policy, in force or not.
        budgets: every PodDisruptionBudget of the governed namespaces.
    """

    nodes: tuple[NodeView, ...] = ()
    pods: tuple[PodView, ...] = ()
    now: float = 0.0
    quotas: tuple[QuotaView, ...] = ()
    policies: tuple[PolicyView, ...] = ()
    budgets: tuple[BudgetView, ...] = ()


def view_node(node: Node) -> NodeView:
    """Return what decisions see of a node. What cannot be understood becomes a fault of that node, never an error."""
    labels = node.metadata.labels or {}
    annotations = node.metadata.annotations or {}
    status, spec = node.status, node.spec
    faults: list[str] = []
    mode = read_mode(labels, faults)
    boards = read_boards(labels, annotations, mode, faults) if mode else ()
    doubts: Doubts = []
    layouts = read_layouts(names.SPEC_PLACEMENTS, annotations, doubts)
    faults += told(doubts)
    return NodeView(
        name=node.metadata.name or "",
        labels=labels,
        taints=(spec and spec.taints) or (),
        ready=any(c.type == "Ready" and c.status == "True" for c in (status and status.conditions) or ()),
        cordoned=bool(spec and spec.unschedulable),
        managed=bool(mode),
        boards=boards,
        allocatable=_amounts(status.allocatable if status else None, "status.allocatable", faults),
        capacity=_amounts(status.capacity if status else None, "status.capacity", faults),
        spec=layouts,
        spec_plan=annotations.get(names.SPEC_PLAN, ""),
        status_plan=annotations.get(names.STATUS_PLAN, ""),
        cut=annotations.get(names.SPEC_CUT, ""),
        unable=_unable((status and status.conditions) or ()),
        faults=tuple(faults),
    )


def ordered_at(plan: str) -> float:
    """Return when a plan of this id was made, in seconds since the epoch; infinity if it is not one of ours."""
    return int(plan) / 1000 if _PLAN.fullmatch(plan) else math.inf


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
    released_at = _moment(annotations.get(names.RELEASED_AT))
    return PodView(
        namespace=_once(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        version=meta.resource_version or "",
        node=_once(spec.node_name or ""),
        created=epoch(meta.creation_timestamp),
        priority=spec.priority or 0,
        gated=names.GATE in gates,
        held=any(gate != names.GATE for gate in gates),
        unschedulable_since=_unschedulable_since(conditions.get("PodScheduled"), released_at),
        released_at=released_at,
        running=phase == "Running",
        finished=phase in _FINISHED,
        terminating=meta.deletion_timestamp is not None,
        controlled=any(owner.controller for owner in meta.owner_references or ()),
        request=_mapping(tuple(request.items())),
        slices=_once(_slices_in(request)),
        constraints=_once(constraints_of(spec)),
        waiting=_waiting(conditions.get(names.ADMITTED_CONDITION)),
        moments=_once(gpu_moments(pod)) if any(map(is_gpu, request)) else (),
        labels=_mapping(tuple(labels.items())),
        capacity=labels.get(names.CAPACITY_LABEL, ""),
        preempts=spec.preemption_policy != _NEVER,
        non_preemptible=annotations.get(names.NON_PREEMPTIBLE) == "true",
        evicted_for=annotations.get(names.EVICTED_FOR, ""),
        grace_s=_GRACE_S if spec.termination_grace_period_seconds is None else spec.termination_grace_period_seconds,
    )


# ---------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_REMEMBERED)
def _once(value: H) -> H:
    """Return the one object for equal values, so that many pods share it."""
    return value


@lru_cache(maxsize=_REMEMBERED)
def _mapping(items: tuple[tuple[str, V], ...]) -> Mapping[str, V]:
    """Return the one mapping for equal items, in this order; never to be changed."""
    return dict(items)


def _slices_in(request: Amounts) -> tuple[tuple[str, int], ...]:
    counts = ((name, min(count // 1000, _MOST_SLICES)) for name, count in request.items() if count and is_slice(name))
    return tuple(sorted(counts))


def _unable(conditions: Iterable[Condition]) -> str:
    """Return what the agent says of the driver without which it can do nothing (pain A14), or of its own fault."""
    for condition in conditions:
        if condition.type == names.PARTITIONING_CONDITION and condition.reason in (names.NO_BOARDS, names.AGENT_FAILED):
            return condition.message or condition.reason
    return ""


def _amounts(quantities: Mapping[str, str | int | float] | None, path: str, faults: list[str]) -> dict[str, int]:
    try:
        return amounts(quantities)
    except QuantityError as error:
        faults.append(f"{path}: {error}")
        return {}


def _unschedulable_since(condition: Condition | None, released_at: int) -> int | None:
    """Return since when a pod is unschedulable: the time of its condition is when the gate was put up, if there was one."""
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return None
    return max(epoch(condition.last_transition_time), released_at)


def _moment(written: str | None) -> int:
    try:
        return epoch(written)
    except ValueError:  # somebody else has written it
        return 0


def _waiting(condition: Condition | None) -> tuple[str, str]:
    if condition is None or condition.status != "False":
        return "", ""
    return condition.reason or "", condition.message or ""
