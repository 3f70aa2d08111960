"""`agent`: from a pod's creation to its container's start, with a board cut anew for each, on a real node; and memory.

A real kubelet, containerd and runc (tests/node), and our agent as in production; NVML is the mock, whose calls take no
time. The start is containerd's own word. Memory is the resident set of the agent after all that.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from console.sandbox.progress import Progress
from tests.bench.figures import Figure, percentile
from tests.node.cluster import empty_cluster, find_programs
from tests.node.enclosure import Impossible
from tests.node.gpus import gpu_node
from tests.node.timeline import Pods, recuts

PODS = 40
WARM_UP = 3


def run() -> Iterator[Figure]:
    """Measure PODS pods after a few that warm everything up; nothing where this machine can have no node."""
    with tempfile.TemporaryDirectory() as made:
        trial, directory = Path(made, "trial"), Path(made, "node")
        trial.mkdir()
        directory.mkdir()
        try:
            programs = find_programs(trial, Progress())
        except Impossible as reason:
            print(f"bench agent: not run: {reason}", file=sys.stderr)
            return
        with (
            empty_cluster() as sandbox,
            gpu_node(
                "bench", "NVIDIA-A100-SXM4-40GB", mode="mig", sandbox=sandbox, programs=programs, directory=directory
            ) as gpus,
            Pods(sandbox, "default") as pods,
        ):
            pods.run("stays", limits={"nvidia.com/mig-3g.20gb": "1"})
            times = recuts(pods, gpus, sandbox, WARM_UP + PODS)[WARM_UP:]
            memory = gpus.agent_mib()
    yield Figure("agent.recut.median", percentile(times, 0.5) * 1000, "ms", "<=", 1000)
    yield Figure("agent.recut.p99", percentile(times, 0.99) * 1000, "ms", "<=", 1000)
    yield Figure("agent.memory", memory, "MiB", "<=", 90)
