"""`optimality`: of the pods that are refused, how many could have been served; slices that go though they need not.

Random clusters of all models, partly in use, against an integer program (tests.policies.ilp): single boards, clusters
that are searched to the end, and clusters of up to 12 nodes and 60 boards, where the planner does not try everything.
"""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.bench.figures import Figure
from tests.policies.demands import key, random_case, single_board, walk
from tests.policies.ilp import UndecidedError, fewest_destroyed, wrongly_refused
from tests.policies.test_optimality import destroyed

SINGLE, SMALL, LARGE = 1500, 400, 130
FIRST = 1000  # seed; those of `make test` are others
PROCESSES = 2


def run() -> Iterator[Figure]:
    """Count over all seeds."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        single = sum(pool.map(_single, range(FIRST, FIRST + SINGLE), chunksize=50), Counter())
        small = sum(pool.map(_small, range(FIRST, FIRST + SMALL), chunksize=20), Counter())
        large = sum(pool.map(_large, range(FIRST, FIRST + LARGE), chunksize=2), Counter())
    everything = single + small + large
    print(f"refused: {single['refused']} on single boards, {small['refused']} in small and {large['refused']} in large")
    print(f"clusters; questions without an answer in time: {everything['undecided']}")
    yield Figure("planner.refused.servable", _percent(everything), "%", "<=", 1)
    yield Figure("planner.refused.servable.single", _percent(single), "%", "<=", 0)
    yield Figure("planner.refused.servable.small", _percent(small), "%", "<=", 1)
    yield Figure("planner.refused.servable.large", _percent(large), "%", "<=", 1)
    yield Figure("planner.destroyed.needlessly", single["needlessly"], "slices", "<=", 0)


def _percent(counts: Counter[str]) -> float:
    return 100 * counts["wrong"] / counts["refused"]


def _single(seed: int) -> Counter[str]:
    nodes, asked = single_board(random.Random(seed))
    found = walk(nodes, asked)
    served = [ask for number, ask in enumerate(asked) if key(number) in found.guests]
    counts = _refusals(nodes, asked, found)
    counts["needlessly"] = destroyed(found) - (fewest_destroyed(nodes, served) or 0)
    return counts


def _small(seed: int) -> Counter[str]:
    return _cluster(random.Random(seed), 3, 3)


def _large(seed: int) -> Counter[str]:
    return _cluster(random.Random(seed), 12, 6)


def _cluster(chance: random.Random, nodes: int, boards: int) -> Counter[str]:
    case = random_case(chance, chance.randint(1, nodes), boards)
    return _refusals(*case, walk(*case))


def _refusals(nodes, asked, found) -> Counter[str]:
    try:
        refused, wrong = wrongly_refused(nodes, asked, found)
    except UndecidedError:
        return Counter(undecided=1)
    return Counter(refused=refused, wrong=len(wrong))
