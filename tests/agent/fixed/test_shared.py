"""Boards that files divide by time or by memory: what they are announced as, and to how many."""

import pytest

from policies import names
from reconciler.agent.driver import InvalidArgument
from tests.agent.fixed.node import FixedNode, mig_parted, sharing
from tests.builders import H100, T4

THREE = "nvidia.com/mig-3g.20gb"
READY = ("True", "BoardsReady", "")
THREES = mig_parted('devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 2}')
FOUR_TURNS = sharing("timeSlicing", "name: nvidia.com/gpu, replicas: 4")


# Turns -----------------------------------------------------------------------------------------------------------------


def test_a_board_is_announced_as_often_as_the_file_says():
    """The row "time-slicing by NVIDIA's plugin": 2 GPUs, 4 replicas."""
    node = FixedNode(product=T4, count=2, mode="timeslicing", plugin=FOUR_TURNS)
    assert node.resources() == {"nvidia.com/gpu": 8}
    node.bind("team-a/notebook", "nvidia.com/gpu")
    node.run()
    assert node.devices("team-a/notebook") == ["gpu/0::0"]
    assert node.reported(0) == ["gpu team-a/notebook", "gpu free", "gpu free", "gpu free"]


def test_pods_that_take_turns_are_spread_since_each_costs_the_others_time():
    node = FixedNode(product=T4, count=2, mode="timeslicing", plugin=FOUR_TURNS)
    for name in ("a", "b", "c"):
        node.bind(f"team-a/{name}", "nvidia.com/gpu")
    node.run()
    free = ["gpu free", "gpu free"]
    assert (node.reported(0), node.reported(1)) == (
        ["gpu team-a/a", "gpu team-a/c", *free],
        ["gpu team-a/b", "gpu free", *free],
    )


@pytest.mark.parametrize(
    ("labels", "count"),
    [pytest.param({}, 8, id="by-default"), pytest.param({names.REPLICAS_LABEL: "10"}, 20, id="label")],
)
def test_without_a_file_boards_are_shared_in_turns_as_the_label_or_the_setting_says(labels, count):
    node = FixedNode(product=T4, count=2, mode="timeslicing", labels=labels)
    assert node.resources() == {"nvidia.com/gpu.shared": count}


def test_turns_are_taken_on_mig_devices():
    plugin = sharing("timeSlicing", "name: nvidia.com/mig-3g.20gb, replicas: 2", strategy="mixed")
    node = FixedNode(mig_parted=THREES, plugin=plugin)
    assert node.resources() == {THREE: 4}
    for name in ("a", "b", "c"):
        node.bind(f"team-a/{name}", THREE)
    node.run()
    assert node.reported() == ["3g.20gb@0 team-a/a", "3g.20gb@0 team-a/c", "3g.20gb@4 team-a/b", "3g.20gb@4 free"]


def test_more_than_one_turn_for_a_container_is_refused_in_nvidias_words():
    plugin = sharing("timeSlicing", "name: nvidia.com/gpu, replicas: 4", failRequestsGreaterThanOne="true")
    node = FixedNode(product=T4, mode="timeslicing", plugin=plugin)
    (uuid,) = node.uuids
    node.fixed.check([f"{uuid}/gpu/0::1"])
    with pytest.raises(InvalidArgument) as caught:
        node.fixed.check([f"{uuid}/gpu/0::1", f"{uuid}/gpu/0::2"])
    assert str(caught.value) == (
        "request for 'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1"
    )


def test_more_than_one_turn_is_given_where_the_file_does_not_forbid_it():
    node = FixedNode(product=T4, mode="timeslicing", plugin=FOUR_TURNS)
    node.fixed.check([f"{node.uuids[0]}/gpu/0::{n}" for n in range(2)])


def test_a_board_stays_whole_until_nobody_takes_turns_on_it_any_more():
    """Nobody new gets a turn, so it comes to an end."""
    node = FixedNode(product=H100, mode="timeslicing", plugin=FOUR_TURNS, pods=[("team-a/notebook", "nvidia.com/gpu")])
    node.label(PARTITIONING_LABEL="mig", PLUGIN_CONFIGS_LABEL=None)
    node.run()
    assert node.resources() == {}
    assert node.reported() == ["gpu team-a/notebook"]
    assert node.condition() == (
        "False",
        "FixedLayoutPending",
        f"GPU 0 ({node.uuids[0]}): waits for the pods that hold gpu to end",
    )
    assert not node.driver.boards()[0].mig
    node.end("team-a/notebook")
    node.run()
    assert node.driver.boards()[0].mig
    assert (node.reported(), node.condition()) == ([], READY)


def test_a_board_is_shared_in_turns_when_its_slices_have_gone():
    node = FixedNode({0: ["4gb", "8gb"]}, product=T4, mode="mps", pods=[("team-a/train", "nvidia.com/gpu-8gb")])
    node.label(PARTITIONING_LABEL="timeslicing")
    node.run()
    assert node.reported() == ["8gb team-a/train"]
    node.end("team-a/train")
    node.run()
    assert node.resources() == {"nvidia.com/gpu.shared": 4}


def test_a_board_in_mig_mode_cannot_be_shared_in_turns_and_says_what_to_do():
    node = FixedNode(plugin=FOUR_TURNS)
    assert node.resources() == {}
    assert node.condition() == (
        "False",
        "BoardFailed",
        f"GPU 0 ({node.uuids[0]}): MIG mode is on; for time-slicing run nvidia-smi -i 0 -mig 0",
    )


# Memory ----------------------------------------------------------------------------------------------------------------


def test_nebulys_file_makes_mps_slices():
    """The row "MPS by nebuly's device-plugin fork"."""
    entry = "name: nvidia.com/gpu, rename: nvidia.com/gpu-4gb, memoryGB: 4, replicas: 2, devices: ['0']"
    node = FixedNode(product=T4, count=2, mode="mps", plugin=sharing("mps", entry))
    assert node.resources() == {"nvidia.com/gpu-4gb": 2}
    assert (node.reported(0), node.reported(1)) == (["4gb free", "4gb free"], [])
    assert (node.inventory(0).fixed, node.inventory(1).fixed) == (True, False)


def test_nvidias_file_divides_the_memory_in_equal_parts_under_the_name_of_a_gpu():
    node = FixedNode(product=T4, mode="mps", plugin=sharing("mps", "name: nvidia.com/gpu, replicas: 4"))
    assert node.resources() == {"nvidia.com/gpu": 4}
    node.bind("team-a/train", "nvidia.com/gpu")
    node.run()
    assert node.devices("team-a/train") == ["4gb/0"]
    (uuid,) = node.uuids
    with pytest.raises(InvalidArgument, match="maximum request size for shared resources is 1"):
        node.fixed.check([f"{uuid}/4gb/0", f"{uuid}/4gb/1"])
