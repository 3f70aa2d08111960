"""From manifests to what happens when: the story that a simulated cluster goes through.

Annotations `simulate.apportion/at` and `simulate.apportion/duration` (Go durations: `90s`, `1m30s`, `500ms`) say when an
object appears and how long a pod runs. The clock starts at the latest creationTimestamp that is written anywhere.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from console.manifests import Manifest, Manifests, T, UnreadableManifests
from console.reviewing import Reviewed, written_policy
from console.simulation.disruption import SimulatedBudget
from console.simulation.world import SimulatedPod, World, merged
from console.submitted import Raw
from policies import names
from policies.budgets import view_budget
from policies.faults import fault
from policies.governing import QuotaView, view_quota
from policies.model import Pod
from policies.policy import PolicyView
from policies.timestamps import epoch, timestamp
from policies.view import NodeView, View, view_node, view_pod

PREFIX: Final = "simulate.apportion/"
AT: Final = PREFIX + "at"
DURATION: Final = PREFIX + "duration"
_RULE: Final = "write a duration such as 30s, 5m or 1m30s"
_MOST_S: Final = 1e9  # of a duration: some thirty years

_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")

# Source: k8s.io/kubernetes, pkg/apis/scheduling: the two that every cluster has.
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


Admit = Callable[[Manifest[Pod], View], Reviewed]
"""What admission makes of a pod in a cluster."""


class _Moment(msgspec.Struct):
    """What appears at one time, in the order of the files."""

    nodes: list[NodeView] = []
    quotas: list[QuotaView] = []
    policies: list[PolicyView] = []
    budgets: list[SimulatedBudget] = []
    bound: list[SimulatedPod] = []
    submitted: list[Manifest[Pod]] = []


def play(manifests: Manifests, admit: Admit) -> World:
    """Return the cluster at the end of the story. Raises UnreadableManifests if the timing of something is not readable."""
    world = _staged(manifests, admit)
    world.run()
    return world


def opening(manifests: Manifests, admit: Admit, not_before: float = 0.0) -> World:
    """Return the cluster in which the first decision of the story is taken, no earlier than so many seconds since the epoch.

    Raises UnreadableManifests as `play` does.
    """
    world = _staged(manifests, admit, not_before)
    world.begin()
    return world


def _staged(manifests: Manifests, admit: Admit, not_before: float = 0.0) -> World:
    """Return an empty cluster to which the story is about to happen."""
    timing = _read_timing(manifests)
    dated = [node.value.metadata for node in manifests.nodes]
    dated += [pod.value.metadata for pod in manifests.pods]
    dated += [quota.value.metadata for quota in manifests.quotas]
    dated += [policy.value.metadata for policy in manifests.policies]
    start = max((epoch(meta.creation_timestamp) for meta in dated), default=0)
    start = max(start, int(not_before))
    written = {pod.key: pod for pod in manifests.pods}
    completed = _Completion(start, _priorities(manifests), timing)

    def again(key: str, at_s: float) -> SimulatedPod:
        pod = _afresh(written[key])
        answer = admit(pod, world.view())
        return completed(pod, answer.admitted or pod.raw, answer, at_s=at_s)

    world = World(start, again)

    def happen(moment: _Moment) -> None:
        world.govern(moment.quotas, moment.policies, moment.budgets)
        world.arrive(moment.nodes, moment.bound)
        for pod in moment.submitted:
            answer = admit(pod, world.view())
            world.submit(completed(pod, answer.admitted or pod.raw, answer))

    for at_s, moment in sorted(_moments(manifests, timing, completed, start).items(), key=lambda item: item[0]):
        world.at(at_s, partial(happen, moment))
    for pod in manifests.pods:
        if (deleted := pod.value.metadata.deletion_timestamp) is not None and _is_placed(pod.value):
            world.at(max(timing[pod.source].at_s, epoch(deleted) - start), partial(world.leave, pod.key))
    return world


def _moments(
    manifests: Manifests, timing: Mapping[str, "_Timing"], completed: "_Completion", start: int
) -> dict[float, _Moment]:
    """Return what appears when, in seconds after the start."""
    moments: dict[float, _Moment] = {}

    def moment_of(item: Manifest[T]) -> _Moment:
        return moments.setdefault(timing[item.source].at_s, _Moment())

    for node in manifests.nodes:
        moment_of(node).nodes.append(view_node(node.value))
    for quota in manifests.quotas:
        moment_of(quota).quotas.append(
            _dated(view_quota(quota.value), quota.namespace, start + timing[quota.source].at_s)
        )
    for policy in manifests.policies:
        seen = written_policy(policy)
        created = seen.created or int(start + timing[policy.source].at_s)
        moment_of(policy).policies.append(replace(seen, created=created))
    for budget in manifests.budgets:
        view = replace(view_budget(budget.value), namespace=budget.namespace)
        moment_of(budget).budgets.append(SimulatedBudget(view, None if budget.value.status else budget.value.spec))
    for pod in manifests.pods:
        if _is_placed(pod.value):
            moment_of(pod).bound.append(completed(pod, pod.raw))
        else:
            moment_of(pod).submitted.append(pod)
    return moments


def _dated(quota: QuotaView, namespace: str, now: float) -> QuotaView:
    """Return a quota as the API server keeps it: in a namespace, with a time of creation."""
    own = (namespace,) if quota.kind == names.ELASTIC_QUOTA else quota.namespaces
    return replace(quota, namespace=namespace, namespaces=own, created=quota.created or int(now))


def _afresh(pod: Manifest[Pod]) -> Manifest[Pod]:
    """Return a pod as its owner makes it again: as it was written, but nowhere yet."""
    without = {
        "metadata": dict.fromkeys(("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"))
        | {"annotations": {names.EVICTED_FOR: None, names.RELEASED_AT: None}},
        "spec": {"nodeName": None},
        "status": None,
    }
    raw = merged(pod.raw, without)
    return replace(pod, raw=raw, value=msgspec.convert(raw, Pod))


class _Timing(msgspec.Struct, frozen=True):
    """When an object appears and how long it runs, in seconds; None: for ever."""

    at_s: float = 0.0
    duration_s: float | None = None


def _read_timing(manifests: Manifests) -> dict[str, _Timing]:
    """Return the timing of each object, by its source. Raises UnreadableManifests with every fault."""
    faults: list[str] = []
    timing: dict[str, _Timing] = {}
    items: list[tuple[str, Raw]] = [(item.source, item.raw) for item in manifests.nodes]
    items += [(item.source, item.raw) for item in manifests.namespaces]
    items += [(item.source, item.raw) for item in manifests.pods]
    items += [(item.source, item.raw) for item in manifests.quotas]
    items += [(item.source, item.raw) for item in manifests.policies]
    items += [(item.source, item.raw) for item in manifests.budgets]
    items += [(item.source, item.raw) for item in manifests.priorities]
    items += [(item.source, item.raw) for item in manifests.others]
    for source, raw in items:
        path = f"{source}: metadata.annotations"
        written = {key: text for key, text in _annotations(raw).items() if key.startswith(PREFIX)}
        faults += [
            fault(f"{path}[{key}]", text, f"no such annotation; there are {AT} and {DURATION}")
            for key, text in written.items()
            if key not in (AT, DURATION)
        ]
        at_s, duration_s = (_seconds(f"{path}[{key}]", written.get(key), faults) for key in (AT, DURATION))
        timing[source] = _Timing(at_s or 0.0, duration_s)
    if faults:
        raise UnreadableManifests("\n".join(["the input cannot be read", *faults]))
    return timing


def _seconds(path: str, text: object, faults: list[str]) -> float | None:
    if text is None:
        return None
    match = _DURATION.fullmatch(text) if isinstance(text, str) and text else None
    parts = match.groups() if match else ()
    seconds = sum(float(part) * unit for part, unit in zip(parts, (3600, 60, 1, 0.001), strict=False) if part)
    if match is None or seconds > _MOST_S:
        faults.append(fault(path, text, _RULE))
        return None
    return seconds


class _Completion:
    """Adds to a pod what the API server adds: uid, time of creation, priority."""

    def __init__(self, start: int, priorities: Mapping[str, int], timing: Mapping[str, _Timing]) -> None:
        self._start, self._priorities, self._timing = start, priorities, timing

    def __call__(
        self, pod: Manifest[Pod], raw: Raw, answer: Reviewed | None = None, *, at_s: float | None = None
    ) -> SimulatedPod:
        timing = self._timing[pod.source]
        again = "" if at_s is None else f", made at {at_s:g} s"
        meta = pod.value.metadata
        added = {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": meta.uid or f"uid of {pod.key}{again}",
            "creationTimestamp": meta.creation_timestamp
            or timestamp(self._start + (timing.at_s if at_s is None else at_s)),
        }
        spec = {"priority": self._priority(pod)}
        raw = merged(raw, {"metadata": added, "spec": spec})
        return SimulatedPod(
            key=pod.key,
            raw=raw,
            view=view_pod(msgspec.convert(raw, Pod)),
            duration_s=timing.duration_s,
            denied=(answer and answer.denied) or "",
            warnings=answer.warnings if answer else (),
        )

    def _priority(self, pod: Manifest[Pod]) -> int:
        spec = pod.value.spec
        if spec.priority is not None:
            return spec.priority
        return self._priorities.get(spec.priority_class_name or "", 0)


def _priorities(manifests: Manifests) -> dict[str, int]:
    """Return the value of each PriorityClass by name, and under "" that of the global default."""
    priorities = dict(_SYSTEM_PRIORITIES)
    for item in manifests.priorities:
        priorities[item.name] = item.value.value
        if item.value.global_default:
            priorities[""] = item.value.value
    return priorities


def _is_placed(pod: Pod) -> bool:
    """Return whether a pod has been through admission and the scheduler before the story begins."""
    return bool(pod.spec.node_name) or (pod.status is not None and pod.status.phase not in (None, "Pending"))


def _annotations(raw: Raw) -> Mapping[str, object]:
    meta = raw.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    return annotations if isinstance(annotations, dict) else {}
