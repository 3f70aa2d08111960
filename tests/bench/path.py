"""`path`: from a pod's creation to its running, with a board cut anew for each, on the sandbox.

One A100-40, zero-cost simulated hardware. The pods come one after another and ask in turn for profiles that cannot
stay beside each other, so each of them waits for a slice to be withdrawn, destroyed and made.
"""

import itertools
import time
from collections.abc import Iterator

from console.sandbox.lifecycle import Sandbox
from console.sandbox.watching import PodWatch
from tests.bench.figures import Figure, percentile

PODS = 100
WARM_UP = 5
PROFILES = ("4g.20gb", "7g.40gb", "3g.20gb", "1g.10gb")
WAIT_S = 30.0


def run() -> Iterator[Figure]:
    """Measure PODS pods after a few that warm everything up."""
    with Sandbox.start({"a100-40": 1}) as sandbox, PodWatch(sandbox, "default") as pods:
        times = [
            _one(pods, f"bench-{number}", profile)
            for number, profile in zip(range(WARM_UP + PODS), itertools.cycle(PROFILES), strict=False)
        ][WARM_UP:]
    yield Figure("path.median", percentile(times, 0.5) * 1000, "ms", "<=", 300)
    yield Figure("path.p99", percentile(times, 0.99) * 1000, "ms", "<=", 1000)


def _one(pods: PodWatch, name: str, profile: str) -> float:
    """Return the seconds from the creation of a pod to its running; it is gone afterwards."""
    started = time.monotonic()
    pods.create(
        {
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.k8s.io/pause:3.10",
                        "resources": {"limits": {f"nvidia.com/mig-{profile}": "1"}},
                    }
                ],
            },
        }
    )
    pods.wait(name, lambda pod: pod is not None and pod.running, WAIT_S)
    took = time.monotonic() - started
    pods.delete(name)
    pods.wait(name, lambda pod: pod is None, WAIT_S)
    return took
