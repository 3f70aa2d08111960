"""What a simulated cluster has come to, as data (design of `simulate -o json`) and as text."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from console.amounts import written
from console.boards import draw
from console.manifests import Manifests
from console.output import columns, terminal_width
from console.quotatable import quota_paragraphs
from console.simulation.world import SimulatedPod, World
from console.submitted import Raw
from policies.boards import Board
from policies.decision import QuotaStatus
from policies.gpupolicy import Policies
from policies.ledger import Ledger
from policies.settings import DEFAULTS
from policies.supply import overbooking
from policies.view import PodView, View


def report(world: World, manifests: Manifests) -> dict[str, object]:
    """Return the whole result: pods and nodes in the order of the files, events in time."""
    return {
        "pods": {item.key: _pod(world.pods[item.key]) for item in manifests.pods},
        "nodes": {name: {"gpus": [_board(board) for board in node.boards]} for name, node in world.nodes.items()},
        "quotas": {status.key: _quota(status) for status in statuses(world)},
        "events": [
            {"at": event.at, "what": event.what, "object": event.object, "why": event.why} for event in world.events
        ],
        "problems": [{"object": about, "message": message} for about, message in problems(world.view(), manifests)],
    }


def table(world: World, manifests: Manifests) -> str:
    """Return the result for people: each pod in a line, what evictions there were, quotas, boards, and what was wrong."""
    width = terminal_width()
    rows = [("POD", "OUTCOME", "NODE", "RESOURCES", "REASON")]
    rows += [_row(world.pods[item.key]) for item in manifests.pods]
    evictions = [
        f"at {event.at:g} s {event.object} was evicted: {event.why}"
        for event in world.events
        if event.what == "evicted"
    ]
    paragraphs = [
        columns(rows, left=5, width=width),
        "\n".join(evictions),
        *quota_paragraphs(statuses(world), width),
        draw(world.nodes.values(), width),
        "\n".join(f"{about}: {message}" for about, message in problems(world.view(), manifests)),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _row(pod: SimulatedPod) -> tuple[str, str, str, str, str]:
    amounts = [f"{amount} {name}" for asked in _resources(pod.raw).values() for name, amount in asked.items()]
    reason = "; ".join(_reason(pod).splitlines())
    return pod.key, pod.outcome, pod.view.node or "-", ", ".join(amounts) or "-", reason


def _pod(pod: SimulatedPod) -> dict[str, object]:
    return {
        "outcome": pod.outcome,
        "node": pod.view.node or None,
        "capacity": pod.view.capacity or None,
        "resources": _resources(pod.raw),
        "reason": _reason(pod),
        "warnings": list(pod.warnings),
        "evictedFor": pod.evicted_for,
    }


def statuses(world: World) -> tuple[QuotaStatus, ...]:
    """Return the status of every quota at the end."""
    return Ledger(world.view(), DEFAULTS.quota).statuses()


def _quota(status: QuotaStatus) -> dict[str, object]:
    return {what: written(getattr(status, what)) for what in ("min", "max", "used", "borrowed", "lent")}


def _reason(pod: SimulatedPod) -> str:
    return pod.denied or (pod.reason if pod.outcome == "waiting" else "")


def _board(board: Board) -> dict[str, object]:
    return {
        "index": board.index,
        "mode": board.mode,
        "slices": [{"profile": item.profile, "start": item.start, "pod": item.pod} for item in board.slices],
    }


def _resources(raw: Raw) -> dict[str, dict[str, str]]:
    """Return what each container asks for, canonically; containers that ask for nothing are left out."""
    resources = {}
    spec = raw.get("spec")
    for kind in ("initContainers", "containers"):
        for container in (spec.get(kind) or ()) if isinstance(spec, dict) else ():
            asked = _asked(container)
            if asked:
                resources[str(container["name"])] = asked
    return resources


def _asked(container: Mapping[str, object]) -> dict[str, str]:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return {}
    return {
        name: str(amount)
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items()
    }


def problems(view: View, manifests: Manifests) -> Iterator[tuple[str, str]]:
    """Yield what was not understood or not taken into account, as (object, message)."""
    yield from _of_nodes(view)
    for status in Ledger(view, DEFAULTS.quota).statuses():
        if not status.ready:
            yield f"{status.kind} {status.key}", f"{status.reason}: {status.message}"
    for title, (reason, message) in Policies(view.policies).unready.items():
        yield title, f"{reason}: {message}"
    for budget in manifests.budgets:
        spec = budget.value.spec
        if budget.value.status is None and (spec is None or spec.min_available is spec.max_unavailable is None):
            yield (
                f"PodDisruptionBudget {budget.key}",
                "has neither minAvailable nor maxUnavailable, so that none of its pods may be evicted",
            )
    for item in manifests.others:
        yield f"{item.kind} {item.key}", "is not taken into account: this version does not simulate it"


def _of_nodes(view: View) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with nodes, by themselves or together with the pods that are bound to them."""
    bound: defaultdict[str, list[PodView]] = defaultdict(list)
    for pod in view.pods:
        if pod.holds:
            bound[pod.node].append(pod)
    for node in view.nodes:
        yield from ((f"Node {node.name}", found) for found in node.faults)
        if why := overbooking(node, bound.pop(node.name, ())):
            yield f"Node {node.name}", f"{why}; nothing more is given away there"
    for name, pods in bound.items():
        yield from ((f"Pod {pod.key}", f"is bound to {name}, which is not in the input") for pod in pods)
