"""`fuzz`: 200,000 reviews that nobody would write, of which none may be answered wrongly. See `tests.webhook.fuzz`."""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from policies import names
from tests.bench.figures import Figure
from tests.webhook.fuzz import Fuzzer, faults
from tests.webhook.reviews import CLUSTER

REVIEWS = 200_000
EACH = 5_000  # by one seed; those of `make test` come first among them
PROCESSES = 2


def run() -> Iterator[Figure]:
    """Count reviews with wrong answers, and print the first of each seed that has any."""
    began = time.monotonic()
    with ProcessPoolExecutor(PROCESSES) as pool:
        wrong = sum(pool.map(_wrong, range(REVIEWS // EACH)))
    yield Figure("fuzz.wrong", wrong, "reviews", "<=", 0)
    yield Figure("fuzz.time", time.monotonic() - began, "s", "<=", 480)


def _wrong(seed: int) -> int:
    """Return how many reviews of a seed are answered wrongly."""
    fuzzer, wrong = Fuzzer(seed), 0
    for number in range(EACH):
        call, review, sound = fuzzer.next()
        if found := faults(call, review, CLUSTER, sound=sound, foreign=(names.GPU_SHARED,)):
            wrong += 1
            if wrong == 1:
                print(f"seed {seed}, review {number}: {found}\n{json.dumps(review)}", file=sys.stderr)
    return wrong
