"""A board that is to leave MPS, by its label or because its node is not ours any more (pain P06): over NVML and real daemons.

Nobody holds a slice: it goes, with the daemon and the compute mode. A pod holds one: all stays as it is until that has ended.
"""

import pynvml
import pytest

from policies import names
from reconciler.agent.driver import device_id
from reconciler.agent.pace import SETTLE_S
from reconciler.agent.report import report_given_up
from reconciler.agent.retreat import retreat
from tests.agent.fixed.node import FixedNode
from tests.agent.hardware import NvmlHardware
from tests.agent.world import World, layout
from tests.builders import A30, A100, H100
from tests.mps.standin import Node
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc

TWELVE = "nvidia.com/gpu-12gb"
DEFAULT, EXCLUSIVE = pynvml.NVML_COMPUTEMODE_DEFAULT, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
NOT_OURS = "the node has no label nos.nebuly.com/gpu-partitioning any more: its boards are not ours to cut"
SWITCH = "MIG mode is off; stop what runs on it, run nvidia-smi -i 0 -mig 1 and reset it"


class Leaving(FixedNode):
    """A node whose slices go without an order: as those of a fixed layout, never under a pod, and told long enough before."""

    def __init__(self, node, **fields):
        self.daemons = node
        super().__init__(mode=names.MPS, **fields)
        self.order({0: layout("6gb", "12gb")})
        self.finish()
        (self.board,) = self.uuids

    def _assert_allowed(self, board, item):
        if self.read().order:
            World._assert_allowed(self, board, item)
            return
        device = device_id(board, item)
        assert device not in self._kubelet.allocated(), "destroyed under a pod"
        assert device not in self._kubelet.allocatable(), "destroyed while offered"
        assert self.now - self.told_at.get(device, self.now) >= SETTLE_S, "destroyed before it had got about"

    def settle(self):
        """Run passes until nothing more comes of them."""
        self.run()
        self.now += SETTLE_S
        self.run()

    def compute_mode(self):
        return pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(self.board))

    def switch_mig(self, *, on):
        """Do what the condition tells a person: `nvidia-smi -mig`, and the reset."""
        pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByUUID(self.board), int(on))
        self._hardware.machine.reboot()

    def left(self):
        """Return what is left of MPS: slices, whether a daemon runs, the compute mode."""
        return self.driver.slices(self.board), self.daemons.pid(self.board) is not None, self.compute_mode()


GONE = ((), False, DEFAULT)


@pytest.fixture
def make():
    """Return a function that makes a node in MPS mode, with slices of 6 and 12 GB on its board."""
    nodes = []

    def make(product):
        nodes.append(Node())

        class Hardware(NvmlHardware):
            def daemons(self):
                if nodes[-1].supervisors:
                    nodes[-1].supervisors[-1].leave()
                return nodes[-1].supervisor()

        patched.setattr(World, "hardware", Hardware)
        return Leaving(nodes[-1], product=product)

    with pytest.MonkeyPatch.context() as patched:
        NvmlHardware.install(patched)
        yield make
    NvmlHardware.leave()
    for node in nodes:
        node.end()


@pytest.mark.parametrize("product", [A100, A30])
def test_a_board_that_waits_for_a_person_gives_up_mps_by_itself(make, product):
    """The leader plans nothing for a board with a fault, so nobody else would take its free slices away."""
    world = make(product)
    assert world.left()[1:] == (True, EXCLUSIVE)
    world.label(PARTITIONING_LABEL=names.MIG)
    world.settle()
    assert (world.left(), world.allocatable(), world.reported()) == (GONE, {}, [])
    assert world.condition() == ("False", "BoardFailed", f"GPU 0 ({world.board}): {SWITCH}")
    assert (world.inventory().fixed, world.inventory().profiles != ()) == (False, True), "it is nobody's fixed layout"
    world.switch_mig(on=True)
    world.run()
    assert (world.left(), world.condition()) == (GONE, ("True", "BoardsReady", ""))


def test_a_pod_keeps_its_slice_and_the_daemon_until_it_ends(make):
    world = make(A100)
    world.bind("team-a/train", TWELVE)
    world.run()
    pid = world.daemons.pid(world.board)
    world.label(PARTITIONING_LABEL=names.MIG)
    world.settle()
    assert (world.daemons.pid(world.board), world.compute_mode()) == (pid, EXCLUSIVE)
    assert (world.reported(), world.allocatable()) == (["12gb team-a/train"], {TWELVE: 1}), "it still serves who has it"
    waits = f"GPU 0 ({world.board}): waits for the pods that hold 12gb to end"
    assert world.condition() == ("False", "BoardFailed", f"GPU 0 ({world.board}): {SWITCH}; {waits}")
    world.restart()
    world.run()
    assert world.daemons.pid(world.board) == pid
    world.end("team-a/train")
    world.settle()
    assert world.left() == GONE


