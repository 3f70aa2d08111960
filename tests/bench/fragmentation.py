"""`fragmentation`: pods come and go on a cluster that is nearly full; who waits how long, and how often boards are cut.

Poisson arrivals, log-normal durations, all seven profiles of the A100; the same pods for every way of choosing boards:

- `planner`: ours, all who wait planned together, by placement.
- `counts`: first fit by counts, as nos does: smaller slices first, the first board for which a table of sets of profiles
  has one with what is used and what is asked; its free slices are destroyed, the driver chooses places, and up to 20
  orders of creation are tried. The table is the whole one, with +me and double memory, and not nos's own.
- `best-fit`: the fullest board that has a place, the lowest start; free slices in the way are destroyed.

Cutting takes no time here, though it does in life: that is why it is counted. Nobody is held back for an older pod that
does not fit yet, in any of the three ways.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, permutations
from statistics import mean

from msgspec.structs import replace

from policies.annotations import PlacedSlice
from policies.plan import plan
from policies.supply import survey
from policies.view import view_node, view_pod
from tests.bench.figures import Figure
from tests.builders import A100
from tests.policies.cluster import gated, node
from tests.policies.facts import SEVEN, lies_legally, maximal_sets, name_of

NODES, BOARDS = 2, 8
PODS = 900
MEAN_MIN, SIGMA = 60.0, 1.0  # of durations, and of their logarithm
LOADS = (0.5, 0.7, 0.85, 0.95)
SEEDS = tuple(range(1, 7))
# Mostly small slices, as shared clusters report for notebooks and inference; the rest is training.
MIX = {"1g": 30, "1g+me": 4, "1gD": 12, "2g": 22, "3g": 16, "4g": 10, "7g": 6}
ORDERS = 20  # of creation that nos tries
WHAT = ("served", "waiting", "recuts")

Slice = tuple[str, int]
"""A kind of profile and its start."""


@dataclass(eq=False)
class Board:
    """Slices that pods hold, and those that are free."""

    used: dict[str, Slice] = field(default_factory=dict)
    free: list[Slice] = field(default_factory=list)


@dataclass
class Cluster:
    """All boards, those of a node side by side, and how many free slices have been destroyed."""

    boards: list[Board] = field(default_factory=lambda: [Board() for _ in range(NODES * BOARDS)])
    destroyed: int = 0


@dataclass(frozen=True)
class Pod:
    """When it comes, how long it runs once it is served (minutes), and what it asks for."""

    key: str
    kind: str
    comes: float
    runs: float


Policy = Callable[[Cluster, list[Pod]], set[str]]
"""Serves pods that wait, in their order, as far as it can; returns the keys of those that it has served."""


@dataclass(frozen=True)
class Outcome:
    """Share of pods that were served, mean minutes of waiting, free slices destroyed for each hundred pods."""

    served: float
    waiting: float
    recuts: float


def run() -> Iterator[Figure]:
    """Simulate all loads and seeds, print a table, and compare what they come to on average."""
    cases = [(name, load, seed) for load in LOADS for name in POLICIES for seed in SEEDS]
    with ProcessPoolExecutor(2) as pool:
        outcomes = dict(zip(cases, pool.map(_simulated, cases), strict=True))
    print(f"{'load':>5} {'policy':>9} {'served %':>9} {'waiting min':>12} {'recuts/100 pods':>16}")
    averages: dict[tuple[str, float], Outcome] = {}
    for load in LOADS:
        for name in POLICIES:
            each = [outcomes[name, load, seed] for seed in SEEDS]
            one = Outcome(*(mean(getattr(o, what) for o in each) for what in WHAT))
            averages[name, load] = one
            print(f"{load:5} {name:>9} {100 * one.served:9.1f} {one.waiting:12.1f} {one.recuts:16.1f}")
    overall = {
        name: Outcome(*(mean(getattr(averages[name, load], what) for load in LOADS) for what in WHAT))
        for name in POLICIES
    }
    ours, counts, best_fit = (overall[name] for name in ("planner", "counts", "best-fit"))
    yield Figure("fragmentation.waiting", ours.waiting, "min", "<=", min(counts.waiting, best_fit.waiting))
    yield Figure("fragmentation.waiting.counts", counts.waiting / ours.waiting, "times-ours", ">=", 1.2)
    yield Figure("fragmentation.recuts", ours.recuts, "per-100-pods", "<=", min(counts.recuts, best_fit.recuts))
    # Best fit is in the table: from it the planner differs by few pods, those who still wait when the last has come.
    yield Figure("fragmentation.served", 100 * ours.served, "%", ">=", 100 * counts.served)


def arrivals(chance: random.Random, load: float) -> list[Pod]:
    """Return pods that together ask for a share of all boards: of compute slices or memory, whichever is more."""
    kinds, weights = list(MIX), list(MIX.values())
    share = {kind: max(SEVEN[kind][0] / 7, SEVEN[kind][1] / 8) for kind in kinds}
    mean_share = sum(share[kind] * weight for kind, weight in MIX.items()) / sum(weights)
    per_minute = load * NODES * BOARDS / (mean_share * MEAN_MIN)
    now, pods = 0.0, []
    for number in range(PODS):
        now += chance.expovariate(per_minute)
        runs = MEAN_MIN * chance.lognormvariate(-SIGMA * SIGMA / 2, SIGMA)
        pods.append(Pod(f"p/{number:04}", chance.choices(kinds, weights)[0], now, runs))
    return pods


def simulate(policy: Policy, pods: list[Pod]) -> Outcome:
    """Let pods come and go; who is not served when the last has come has waited until then."""
    cluster, waiting, ends = Cluster(), list[Pod](), list[tuple[float, str]]()
    waited: list[float] = []

    def serve(now: float, candidates: list[Pod]) -> None:
        done = policy(cluster, candidates)
        for pod in candidates:
            if pod.key in done:
                waiting.remove(pod)
                waited.append(now - pod.comes)
                heapq.heappush(ends, (now + pod.runs, pod.key))

    for pod in pods:
        while ends and ends[0][0] <= pod.comes:
            now, key = heapq.heappop(ends)
            board = next(board for board in cluster.boards if key in board.used)
            board.free.append(board.used.pop(key))
            if waiting:
                serve(now, list(waiting))
        waiting.append(pod)
        # Who waits already cannot be served: nothing has been freed since.
        serve(pod.comes, [pod])
    served = len(waited)
    waited += [pods[-1].comes - pod.comes for pod in waiting]
    return Outcome(served / len(pods), mean(waited), 100 * cluster.destroyed / served)


# ----------------------------------------------------------------------------------------------------------------------


def by_planner(cluster: Cluster, pods: list[Pod]) -> set[str]:
    """Ours."""
    sites = [_site(cluster, number) for number in range(NODES)]
    found = plan([_view_of(pod.key, pod.kind) for pod in pods], sites)
    for site, states in enumerate(found.seating.states):
        for plot, state in enumerate(states):
            if state.target is not None:
                board = cluster.boards[site * BOARDS + plot]
                target = Counter((_KINDS[item.profile], item.start or 0) for item in state.target)
                cluster.destroyed += len(set(board.free) - set(target))
                board.free = list((target - Counter(board.used.values())).elements())
    for key, ((index, placement),) in found.placements().items():
        board = cluster.boards[found.guests[key].home.site * BOARDS + index]
        board.used[key] = item = _KINDS[placement.profile], placement.start or 0
        board.free.remove(item)
    return set(found.guests)


def by_counts(cluster: Cluster, pods: list[Pod]) -> set[str]:
    """First fit by counts: what nos does, with a complete table."""
    done = set()
    for pod in sorted(pods, key=lambda pod: (SEVEN[pod.kind][1], SEVEN[pod.kind][0])):
        board = next((board for board in cluster.boards if any(kind == pod.kind for kind, _ in board.free)), None)
        board = board or next((board for board in cluster.boards if _recut_by_counts(cluster, board, pod.kind)), None)
        if board:
            _give(board, pod)
            done.add(pod.key)
    return done


def _recut_by_counts(cluster: Cluster, board: Board, kind: str) -> bool:
    """Cut a board by the first set of the table that has what is used and a slice more; return whether that is there then."""
    free = _set_by_counts(frozenset(board.used.values()), kind)
    if free is None:
        return False
    cluster.destroyed += len(board.free)
    board.free = list(free)
    return any(each == kind for each, _ in free)


@cache
def _set_by_counts(used: frozenset[Slice], kind: str) -> tuple[Slice, ...] | None:
    """Return what the driver makes of the first set that has what is used and a slice more; None if no set has."""
    counts = Counter(kind for kind, _ in used)
    chosen = next((one for one in _TABLE if counts + Counter([kind]) <= Counter(one)), None)
    if chosen is None:
        return None
    missing, best = sorted((Counter(chosen) - counts).elements()), list[Slice]()
    for order in islice(permutations(missing), ORDERS):
        made: list[Slice] = []
        for each in order:
            start = _lowest_start(used.union(made), each)
            if start is not None:
                made.append((each, start))
        best = max(best, made, key=len)
    return tuple(best)


@cache
def _lowest_start(there: frozenset[Slice], kind: str) -> int | None:
    return next((start for start in SEVEN[kind][2] if lies_legally("SEVEN", [*there, (kind, start)])), None)


def by_best_fit(cluster: Cluster, pods: list[Pod]) -> set[str]:
    """The fullest board that has a place, a free slice if there is one."""
    done = set()
    for pod in pods:
        boards = sorted(cluster.boards, key=lambda board: -sum(SEVEN[kind][1] for kind, _ in board.used.values()))
        ready = [board for board in boards if any(kind == pod.kind for kind, _ in board.free)]
        board = next(iter(ready), None) or next((one for one in boards if _make(cluster, one, pod.kind)), None)
        if board:
            _give(board, pod)
            done.add(pod.key)
    return done


def _make(cluster: Cluster, board: Board, kind: str) -> bool:
    """Make a slice at the lowest start beside those that are used; return whether that is possible."""
    used = frozenset(board.used.values())
    start = _lowest_start(used, kind)
    if start is None:
        return False
    kept: list[Slice] = []
    for item in board.free:
        if lies_legally("SEVEN", [*used, (kind, start), *kept, item]):
            kept.append(item)
    cluster.destroyed += len(board.free) - len(kept)
    board.free = [*kept, (kind, start)]
    return True


POLICIES: dict[str, Policy] = {"planner": by_planner, "counts": by_counts, "best-fit": by_best_fit}


# ----------------------------------------------------------------------------------------------------------------------

_KINDS = {name_of(A100, kind): kind for kind in SEVEN}
# Fewest slices first, as nos's documents say.
_TABLE = sorted(maximal_sets("SEVEN"), key=lambda one: (len(one), one))
_NODES = [view_node(node(f"n{number}", count=BOARDS, placements={})) for number in range(NODES)]
_MADE: dict[str, object] = {}


def _simulated(case: tuple[str, float, int]) -> Outcome:
    name, load, seed = case
    return simulate(POLICIES[name], arrivals(random.Random(seed), load))


def _give(board: Board, pod: Pod) -> None:
    item = next(item for item in board.free if item[0] == pod.kind)
    board.free.remove(item)
    board.used[pod.key] = item


def _view_of(key, kind):
    if (key, kind) not in _MADE:
        _MADE[key, kind] = view_pod(gated(key, name_of(A100, kind)))
    return _MADE[key, kind]


def _site(cluster: Cluster, number: int):
    """Return a node as the planner sees it."""
    boards, bound = [], []
    for index, board in enumerate(cluster.boards[number * BOARDS : (number + 1) * BOARDS]):
        slices = [(kind, start, key) for key, (kind, start) in board.used.items()]
        bound += [replace(_view_of(key, kind), node=f"n{number}", gated=False) for kind, _, key in slices]
        slices += [(kind, start, None) for kind, start in board.free]
        placed = [
            PlacedSlice(profile=name_of(A100, kind), start=start, used=key is not None, pod=key)
            for kind, start, key in sorted(slices, key=lambda item: item[1])
        ]
        boards.append(replace(_NODES[number].boards[index], slices=tuple(placed)))
    return survey(replace(_NODES[number], boards=tuple(boards)), bound)
