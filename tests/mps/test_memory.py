"""Memory that pods use by MPS, from real NVML calls to the mock and from files as /proc has them."""

import threading

import pytest

from policies import names
from policies.view import view_pod
from reconciler.agent.driver import DriverError
from reconciler.agent.kubelet import KubeletError
from reconciler.agent.mps.memory import MemoryWatch
from reconciler.agent.nvml import NvmlDriver
from reconciler.agent.processes import Processes
from tests.apiserver.server import PATIENCE_S
from tests.builders import T4, make_pod
from tests.nvml.library import needs_gcc
from tests.nvml.machine import Machine

pytestmark = needs_gcc

A, B = "1b2c3d4e-0a1b-4c2d-8e3f-00000000000a", "1b2c3d4e-0a1b-4c2d-8e3f-00000000000b"


class Kubelet:
    def __init__(self):
        self.held, self.fault = {}, None

    def allocated(self):
        if self.fault:
            raise self.fault
        return self.held


class Node:
    """A node with two T4; pods a and b are bound to it."""

    def __init__(self, directory):
        self.proc = directory / "proc"
        (directory / "machine").mkdir()
        self.machine = Machine(directory / "machine", T4, T4).enter()
        self.kubelet, self.told = Kubelet(), []
        self.pods = [view_pod(make_pod(f"team/{name}", uid=uid, node="n1")) for name, uid in (("a", A), ("b", B))]
        self.watch = MemoryWatch(
            NvmlDriver(),
            self.kubelet,
            Processes(tuple, self.proc),
            lambda: self.pods,
            lambda pod, *said: self.told.append((pod.key, *said)),
        )

    def give(self, holder, board, profile, ordinal=0):
        self.kubelet.held[f"{self.machine.uuids[board]}/{profile}/{ordinal}"] = holder

    def run(self, pid, uid, board, mib):
        """Let a process of a pod use a board."""
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/4711\n")
        self.machine.use_by_mps(self.machine.uuids[board], pid, mib)

    def look(self, *times):
        for now in times:
            self.watch.look(now)
        return self.told


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.machine.leave()


def test_two_processes_that_are_more_than_the_slice_together_are_told_of(node):
    """A02: a slice of 5 GB on a T4 is 4800 MiB; each process keeps to it."""
    node.give("team/a", 0, "5gb")
    node.give("team/b", 0, "10gb")
    node.run(11, A, 0, 4000)
    node.run(12, A, 0, 4000)
    node.run(21, B, 0, 9000)
    assert node.look(0.0, 10.0, 20.0) == []
    message = "it has 8000 MiB on GPU 0, and a slice of 4800 MiB: MPS limits each process by itself"
    assert node.look(30.0, 40.0, 500.0) == [("team/a", names.MEMORY_ABOVE_SLICE, message)]


def test_each_board_and_all_slices_of_a_pod_count(node):
    node.give("team/a", 0, "5gb", 0)
    node.give("team/a", 0, "5gb", 1)
    node.give("team/a", 1, "1gb")
    node.run(11, A, 0, 9600)
    node.run(12, A, 1, 961)
    node.run(13, A, 1, 1)
    assert node.look(0.0, 30.0) == [
        (
            "team/a",
            names.MEMORY_ABOVE_SLICE,
            "it has 962 MiB on GPU 1, and a slice of 960 MiB: MPS limits each process by itself",
        )
    ]


def test_what_is_of_no_pod_and_what_has_ended_counts_for_nobody(node):
    node.give("team/a", 0, "1gb")
    node.run(11, A, 0, 900)
    node.machine.use_by_mps(node.machine.uuids[0], 99, 9000)
    assert node.look(0.0, 30.0) == []


def test_nvml_is_asked_of_boards_only_of_which_pods_hold_mps_slices(node):
    node.give("team/a", 0, "1gb")
    node.kubelet.held["GPU-9/1gb/0"] = node.kubelet.held[f"{node.machine.uuids[1]}/1g.5gb/0"] = "team/b"
    node.machine.fail("nvmlDeviceGetMPSComputeRunningProcesses_v3", 999, node.machine.uuids[1])
    assert node.look(0.0) == []


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        pytest.param(
            lambda node: node.machine.fail("nvmlDeviceGetMPSComputeRunningProcesses_v3", 13),
            DriverError,
            id="old-driver",
        ),
        pytest.param(lambda node: setattr(node.kubelet, "fault", KubeletError("away")), KubeletError, id="no-kubelet"),
    ],
)
def test_what_is_not_known_is_no_look(node, spoil, error):
    """Nobody is forgotten, and nobody accused."""
    node.give("team/a", 0, "1gb")
    node.run(11, A, 0, 5000)
    node.look(0.0)
    spoil(node)
    with pytest.raises(error):
        node.look(15.0)
    node.machine.mend()
    node.kubelet.fault = None
    node.machine.use_by_mps(node.machine.uuids[0], 11, 5000)
    assert len(node.look(30.0)) == 1


def test_it_looks_until_it_is_stopped(node, monkeypatch):
    looked = threading.Event()
    monkeypatch.setattr("reconciler.agent.mps.memory.LOOK_S", 0.001)
    monkeypatch.setattr(node.watch, "look", lambda _now: looked.set())
    node.watch.start()
    assert looked.wait(PATIENCE_S)
    node.watch.stop()
    assert not node.watch._thread.is_alive()
