"""The agent as a process, killed (-9) before and after each call that changes something: the real driver, on the mock NVML.

Nothing of it is left but what NVML, the kubelet and the API server have. Pains A03, P10 and P14.
"""

import json
import shutil
import signal
import subprocess
import sys

import pytest

from policies import names
from policies.annotations import write_spec
from policies.catalogue import by_product
from reconciler.agent.driver import Slice, device_id
from reconciler.agent.node import read_node
from reconciler.agent.nvml import NvmlDriver
from tests.agent.lives import replace
from tests.agent.world import layout
from tests.builders import A100, raw_node
from tests.nvml.library import library, needs_gcc
from tests.nvml.machine import Machine

pytestmark = needs_gcc

UUIDS = ["GPU-a", "GPU-b", "GPU-c"]
BEFORE = {0: layout(("4g.20gb", 0), ("2g.10gb", 4)), 1: (), 2: layout(("3g.20gb", 0))}
TARGET = {0: layout(("4g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5)), 1: layout(("3g.20gb", 0), ("3g.20gb", 4))}
IDS = {profile.name: profile.id for profile in by_product(A100).profiles}
BUSY = Slice("4g.20gb", 0)  # of the first board; a pod holds it, and a process runs in it
FILES = ("state", "node.json", "kubelet.json", "control")


class Node:
    """A node of three boards that has been ordered to cut two of them anew; agents come and go."""

    def __init__(self, directory):
        self.directory = directory
        self.machine = Machine(directory, A100, A100, A100, uuids=UUIDS).enter()
        command = [sys.executable, "-m", "tests.agent.lives", directory, library()]
        self._process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        held = {device_id(UUIDS[0], BUSY): "team-a/busy"}
        replace(directory / "kubelet.json", {"devices": {}, "allocated": held})
        node = raw_node()
        node["metadata"] |= {"uid": "uid-node", "annotations": write_spec(BEFORE, dict.fromkeys(BEFORE, ()), "1")}
        replace(directory / "node.json", node)
        assert self.live()[0] == 0
        self.machine.hold(UUIDS[0], self.instances()[0][IDS[BUSY.profile], BUSY.start], 4711)
        self.annotate(write_spec(TARGET, {index: BEFORE[index] for index in TARGET}, "2"))
        for name in FILES:
            shutil.copy(directory / name, directory / f"{name}.first")

    def again(self):
        """Go back to where the order has been given."""
        for name in FILES:
            shutil.copy(self.directory / f"{name}.first", self.directory / name)

    def live(self, end=0):
        """Let an agent live until it has nothing to do, or is killed at a boundary; return how it ended, and how many there were."""
        print(end, file=self._process.stdin, flush=True)
        status, passed = self._process.stdout.readline().split()
        return int(status), int(passed)

    def finish(self, end=0):
        """Let agents and leader come to the end of the plan; return how many boundaries there were, and how many died."""
        total = deaths = 0
        for _ in range(10):
            status, passed = self.live(max(0, end - total))
            total += passed
            if status == -signal.SIGKILL:
                deaths += 1
                end = 0
            else:
                assert status == 0
                if not self.lead():
                    return total, deaths
        raise AssertionError("the plan does not come to an end")

    def lead(self):
        """Allow the cut, as the leader does when no pod can claim what is withdrawn."""
        node = self.read()
        if node.order is None or node.order.cut:
            return False
        self.annotate({names.SPEC_CUT: node.order.plan})
        return True

    def annotate(self, annotations):
        node = json.loads((self.directory / "node.json").read_bytes())
        node["metadata"]["annotations"] |= annotations
        replace(self.directory / "node.json", node)

    def read(self):
        return read_node((self.directory / "node.json").read_bytes())

    def instances(self):
        """Return the GPU instances of each board as NVML has them, complete or not: (profile's id, start) -> number."""
        return [self.machine.numbers(uuid) for uuid in UUIDS]

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self.machine.leave()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = Node(tmp_path_factory.mktemp("node"))
    yield node
    node.close()


def test_wherever_its_process_is_killed_the_end_is_the_same(node):
    busy = NvmlDriver().device_uuid(UUIDS[0], BUSY)
    total, _ = node.finish()
    assert total == 28, "2 instances go, 8 come, 2 announcements and 2 reports, each with two sides"
    wanted = {**BEFORE, **TARGET}
    for end in range(1, total + 1):
        node.again()
        _, deaths = node.finish(end)
        assert deaths == 1
        seen = node.read()
        assert seen.annotations[names.STATUS_PLAN] == "2", f"killed at {end}"
        for index, instances in enumerate(node.instances()):
            places = {(IDS[item.profile], item.start) for item in wanted[index]}
            assert set(instances) == places, f"missing or leaked, killed at {end}"
            assert {item.placement for item in seen.reported[index]} == set(wanted[index]), f"killed at {end}"
        assert NvmlDriver().device_uuid(UUIDS[0], BUSY) == busy, f"disturbed, killed at {end}"
        assert {name: int(count) for name, count in seen.allocatable.items() if int(count)} == {
            "nvidia.com/mig-4g.20gb": 1,
            "nvidia.com/mig-1g.5gb": 2,
            "nvidia.com/mig-3g.20gb": 3,
        }, f"killed at {end}"
