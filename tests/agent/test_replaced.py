"""Pods that were told of a device which is not there any more, after a reboot or a reset: they are to go (docs/adr/0023)."""

import json

import pytest

from policies import names
from reconciler.agent.grants import Grant
from tests.agent.world import World, layout
from tests.builders import T4
from tests.nvml.library import needs_gcc

pytestmark = [needs_gcc, pytest.mark.usefixtures("nvml")]

MIG_3G = "nvidia.com/mig-3g.20gb"


@pytest.fixture
def world(tmp_path):
    """Two 3g, of which one is held by a pod whose container runs."""
    world = World({0: [("3g.20gb", 0), ("3g.20gb", 4)]}, pods=[("team-a/train", MIG_3G)], state=tmp_path)
    world.start_container("team-a/train")
    world.run()
    return world


def visible(grant):
    return grant.envs["NVIDIA_VISIBLE_DEVICES"]


def stale(world):
    """Return uid of the holder of each slice that was made anew under it."""
    return [item.stale for item in world.read().reported[0] if item.stale]


def named_by_cdi(devices):
    return Grant(cdi_devices=tuple(f"nos.nebuly.com/slice={device.id}" for device in devices))


def test_a_pod_that_was_told_of_a_device_that_has_another_uuid_now_is_reported(world):
    """The kubelet would give the old one to each restart of its container."""
    world.reboot()
    world.run()
    report = json.loads(world.annotation(names.STATUS_PLACEMENTS))
    assert report == {
        "0": [
            {"profile": "3g.20gb", "start": 0, "used": True, "pod": "team-a/train", "stale": "uid-team-a/train"},
            {"profile": "3g.20gb", "start": 4, "used": False},
        ]
    }
    assert world.told == []


def test_when_it_has_gone_the_next_one_is_told_of_the_new_device(world):
    before = visible(world.start_container("team-a/train"))
    world.reboot()
    world.run()
    world.end("team-a/train")
    world.run()
    assert stale(world) == []
    world.bind("team-a/next", MIG_3G)
    world.run()
    assert visible(world.start_container("team-a/next")) != before
    world.run()
    assert stale(world) == []


def test_nobody_has_to_go_whose_device_is_the_same(world):
    world.restart()
    world.run()
    assert stale(world) == []


def test_a_pod_that_was_never_told_of_its_device_does_not_have_to_go(world):
    """Its container had not begun when the node lost power: the kubelet asks for its device when it begins."""
    world.bind("team-a/late", MIG_3G)
    world.run()
    world.reboot()
    world.run()
    assert stale(world) == ["uid-team-a/train"]


def test_with_cdi_pods_go_on(world):
    """The name stays, and what it means is looked up at each start of the container; whatever was told of it before."""
    world.start_container("team-a/train", naming=named_by_cdi)
    world.reboot()
    world.run()
    assert world.layout(0) == layout(("3g.20gb", 0), ("3g.20gb", 4))
    assert stale(world) == []


def test_a_share_by_mps_keeps_the_uuid_of_its_board(tmp_path):
    world = World({0: ["5gb"]}, product=T4, mode=names.MPS, pods=[("team-a/x", "nvidia.com/gpu-5gb")], state=tmp_path)
    assert visible(world.start_container("team-a/x")) == world.uuids[0]
    world.reboot()
    world.run()
    assert stale(world) == []


def test_a_lost_board_and_what_was_told_of_it_hinder_no_other(tmp_path):
    """Its slices are still the pod's; that they cannot be asked for their UUIDs now proves nothing."""
    world = World({0: [("3g.20gb", 0)]}, count=2, pods=[("team-a/train", MIG_3G)], state=tmp_path)
    world.start_container("team-a/train")
    world.run()
    world._hardware.machine.lose(world.uuids[0])
    world.order({1: layout(("7g.40gb", 0))})
    world.act()
    assert world.condition()[1] == "BoardFailed"
    assert world.reported(0) == ["3g.20gb@0 team-a/train"]
    assert world.reported(1) == ["7g.40gb@0 free"]
    assert stale(world) == []


def test_if_it_cannot_be_read_what_was_told_nobody_has_to_go(world, tmp_path):
    (tmp_path / "handed.json").write_text("{")
    world.reboot()
    world.run()
    assert world.layout(0) == layout(("3g.20gb", 0), ("3g.20gb", 4))
    assert stale(world) == []
