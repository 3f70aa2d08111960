"""Pods that hold slices and boards by devices of other plugins, from before we took the node over: nobody else gets these."""

import pytest

from policies import names
from reconciler.agent.driver import Slice
from tests.agent.sockets import SocketKubelet
from tests.agent.world import World, layout
from tests.builders import H100, T4
from tests.nvml.library import needs_gcc
from tests.nvml.machine import UNKNOWN

pytestmark = [needs_gcc, pytest.mark.usefixtures("nvml")]

ONE, GPU = "nvidia.com/mig-1g.5gb", "nvidia.com/gpu"


@pytest.fixture(autouse=True)
def sockets(monkeypatch):
    monkeypatch.setattr(World, "_new_kubelet", lambda world, _announced, allocated: SocketKubelet(world, allocated))
    yield
    SocketKubelet.close_all()


def hold(world, pod, device, resource):
    """Let a running pod have a device of another plugin, by the kubelet's checkpoint."""
    world.bind(pod, ONE)  # to the world only its name matters
    world._kubelet.server.holders[device] = (pod, resource)


def mig_uuid(world, start):
    return world.driver.device_uuid(world.uuids[0], Slice("1g.5gb", start))


@pytest.mark.parametrize(
    ("resource", "form"),
    [
        pytest.param(ONE, "{}", id="mixed"),
        pytest.param(GPU, "{}", id="single"),
        pytest.param("nvidia.com/mig-1g.5gb.shared", "{}::3", id="replica"),
    ],
)
def test_a_slice_that_a_pod_has_from_another_plugin_is_used_and_nobody_else_gets_it(resource, form):
    world = World({0: [("1g.5gb", 0), ("1g.5gb", 1)]})
    device = form.format(mig_uuid(world, 0))
    hold(world, "team-a/old", device, resource)
    world.run()
    assert world.reported() == ["1g.5gb@0 team-a/old", "1g.5gb@1 free"]
    assert world.allocatable() == {ONE: 1}
    assert world.condition() == (
        "False",
        "AnotherDevicePlugin",
        f"GPU 0 ({world.uuids[0]}): pod team-a/old holds 1g.5gb at 0 as {device}, which another device plugin gave it: "
        "drain this pod",
    )
    world.bind("team-a/new1", ONE)
    world.bind("team-a/new2", ONE)
    world.run()
    assert world.reported() == ["1g.5gb@0 team-a/old", "1g.5gb@1 team-a/new1"]
    assert [key for key, _ in world.rejected] == ["team-a/new2"]


