"""`planner.e2e`: a fleet of 500 nodes with 4,000 boards on the sandbox: many pods at once, then one after another.

The burst: 1,000 pods in the mix of a research cluster, no slice for any of them is there; the time counts from the first
creation until the last one runs. As many pods that ask for no GPU, of which we know nothing, go before: what they take is
what the API server, the scheduler and kwok take on this machine. Then single pods on the cluster as the burst left it;
each needs a slice that is not there, so its board is cut. All processes share the machine with the clients.
"""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from console.sandbox.lifecycle import Sandbox
from console.sandbox.watching import PodWatch
from tests.bench.figures import Figure, percentile

NODES = 500
BURST = 1000
SINGLES = 100
CREATORS = 8
MIX = ("1g.5gb", "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
WAIT_S = 600.0


def run() -> Iterator[Figure]:
    """Measure the burst, then the single pods."""
    chance = random.Random(1)
    with Sandbox.start({"a100-40x8": NODES}) as sandbox, PodWatch(sandbox, "default") as pods:
        plain_s = _burst_s(pods, [_pod(f"plain-{number}", {"cpu": "10m"}) for number in range(BURST)])
        sliced_s = _burst_s(pods, [_pod(f"burst-{number}", _slice(chance)) for number in range(BURST)])
        yield Figure("planner.e2e.burst", sliced_s, "s", "<=", 30)
        yield Figure("planner.e2e.burst.of-plain", sliced_s / plain_s, "x", "<=", 3)
        times = [_single_s(pods, number, chance) for number in range(SINGLES)]
    yield Figure("planner.e2e.median", percentile(times, 0.5) * 1000, "ms", "<=", 300)
    yield Figure("planner.e2e.p99", percentile(times, 0.99) * 1000, "ms", "<=", 1000)


def _burst_s(pods: PodWatch, wanted: list[dict[str, object]]) -> float:
    """Return the seconds from the creation of the first of many pods until all of them run."""
    started = time.monotonic()
    with ThreadPoolExecutor(CREATORS) as creators:
        list(creators.map(pods.create, wanted))
    return max(_ran(pods, pod["metadata"]["name"]) for pod in wanted) - started


def _single_s(pods: PodWatch, number: int, chance: random.Random) -> float:
    """Return the seconds from the creation of one pod to its running."""
    name = f"single-{number}"
    started = time.monotonic()
    pods.create(_pod(name, _slice(chance)))
    return _ran(pods, name) - started


def _ran(pods: PodWatch, name: str) -> float:
    """Return when a pod was first seen running, on the monotonic clock; wait until it is."""
    pods.wait(name, lambda pod: pod is not None and pod.running, WAIT_S)
    return pods.ran[name]


def _slice(chance: random.Random) -> dict[str, str]:
    return {f"nvidia.com/mig-{chance.choice(MIX)}": "1"}


def _pod(name: str, limits: dict[str, str]) -> dict[str, object]:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
