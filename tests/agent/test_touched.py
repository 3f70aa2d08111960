"""Which boards an order touches, by what the mock NVML was asked to change on each (pain A10)."""

import pytest

from policies import names
from tests.agent.world import World, layout
from tests.builders import H100
from tests.nvml.library import needs_gcc

pytestmark = [needs_gcc, pytest.mark.usefixtures("nvml")]

CREATE_GPU, CREATE_COMPUTE = "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"
DESTROY_COMPUTE, DESTROY_GPU = "nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"
SET_MODE = "nvmlDeviceSetMigMode"


def changes(world):
    """Return which changes were asked for since `record`, by the index of the board."""
    return [(function, world.uuids.index(board)) for function, board in world._hardware.machine.changes()]


def record(world):
    world._hardware.machine.record()
    return world


def test_only_boards_whose_layout_is_to_differ_are_touched():
    """GPU 0 is busy and stays as the order has it, GPU 1 gets other slices, GPU 2 is not named, GPU 3 is as ordered."""
    cut = {0: [("3g.20gb", 0)], 1: [("3g.20gb", 0)], 2: [("7g.40gb", 0)], 3: [("7g.40gb", 0)]}
    world = record(World(cut, count=4, pods=[("team-a/busy", "nvidia.com/mig-3g.20gb")]))
    busy = next(index for index in (0, 1) if world.holder(index, "3g.20gb", 0))
    other = 1 - busy
    world.order({busy: layout(("3g.20gb", 0)), other: layout(("2g.10gb", 0)), 3: layout(("7g.40gb", 0))})
    world.finish()
    assert world.dealt_with
    assert changes(world) == [
        (DESTROY_COMPUTE, other),
        (DESTROY_GPU, other),
        (CREATE_GPU, other),
        (CREATE_COMPUTE, other),
    ]


def test_what_stays_on_a_board_is_not_touched_either():
    """One slice of four is replaced."""
    world = record(World({0: [("1g.5gb", 0), ("1g.5gb", 1), ("2g.10gb", 2), ("3g.20gb", 4)]}))
    world.order({0: layout(("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2), ("3g.20gb", 4))})
    world.finish()
    assert changes(world) == [(DESTROY_COMPUTE, 0), (DESTROY_GPU, 0), (CREATE_GPU, 0), (CREATE_COMPUTE, 0)]


def test_a_mode_is_changed_only_where_it_is_off_and_nothing_is_cut_by_that():
    world = World({1: ["20gb"]}, product=H100, count=2, mode=names.MPS)
    record(world)
    world.node["metadata"]["labels"][names.PARTITIONING_LABEL] = names.MIG
    world.run()
    assert changes(world)[-1] == (SET_MODE, 0)
    assert {board for _, board in changes(world)} == {0}, "GPU 1 still has a share of MPS"
    assert not {CREATE_GPU, DESTROY_GPU} & {function for function, _ in changes(world)}


def test_a_settled_node_is_not_touched_however_often_it_is_looked_at():
    world = record(World({0: [("3g.20gb", 0)]}, count=2))
    for _ in range(3):
        world.restart()
        world.run()
    assert changes(world) == []


def test_after_a_reboot_boards_that_had_nothing_are_not_touched():
    world = World({1: [("3g.20gb", 4)]}, count=3)
    world.reboot()
    record(world)
    world.run()
    assert changes(world) == [(CREATE_GPU, 1), (CREATE_COMPUTE, 1)]
