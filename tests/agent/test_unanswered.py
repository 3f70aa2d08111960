"""A board that does not answer, for a moment or from when the agent starts: what is known of it stays, and cannot serve."""

import json

import pytest

from policies import names
from tests.agent.sockets import SocketKubelet
from tests.agent.world import World, layout
from tests.builders import T4
from tests.nvml.library import needs_gcc
from tests.nvml.machine import LOST, UNKNOWN

pytestmark = [needs_gcc, pytest.mark.usefixtures("nvml")]

THREE, FIVE_GB = "nvidia.com/mig-3g.20gb", "nvidia.com/gpu-5gb"


@pytest.fixture(autouse=True)
def sockets(monkeypatch):
    monkeypatch.setattr(World, "_new_kubelet", lambda world, _announced, allocated: SocketKubelet(world, allocated))
    yield
    SocketKubelet.close_all()


@pytest.fixture
def world(tmp_path):
    """Two boards; of the first a pod holds one of two slices."""
    world = World(
        {0: [("3g.20gb", 0), ("3g.20gb", 4)], 1: [("3g.20gb", 0)]}, count=2, pods=[("team-a/p1", THREE)], state=tmp_path
    )
    world.start_container("team-a/p1")
    world.run()
    return world


def held_board(world):
    """Return index and UUID of the board of which a pod holds a slice."""
    (device,) = world._kubelet.server.holders
    uuid = device.partition("/")[0]
    return world.uuids.index(uuid), uuid


def stands(world):
    """Return all that the node says of what it has, but for faults and for what is on offer."""
    inventory = json.loads(world.annotation(names.INVENTORY))
    return (
        [{key: value for key, value in board.items() if key != "fault"} for board in inventory],
        {index: world.reported(index) for index in range(len(world.uuids))},
        world.read().capacity,
    )


@pytest.mark.parametrize("code", [UNKNOWN, LOST], ids=["unknown", "lost"])
@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGpuInstances",
        "nvmlGpuInstanceGetInfo",
        "nvmlGpuInstanceGetComputeInstances",
    ],
)
def test_when_one_call_fails_on_a_board_its_slices_are_unhealthy_and_not_gone(world, function, code):
    index, uuid = held_board(world)
    before, offered = stands(world), dict(world._kubelet.server.devices[THREE])
    world._hardware.machine.fail(function, code, uuid)
    world.run()
    assert stands(world) == before
    assert world.inventory(index).fault
    assert world.condition()[1] == "BoardFailed"
    assert world._kubelet.server.devices[THREE] == {device: not device.startswith(uuid) for device in offered}
    assert world.allocatable() == {THREE: sum(not device.startswith(uuid) for device in offered)}
    assert world.told == []
    world._hardware.machine.mend()
    world.run()
    assert stands(world) == before
    assert world.allocatable() == {THREE: 3}
    assert world.condition() == ("True", "BoardsReady", "")


def test_a_board_that_does_not_answer_is_asked_again_soon(world):
    world._hardware.machine.fail("nvmlDeviceGetGpuInstances", UNKNOWN, world.uuids[0])
    assert world.act().again_s == 5.0


@pytest.mark.parametrize(
    ("function", "of"),
    [
        pytest.param("nvmlDeviceGetHandleByIndex_v2", "*", id="no-board-tells-its-name"),
        pytest.param("nvmlDeviceGetUUID", 0, id="one-board-does-not-tell-its-name"),
        pytest.param("nvmlDeviceGetMigMode", "*", id="no-board-can-be-described"),
    ],
)
def test_an_agent_that_starts_while_boards_do_not_answer_forgets_nothing(world, function, of):
    before = stands(world)
    world._hardware.machine.fail(function, UNKNOWN, of if of == "*" else world.uuids[of])
    world.restart()
    world.run()
    assert stands(world) == before
    assert all(board.fault for board in world.driver.boards() if of == "*")
    assert world.allocatable() == ({} if of == "*" else {THREE: 1})
    assert world.told == []
    world._hardware.machine.mend()
    world.run()
    assert stands(world) == before
    assert world.allocatable() == {THREE: 3}
    assert world.condition() == ("True", "BoardsReady", "")


def test_shares_stay_while_their_file_cannot_be_read(tmp_path):
    world = World({0: ["5gb", "5gb"]}, product=T4, mode=names.MPS, pods=[("team-a/x", FIVE_GB)], state=tmp_path)
    before, file = stands(world), world._hardware.bins()._file._path
    good = file.read_bytes()
    for restart in (False, True):
        file.write_text('{"x":')
        if restart:
            world.restart()
        world.run()
        assert stands(world) == before
        assert world.allocatable() == {}
        assert "the MPS slices of this node cannot be read from" in world.condition()[2]
        assert world.told == []
        file.write_bytes(good)
        world.run()
        assert stands(world) == before
        assert world.allocatable() == {FIVE_GB: 2}


def test_free_slices_of_a_board_that_was_lost_and_reset_come_back(world):
    """Nobody has withdrawn them: what cannot serve is no less announced (docs/adr/0023)."""
    for uuid in world.uuids:
        world._hardware.machine.lose(uuid)
    world.run()
    index, _ = held_board(world)
    assert sorted(world.reported(index)) == ["3g.20gb@0 team-a/p1", "3g.20gb@4 free"]
    world._hardware.reboot()
    world._hardware.machine.mend()
    world.now += 5.0
    world.run()
    assert world.layout(0) == layout(("3g.20gb", 0), ("3g.20gb", 4))
    assert world.layout(1) == layout(("3g.20gb", 0))
    assert world.allocatable() == {THREE: 3}
