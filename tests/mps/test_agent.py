"""The agent of a node in MPS mode: NVML calls to the mock, and control daemons that are processes."""

import pytest

from policies import names
from reconciler.agent.driver import NoPermission
from reconciler.agent.simulated.driver import SWITCH_MPS
from tests.agent.hardware import NvmlHardware
from tests.agent.world import World, layout
from tests.builders import H100, T4
from tests.mps.standin import Node
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc

TEN, SIX = "nvidia.com/gpu-10gb", "nvidia.com/gpu-6gb"


@pytest.fixture
def make():
    """Return a function that makes a node with its agent, and what its daemons are run by."""
    nodes = []

    def make(machine, **site):
        nodes.append(Node(**site))

        class Hardware(NvmlHardware):
            def daemons(self):
                if nodes[-1].supervisors:
                    nodes[-1].supervisors[-1].leave()
                return nodes[-1].supervisor()

        patched.setattr(World, "hardware", Hardware)
        return World(mode=names.MPS, **machine), nodes[-1]

    with pytest.MonkeyPatch.context() as patched:
        NvmlHardware.install(patched)
        yield make
    NvmlHardware.leave()
    for node in nodes:
        node.end()


def cut(world, layouts, plan="1"):
    world.order(layouts, plan=plan)
    world.finish()


def passes(world, node, until):
    """Run a pass whenever the daemons have news, until the node says what is waited for."""

    def ask():
        world.run()
        return until()

    node.until(ask)


def test_a_node_labelled_for_mps_has_a_daemon_per_board_and_serves_what_is_ordered(make):
    world, node = make({"product": T4, "count": 2})
    assert world.condition() == ("True", "BoardsReady", "")
    cut(world, {0: layout("10gb", "6gb")})
    assert world.allocatable() == {TEN: 1, SIX: 1}
    assert [node.ask(uuid, "limits") for uuid in world.uuids] == ["9600M 9600M", "960M 960M"]


def test_devices_of_a_board_whose_daemon_cannot_serve_are_not_offered_and_those_of_others_are(make):
    """A19, A21: with the reason in the node's condition."""
    world, node = make({"product": T4, "count": 2})
    cut(world, {0: layout("10gb"), 1: layout("6gb")})
    node.break_by("dies")
    node.kill(world.uuids[0])
    passes(world, node, lambda: "as soon as it is started" in world.condition()[2])
    assert world.allocatable() == {SIX: 1}
    assert world.condition() == (
        "False",
        "BoardFailed",
        f"GPU 0 ({world.uuids[0]}): its MPS control daemon ends as soon as it is started: Failed to start: invalid argument",
    )
    assert "as soon as" in world.inventory(0).fault, "so that the leader plans nothing for it"
    assert world.inventory(1).fault is None
    node.break_by()
    passes(world, node, lambda: world.condition()[0] == "True")
    assert world.allocatable() == {TEN: 1, SIX: 1}


def test_an_agent_that_is_started_anew_finds_its_daemons_and_disturbs_nobody(make):
    world, node = make({"product": T4})
    cut(world, {0: layout("10gb")})
    world.bind("team-a/train", TEN)
    world.run()
    pid, before = node.pid(world.uuids[0]), len(world.patches)
    with node.attach(world.uuids[0]) as program:
        assert program.recv(99) == b"ACTIVE\n"
        world.restart()
        world.run()
        assert node.pid(world.uuids[0]) == pid
        program.setblocking(False)  # noqa: FBT003
        with pytest.raises(BlockingIOError):
            program.recv(1)
    assert len(world.patches) == before, "nothing has changed for anybody, not even for a moment"
    assert world.reported() == ["10gb team-a/train"]


def test_without_the_program_nothing_is_offered_and_one_reason_is_given(make):
    """A21: what was promised before stays, and is not served."""
    world, _ = make({"product": T4, "slices": {0: ["10gb"]}}, program="nvidia-cuda-mps-control-of-nobody")
    world.run()
    assert world.allocatable() == {}
    status, reason, message = world.condition()
    assert (status, reason) == ("False", "BoardFailed")
    assert "there is no nvidia-cuda-mps-control-of-nobody here" in message
    assert world.reported() == ["10gb free"]


def test_a_board_leaves_mps_when_its_last_slice_has_gone(make):
    """ADR 20: the label says mig; what is left serves until it is cut."""
    world, node = make({"product": H100})
    cut(world, {0: layout("10gb")})
    (board,) = world.uuids
    world.node["metadata"]["labels"][names.PARTITIONING_LABEL] = names.MIG
    world.run()
    assert (world.allocatable(), world.inventory().mig) == ({TEN: 1}, False)
    assert node.pid(board)
    cut(world, {0: ()}, plan="2")
    assert (world.allocatable(), world.inventory().mig) == ({}, True)
    assert node.pid(board) is None


def test_a_board_that_cannot_be_closed_to_others_offers_nothing_until_it_can(make):
    """Its slices are there, and its daemon may even run: without the compute mode programs get past both."""
    world, _ = make({"product": T4, "slices": {0: ["10gb"]}})
    assert world.allocatable() == {TEN: 1}
    world.faults[SWITCH_MPS] = NoPermission("set the compute mode of GPU 0: Insufficient Permissions")
    world.restart()
    world.act()
    world.act()
    assert world.allocatable() == {}
    assert world.condition() == (
        "False",
        "BoardFailed",
        f"GPU 0 ({world.uuids[0]}): set the compute mode of GPU 0: Insufficient Permissions",
    )
    world.faults.clear()
    world.now += 60.0
    world.run()
    assert world.allocatable() == {TEN: 1}
