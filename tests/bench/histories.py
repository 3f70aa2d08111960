"""`histories`: the laws of quota over ten thousand histories, half of whole GPUs, half of boards that are cut.

Each history is held against all laws at every decision (tests/policies/laws.py). They are the same ones each time: what
fails is named with its number, and `History.some(random.Random(number))` is that history again.
"""

import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.bench.figures import Figure
from tests.policies.history_boards import Boards
from tests.policies.history_gpus import WholeGpus

HISTORIES = 10_000
KINDS = (WholeGpus, Boards)
WITHIN_S = 600
CHUNK = 50


def run() -> Iterator[Figure]:
    """Play all histories, on all processors."""
    started = time.monotonic()
    played = failed = 0
    with ProcessPoolExecutor() as pool:
        for why in pool.map(_fails, range(HISTORIES), chunksize=CHUNK):
            played += 1
            if why:
                failed += 1
                print(why, file=sys.stderr)
    yield Figure("histories.played", played, "histories", ">=", HISTORIES)
    yield Figure("histories.failed", failed, "histories", "<=", 0)
    yield Figure("histories.rate", played / (time.monotonic() - started), "histories/s", ">=", HISTORIES / WITHIN_S)


def _fails(number: int) -> str:
    """Return why a history does not keep the laws; empty if it does."""
    kind = KINDS[number % len(KINDS)]
    try:
        kind.play(*kind.some(random.Random(number)))
    except Exception as error:  # noqa: BLE001 - a decision that fails breaks every law
        return f"history {number} of {kind.__name__}: {type(error).__name__}: {error}"
    return ""
