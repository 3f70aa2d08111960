"""A node loses power, or a board is reset: instances are gone, MIG mode stays, UUIDs are new (docs/adr/0023)."""

import pytest
from msgspec.structs import replace

from policies import names
from reconciler.agent.driver import InUse, Slice
from reconciler.agent.simulated.driver import CREATE_GPU_INSTANCE
from tests.agent.world import Killed, World, layout
from tests.builders import A30, H100, T4

MIG_1G, MIG_2G, MIG_3G = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"
CUT = {0: [("4g.20gb", 0), ("2g.10gb", 4), ("1g.5gb", 6)], 1: [("3g.20gb", 4)]}
LAYOUTS = {index: layout(*items) for index, items in CUT.items()}


def cut_and_used(**options):
    return World(CUT, count=3, pods=[("team-a/two", MIG_2G), ("team-a/three", MIG_3G)], **options)


def layouts(world):
    return {index: found for index in range(len(world.uuids)) if (found := world.layout(index))}


def test_what_there_was_is_made_again_where_it_was_and_nothing_is_to_be_told():
    """Free slices too: pods may have been released for them."""
    world = cut_and_used()
    held = world._kubelet.allocated()
    world.patches.clear()
    world.reboot()
    assert layouts(world) == {}
    world.run()
    assert layouts(world) == LAYOUTS
    assert world._kubelet.allocated() == held
    assert world.patches == []


def test_wherever_the_agent_is_killed_meanwhile_the_end_is_the_same():
    """A03."""
    whole = cut_and_used()
    whole.reboot()
    whole.calls = 0
    whole.run()
    assert whole.calls >= 8, "four slices, each of two instances, and the announcement"
    for boundary in range(1, whole.calls + 1):
        world = cut_and_used()
        world.reboot()
        world.calls, world.kills = 0, {boundary}
        with pytest.raises(Killed):
            world.run()
        world.restart()
        world.run()
        assert layouts(world) == LAYOUTS, f"killed at {boundary}"
        assert not any(world.driver.orphans(uuid) for uuid in world.uuids)


def test_boards_that_are_numbered_anew_get_back_what_they_had_and_an_order_goes_to_the_board_that_its_index_means_now():
    """P20: a reboot may change the order in which NVML lists boards; the first is the last then, of three."""
    world = cut_and_used()
    held = world._kubelet.allocated()
    world.reboot(renumbered=True)
    world.uuids.reverse()
    world.run()
    assert layouts(world) == {2: LAYOUTS[0], 1: LAYOUTS[1]}
    assert [world.inventory(index).uuid for index in range(3)] == world.uuids
    assert world.reported(2) == ["4g.20gb@0 free", "2g.10gb@4 team-a/two", "1g.5gb@6 free"]
    assert world.reported(1) == ["3g.20gb@4 team-a/three"]
    assert world._kubelet.allocated() == held
    world.order({0: layout(("7g.40gb", 0))}, {0: ()})
    world.run()
    assert layouts(world) == {0: layout(("7g.40gb", 0)), 2: LAYOUTS[0], 1: LAYOUTS[1]}


def test_what_was_lost_is_made_again_before_an_order_is_carried_out():
    """The order was given while the node was down: to take away the free 1g, and not the 2g that a pod holds."""
    world = cut_and_used()
    world.reboot()
    world.order({0: layout(("4g.20gb", 0), ("2g.10gb", 4))}, {0: LAYOUTS[0]})
    world.finish()
    assert world.dealt_with
    assert layouts(world) == {0: layout(("4g.20gb", 0), ("2g.10gb", 4)), 1: LAYOUTS[1]}


def test_what_had_been_withdrawn_is_not_made_again():
    world = cut_and_used()
    world.order({0: layout(("2g.10gb", 0), ("2g.10gb", 2), ("2g.10gb", 4))})
    world.run()
    assert world.reported() == ["4g.20gb@0 withdrawn", "2g.10gb@4 team-a/two", "1g.5gb@6 withdrawn"]
    world.kills = {world.calls + 4}
    world.reboot()
    with pytest.raises(Killed):
        world.run()
    assert layouts(world)[0] == layout(("2g.10gb", 4))


