"""`planner`: how long it takes to plan for those who wait on a large cluster, and to plan again after one change of it.

Two pods wait for each node of eight boards. They come from workloads of ten, each with its own slices, room and
constraints; boards are of five kinds, cut and used in many ways. Where a third of the slices is free some pods find
theirs, for some boards are cut. One change is measured where the cluster is full, as at rest, so that all of them wait,
and where it is not (`moving`), since such a change may concern everybody: then nearly all is planned anew.
Every size has a process of its own: the figure is what the first plan takes, not what it takes when layouts are
remembered. Times are of the processor.
"""

import gc
import multiprocessing
import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from policies import names
from policies.annotations import BoardInventory, PlacedSlice, write_inventory, write_status
from policies.catalogue import by_product
from policies.memo import Memo
from policies.placement import arrange
from policies.settings import DEFAULTS
from policies.settle import settle
from policies.view import NodeView, PodView, View, view_node, view_pod
from reconciler.__main__ import OBJECTS
from tests.bench.figures import Figure, percentile
from tests.builders import A30, A100, H100, T4, make_node, make_pod

BOARDS = 8
WAITING = 2  # pods for each node
WORKLOAD = 10  # pods that are alike
CHANGES = 5  # of each sort
NOW = 1_772_500_000.0
M = TypeVar("M")
KINDS = (
    (A100, names.MIG, ("1g.5gb", "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")),
    (A100, names.MIG, ("1g.5gb", "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")),
    (H100, names.MIG, ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")),
    (A30, names.MIG, ("1g.6gb", "2g.12gb", "4g.24gb")),
    (T4, names.MPS, ("2gb", "4gb", "5gb", "8gb", "15gb")),
)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one size.

    Attributes:
        first_s: the first plan of the process.
        full_s: a plan of which nothing is known but layouts of boards.
        queue_s: the same where the cluster is full.
        change_s: a plan there after one change, by the sort of change.
        grown_mib: by how much the process has grown with the first plan.
    """

    first_s: float
    full_s: float
    queue_s: float
    change_s: dict[str, float]
    grown_mib: float


def run() -> Iterator[Figure]:
    """Measure three sizes."""
    small, middle, large = (_apart(measure, size) for size in (100, 1000, 5000))
    yield Figure("planner.first", middle.first_s * 1000, "ms", "<=", 1000)
    yield Figure("planner.full", middle.full_s * 1000, "ms", "<=", 1000)
    yield Figure("planner.queue", middle.queue_s * 1000, "ms", "<=", 1000)
    for sort, took_s in middle.change_s.items():
        yield Figure(f"planner.change.{sort}", took_s * 1000, "ms", "<=", 50)
    for sort, took_s in _apart(measure_moving, 1000).items():
        yield Figure(f"planner.moving.{sort}", took_s * 1000, "ms", "<=", 1000)
    yield Figure("planner.memory", middle.grown_mib, "MiB", "<=", 64)
    # No promise but a guard: work that grows with the square would be 100 and 25.
    yield Figure("planner.growth.100-1000", middle.full_s / small.full_s, "x", "<=", 15)
    yield Figure("planner.growth.1000-5000", large.full_s / middle.full_s, "x", "<=", 7.5)


def _apart(measuring: Callable[[int], M], size: int) -> M:
    """Return what a process of its own measures."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measuring, size).result()


def measure(size: int) -> Measured:
    """Measure one size in this process, which collects garbage as seldom as the reconciler does."""
    gc.set_threshold(OBJECTS)
    view = large_view(random.Random(1), size)
    before = _most_mib()
    first_s = _timed(lambda: settle(view))
    grown_mib = _most_mib() - before
    full_s = _median_s(lambda: settle(view))
    crowded = large_view(random.Random(1), size, full=True)
    return Measured(
        first_s=first_s,
        full_s=full_s,
        queue_s=_median_s(lambda: settle(crowded)),
        change_s=_changes_s(crowded, random.Random(2)),
        grown_mib=grown_mib,
    )


def measure_moving(size: int) -> dict[str, float]:
    """Measure a plan after one change where a third of the slices is free."""
    gc.set_threshold(OBJECTS)
    return _changes_s(large_view(random.Random(1), size), random.Random(2))


def _changes_s(view: View, chance: random.Random) -> dict[str, float]:
    """Return the median time of a plan after one change, by its sort, when the view before has been decided on."""
    memo = Memo()
    times: dict[str, list[float]] = {}
    for number in range(CHANGES):
        for sort, change in (("came", _came), ("ended", _ended)):
            settle(view, DEFAULTS, memo)
            changed = replace(change(view, number, chance), now=view.now + 1)
            times.setdefault(sort, []).append(_timed(lambda changed=changed: settle(changed, DEFAULTS, memo)))
    return {sort: percentile(values, 0.5) for sort, values in times.items()}


def _median_s(do: Callable[[], object]) -> float:
    """Return the median of the processor seconds of something done a few times."""
    return percentile([_timed(do) for _ in range(CHANGES)], 0.5)


def _came(view: View, number: int, chance: random.Random) -> View:
    """A pod comes that waits."""
    pod = _pod(chance, f"late/{number}", _workload(chance), gates=[names.GATE])
    return replace(view, pods=(*view.pods, pod))


def _ended(view: View, _number: int, chance: random.Random) -> View:
    """A pod ends, and its node's agent says so."""
    pod = chance.choice([pod for pod in view.pods if pod.node and pod.slices])
    node = next(node for node in view.nodes if node.name == pod.node)
    return replace(_with_node(view, _let_go(node, pod)), pods=tuple(one for one in view.pods if one is not pod))


def _let_go(node: NodeView, pod: PodView) -> NodeView:
    boards = (
        replace(
            board,
            slices=tuple(replace(item, used=False, pod=None) if item.pod == pod.key else item for item in board.slices),
        )
        for board in node.boards
    )
    return replace(node, boards=tuple(boards))


def _with_node(view: View, node: NodeView) -> View:
    return replace(view, nodes=tuple(node if one.name == node.name else one for one in view.nodes))


# The cluster ----------------------------------------------------------------------------------------------------------


def large_view(chance: random.Random, size: int, *, full: bool = False) -> View:
    """Return a cluster of so many nodes, and those who wait: in use for the most part, or full so that all of them wait."""
    nodes: list[NodeView] = []
    pods: list[PodView] = []
    for number in range(size):
        node, bound = _used_node(chance, f"n{number}", *KINDS[number % len(KINDS)], full=full)
        nodes.append(node)
        pods += bound
    for number in range(WAITING * size):
        if number % WORKLOAD == 0:
            workload = _workload(chance)
        pods.append(_pod(chance, f"team-{number % 50}/p{number}", workload, gates=[names.GATE]))
    chance.shuffle(pods)
    return View(nodes=tuple(nodes), pods=tuple(pods), now=NOW)


def _used_node(
    chance: random.Random, name: str, product: str, mode: str, profiles: tuple[str, ...], *, full: bool
) -> tuple[NodeView, list[PodView]]:
    """Return a node in use and the pods on it."""
    model = by_product(product)
    inventory, placed, bound = [], {}, []
    for index in range(BOARDS):
        inventory.append(
            BoardInventory(
                index=index,
                uuid=f"GPU-{name}-{index}",
                model=model.name,
                memory_mib=model.memory_mib,
                profiles=model.profiles,
                mig=mode == names.MIG,
                compute_slices=model.compute,
                memory_units=model.memory_units,
            )
        )
        there = ()
        for _ in range(chance.choice((0, 1, 2, 4, 7))):
            found = arrange(model, mode, there, (chance.choice(profiles),))
            there += found.placed if found else ()
        for profile in reversed(profiles) if full else ():
            while found := arrange(model, mode, there, (profile,)):
                there += found.placed
        slices = []
        for place, item in enumerate(there):
            key = f"run/{name}-{index}-{place}" if full or chance.random() < 0.7 else None
            slices.append(PlacedSlice(profile=item.profile, start=item.start, used=bool(key), pod=key))
            if key:
                workload = {"limits": {_resource(item.profile, mode): "1", "cpu": "1"}}
                bound.append(_pod(chance, key, workload, node=name, phase="Running"))
        placed[index] = tuple(slices)
    announced: dict[str, int] = {}
    for item in (item for slices in placed.values() for item in slices):
        announced[_resource(item.profile, mode)] = announced.get(_resource(item.profile, mode), 0) + 1
    number = int(name[1:])
    node = make_node(
        name,
        product,
        count=BOARDS,
        mode=mode,
        labels={"pool": f"pool-{number % 7}", "topology.kubernetes.io/zone": f"zone-{number % 3}"},
        annotations={**write_inventory(inventory), **write_status(placed, "")},
        resources={"cpu": "128", "memory": "1Ti", **{resource: str(count) for resource, count in announced.items()}},
        taints=[{"key": "team", "value": "research", "effect": "NoSchedule"}] if number % 10 == 0 else [],
    )
    return view_node(node), bound


def _workload(chance: random.Random) -> dict:
    """Return what pods of one workload ask for."""
    _, mode, profiles = chance.choice(KINDS)
    count = chance.choice((2, 3, 4)) if mode == names.MIG and chance.random() < 0.1 else 1
    fields: dict = {
        "limits": {
            _resource(chance.choice(profiles), mode): str(count),
            "cpu": chance.choice(("500m", "1", "2", "4", "8")),
            "memory": chance.choice(("2Gi", "8Gi", "16Gi", "48Gi")),
        },
        "priority": chance.choice((0, 0, 0, 100)),
    }
    if chance.random() < 0.3:
        fields["nodeSelector"] = {"topology.kubernetes.io/zone": chance.choice(("zone-0", "zone-1", "zone-2"))}
    if chance.random() < 0.2:
        pools = [f"pool-{chance.randrange(7)}" for _ in range(2)]
        term = {"matchExpressions": [{"key": "pool", "operator": chance.choice(("In", "NotIn")), "values": pools}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        fields["affinity"] = {"nodeAffinity": required}
    if chance.random() < 0.2:
        fields["tolerations"] = [{"key": "team", "operator": "Exists"}]
    return fields


def _resource(profile: str, mode: str) -> str:
    return f"{names.MIG_RESOURCE if mode == names.MIG else names.MPS_RESOURCE}{profile}"


def _pod(chance: random.Random, key: str, workload: dict, **fields: object) -> PodView:
    created = f"2026-03-02T{chance.randrange(24):02}:{chance.randrange(60):02}:00Z"
    return view_pod(make_pod(key, uid=f"uid-{key}", created=created, **workload, **fields))


def _timed(do: Callable[[], object]) -> float:
    """Return the processor seconds of something."""
    started = time.process_time()
    do()
    return time.process_time() - started


def _most_mib() -> float:
    """Return the most memory that this process has held."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024