def test_it_is_not_cut():
    world = World({0: [("1g.5gb", 0), ("1g.5gb", 1)]})
    hold(world, "team-a/old", mig_uuid(world, 0), ONE)
    world.run()
    world.order({0: layout(("3g.20gb", 0))})
    world.allow()
    world.run()
    assert world.dealt_with
    assert world.layout(0) == layout(("1g.5gb", 0), ("1g.5gb", 1))


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetUUID"], ids=["silent", "not-even-its-name"])
@pytest.mark.parametrize("again", [False, True], ids=["same-agent", "next-agent"])
def test_it_is_held_while_its_board_does_not_answer_also_for_the_next_agent(function, again):
    """Whose the UUIDs are nobody can tell then: what was reported last does."""
    world = World({0: [("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2)]})
    hold(world, "team-a/old", mig_uuid(world, 1), ONE)
    hold(world, "team-a/other", "MIG-00000009-0000-5000-8000-000000000000", "example.com/other")
    world.run()
    world._hardware.machine.fail(function, UNKNOWN)
    if again:
        world.restart()
    world.run()
    assert world.reported() == ["1g.5gb@0 free", "1g.5gb@1 team-a/old", "1g.5gb@2 free"]
    world.end("team-a/old")
    world.run()
    assert world.reported() == ["1g.5gb@0 free", "1g.5gb@1 free", "1g.5gb@2 free"]


def test_a_board_that_is_held_as_a_whole_is_so_for_the_next_agent_though_it_does_not_tell_its_name():
    world = World({0: [("1g.5gb", 0)]})
    hold(world, "team-a/whole", world.uuids[0], GPU)
    world.run()
    world._hardware.machine.fail("nvmlDeviceGetUUID", UNKNOWN)
    world.restart()
    holds = world.agent._holders.look(world._kubelet.allocated(), world.read())
    assert [(held.holder, held.board, held.item) for held in holds.foreign] == [("team-a/whole", world.uuids[0], None)]


def test_when_its_pod_has_gone_it_is_free():
    world = World({0: [("1g.5gb", 0), ("1g.5gb", 1)]})
    hold(world, "team-a/old", mig_uuid(world, 0), ONE)
    world.run()
    world.end("team-a/old")
    world.run()
    assert world.reported() == ["1g.5gb@0 free", "1g.5gb@1 free"]
    assert world.allocatable() == {ONE: 2}
    assert world.condition() == ("True", "BoardsReady", "")


@pytest.mark.parametrize("form", ["{}", "{}::1", "MIG-{}/1/0"], ids=["board", "replica", "mig-before-r470"])
def test_on_a_board_that_a_pod_has_from_another_plugin_nothing_is_offered_and_nothing_is_cut(form):
    """By the numbers of a MIG device that this driver does not give it is not known which it was: so it may be any."""
    world = World({0: [("1g.5gb", 0)], 1: [("1g.5gb", 0)]}, count=2)
    device = form.format(world.uuids[0])
    hold(world, "team-a/whole", device, GPU)
    world.order({0: layout(("1g.5gb", 0), ("1g.5gb", 1)), 1: layout(("1g.5gb", 0), ("1g.5gb", 1))})
    world.run()
    assert world.layout(0) == layout(("1g.5gb", 0))
    assert world.allocatable() == {ONE: 2}
    said = f"pod team-a/whole holds it as {device}, which another device plugin gave it: drain this pod"
    assert world.condition() == ("False", "BoardFailed", f"GPU 0 ({world.uuids[0]}): {said}")
    assert world.inventory(0).fault == said
    assert world.inventory(1).fault is None


@pytest.mark.parametrize(
    ("product", "mode"), [pytest.param(T4, names.MPS, id="mps"), pytest.param(H100, names.MIG, id="mig-live")]
)
def test_a_board_that_a_pod_has_from_another_plugin_changes_no_mode(product, mode):
    world = World(product=product, mode=names.TIMESLICING)
    hold(world, "team-a/whole", world.uuids[0], GPU)
    world.node["metadata"]["labels"][names.PARTITIONING_LABEL] = mode
    before = world.driver.boards()[0].mig
    world._hardware.machine.record()
    world.run()
    assert world._hardware.machine.changes() == []
    assert (world.driver.mps_enabled(world.uuids[0]), world.driver.boards()[0].mig) == (False, before)
    assert world.allocatable() == {}
    world.end("team-a/whole")
    world.run()
    assert world.condition() == ("True", "BoardsReady", "")


def test_devices_that_name_none_of_our_boards_are_nobodys_business():
    world = World({0: [("1g.5gb", 0)]})
    for device in ("rack/nic/0", "eth0", "MIG-00000009-0000-5000-8000-000000000000", "GPU-of-another-node"):
        hold(world, f"team-a/{device.partition('/')[0].lower()}", device, "example.com/other")
    world.run()
    assert world.reported() == ["1g.5gb@0 free"]
    assert world.condition() == ("True", "BoardsReady", "")


def test_while_another_plugins_pod_holds_a_board_its_slices_stay_and_come_back_after_a_reset():
    """Not offered is not withdrawn: who believed so lost them for good."""
    world = World({0: [("1g.5gb", 0), ("1g.5gb", 1)]})
    world.run()
    world.bind("team-a/ours", ONE)
    world.run()
    hold(world, "team-a/whole", world.uuids[0], GPU)
    world.run()
    assert world.reported() == ["1g.5gb@0 team-a/ours", "1g.5gb@1 free"]
    assert (str(world.read().capacity[ONE]), world.allocatable()) == ("2", {})
    world.end("team-a/whole")
    world.reboot()
    world.run()
    assert [item.partition(" ")[0] for item in world.reported()] == ["1g.5gb@0", "1g.5gb@1"]
    assert world.layout(0) == layout(("1g.5gb", 0), ("1g.5gb", 1))