def test_what_pods_hold_is_made_again_even_if_no_report_tells_of_it():
    """The kubelet's checkpoint outlives a node object that was deleted and registered anew."""
    world = cut_and_used()
    for key in [key for key in world.node["metadata"]["annotations"] if key.startswith(names.PREFIX)]:
        del world.node["metadata"]["annotations"][key]
    world.reboot()
    world.run()
    assert layouts(world) == {0: layout(("2g.10gb", 4)), 1: layout(("3g.20gb", 4))}
    assert world.reported(1) == ["3g.20gb@4 team-a/three"]


def test_the_slice_of_a_pod_that_has_ended_meanwhile_is_free():
    world = cut_and_used()
    world.end("team-a/three")
    world.reboot()
    world.run()
    assert world.reported(1) == ["3g.20gb@4 free"]


def test_mig_mode_that_does_not_outlive_a_reboot_is_switched_on_first():
    """Hopper and later."""
    world = World({0: [("3g.40gb", 0)]}, product=H100, pods=[("team-a/x", "nvidia.com/mig-3g.40gb")])
    world.reboot(mode=True)
    world.run()
    assert world.reported() == ["3g.40gb@0 team-a/x"]
    assert world.condition()[0] == "True"


def test_all_that_has_to_be_done_after_a_reboot_is_done_in_one_pass():
    """MIG mode, what was lost, and what was ordered meanwhile."""
    world = World({0: [("3g.40gb", 0)]}, product=H100, pods=[("team-a/x", "nvidia.com/mig-3g.40gb")])
    world.order({0: layout(("3g.40gb", 0), ("3g.40gb", 4))})
    world.reboot(mode=True)
    world.act()
    assert world.dealt_with
    assert world.reported() == ["3g.40gb@0 team-a/x", "3g.40gb@4 free"]
    assert world.condition()[0] == "True"


def test_shares_by_mps_outlive_a_reboot():
    world = World({0: ["5gb", "5gb"]}, product=T4, mode=names.MPS, pods=[("team-a/x", "nvidia.com/gpu-5gb")])
    world.reboot()
    world.run()
    assert world.reported() == ["5gb team-a/x", "5gb free"]


def test_a_slice_for_which_there_is_no_room_any_more_is_given_up_and_its_pod_is_named(tmp_path):
    """Somebody cut the board by hand before the agent was up: what is there is reported as it is."""
    world = World({0: [("2g.12gb", 0), ("1g.6gb", 2)]}, product=A30, pods=[("ml/x", "nvidia.com/mig-2g.12gb")], state=tmp_path)  # fmt: skip
    (uuid,) = world.uuids
    world.reboot()
    world.driver.create(uuid, Slice("4g.24gb", 0))
    world.run()
    assert world.reported() == ["4g.24gb@0 free"]
    assert world.told == [
        ("ml/x", "DeviceGone", f"its device {uuid}/2g.12gb/0 is not there: GPU 0 has no room for 2g.12gb at 0")
    ]
    world.run()
    assert len(world.told) == 1, "told once"


def test_a_board_that_fails_meanwhile_is_tried_again_and_the_others_go_on(tmp_path):
    """A03, A05: what a pod holds is tried for as long as it holds it; what nobody holds can be cut anew at any time."""
    world = cut_and_used(state=tmp_path)
    world.reboot()
    world.faults[(CREATE_GPU_INSTANCE, world.uuids[0])] = InUse("In use by another client")
    world.act()
    assert layouts(world) == {1: LAYOUTS[1]}
    assert world.told == [
        ("team-a/two", "DeviceGone", f"its device {world.uuids[0]}/2g.10gb/4 is not there: In use by another client")
    ]
    world.faults.clear()
    world.now += 1.0
    world.run()
    assert world.reported(0) == ["2g.10gb@4 team-a/two"]
    assert world.condition()[0] == "True"


def test_slices_stay_with_their_board_whatever_index_the_reboot_gives_it():
    world = cut_and_used()
    entries = {board.uuid: board for board in world.driver.boards()}
    second, first, third = world.uuids
    world.reboot()
    world.uuids = [first, second, third]
    world.driver.boards = lambda: tuple(replace(entries[uuid], index=n) for n, uuid in enumerate(world.uuids))
    world.run()
    assert layouts(world) == {0: LAYOUTS[1], 1: LAYOUTS[0]}
    assert world.reported(0) == ["3g.20gb@4 team-a/three"]