def test_a_daemon_that_a_person_has_ended_for_the_reset_is_not_started_again(make):
    """Not even by the next agent, and not while a pod still has its slice."""
    world = make(A100)
    world.bind("team-a/train", TWELVE)
    world.label(PARTITIONING_LABEL=names.MIG)
    world.settle()
    world.daemons.kill(world.board)
    world.daemons.until(
        lambda: "is not started again: the board is to leave MPS" in (world.driver.boards()[0].fault or "")
    )
    world.run()
    world.restart()
    world.run()
    assert world.daemons.pid(world.board) is None
    world.switch_mig(on=True)
    world.run()
    assert (world.left(), world.condition()) == (GONE, ("True", "BoardsReady", ""))


def test_a_label_that_is_set_back_gives_the_daemon_back(make):
    world = make(A100)
    world.bind("team-a/train", TWELVE)
    world.label(PARTITIONING_LABEL=names.MIG)
    world.settle()
    killed = world.daemons.kill(world.board)
    world.label(PARTITIONING_LABEL=names.MPS)

    def served():
        world.run()
        # Until its end has been noticed, all looks well.
        return world.daemons.pid(world.board) not in {None, killed} and world.condition()[0] == "True"

    world.daemons.until(served)
    assert world.allocatable() == {TWELVE: 1}


@pytest.mark.parametrize("product", [A100, H100])
def test_the_next_agent_ends_what_is_left_of_mps_on_a_board_in_mig_mode(make, product):
    """The agent before it has ended in between, and a person has switched MIG mode on."""
    world = make(product)
    world.label(PARTITIONING_LABEL=names.MIG)
    world.switch_mig(on=True)
    assert world.daemons.pid(world.board)
    world.restart()
    world.run()
    assert (world.left(), world.condition()) == (GONE, ("True", "BoardsReady", ""))


def test_a_daemon_that_cannot_serve_keeps_no_board_in_mps(make):
    """The reason for it says `label the node mig`: so that must help."""
    world = make(H100)
    world.order({0: ()}, plan="2")
    world.finish()
    world.daemons.break_by("faulty")
    world.daemons.until(lambda: world.driver.boards()[0].fault)
    world.label(PARTITIONING_LABEL=names.MIG)
    world.run()
    assert (world.left(), world.inventory().mig) == (GONE, True)


@pytest.mark.parametrize("product", [A100, H100])
def test_what_was_set_of_a_node_is_undone_when_it_loses_its_label(make, product):
    """The DaemonSet takes the agent away then: what it leaves behind, nobody ends."""
    world = make(product)
    world.label(PARTITIONING_LABEL=None)
    world.settle()
    assert (world.left(), world.allocatable(), world.read().reported) == (GONE, {}, {})
    assert world.condition() == ("False", "NotPartitioned", NOT_OURS)


def test_a_pod_on_a_node_that_has_lost_its_label_keeps_its_slice_until_it_ends(make):
    world = make(A100)
    world.bind("team-a/train", TWELVE)
    world.run()
    pid = world.daemons.pid(world.board)
    world.label(PARTITIONING_LABEL=None)
    world.settle()
    assert (world.daemons.pid(world.board), world.reported()) == (pid, ["12gb team-a/train"])
    waits = f"GPU 0 ({world.board}): waits for the pods that hold 12gb to end"
    assert world.condition() == ("False", "NotPartitioned", f"{NOT_OURS}; {waits}")
    (left,) = retreat(world.driver, world._kubelet, world.read())
    assert world.daemons.pid(world.board) == pid, "nor at the end of the agent"
    assert left == (
        f"GPU 0 ({world.board}): pods hold it, so its MPS control daemon still serves them, and nobody ends it: give the node its "
        "label back, drain these pods, and take the label away again"
    )
    said = report_given_up(world.read(), (left,), world.now)["status"]
    assert said["conditions"][0]["message"] == f"{NOT_OURS}; {left}"
    assert said["allocatable"] == {TWELVE: "0"}
    world.end("team-a/train")
    world.settle()
    assert world.left() == GONE


def test_an_agent_that_ends_on_a_node_without_its_label_leaves_nothing_of_mps(make):
    """It is told to end at the same moment as that the label is gone, so it may not have come to a pass."""
    world = make(A100)
    world.now += SETTLE_S
    world._assert_allowed = lambda *_: None
    assert retreat(world.driver, world._kubelet, world.read()) == ()
    assert world.left() == GONE


@pytest.mark.parametrize("form", ["{}", "{}::1"], ids=["board", "replica"])
def test_an_agent_that_ends_leaves_the_daemon_to_a_pod_that_has_the_board_from_another_plugin(make, monkeypatch, form):
    world = make(A100)
    device = form.format(world.board)
    monkeypatch.setattr(world._kubelet, "allocated", lambda: {device: "team-a/old"})
    before = world.left()
    (left,) = retreat(world.driver, world._kubelet, world.read())
    assert left.startswith(f"GPU 0 ({world.board}): pods hold it")
    assert world.left() == before
    assert before[1:] == (True, EXCLUSIVE)
