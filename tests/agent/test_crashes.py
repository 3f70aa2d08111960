"""Killed at any boundary and started again, the agent comes to the same end; nothing leaks, nobody is disturbed.

Pains A03, P10 and P14, and the promise of design section 6: resumable at any point.
"""

import pytest

from policies import names
from tests.agent.world import Killed, World, layout
from tests.builders import T4

MIG_1G = "nvidia.com/mig-1g.5gb"
MIG_4G = "nvidia.com/mig-4g.20gb"


def a_used_4g_beside_an_idle_2g(**options):
    """P10: the 2g becomes two 1g while the 4g beside it is busy; board 1 is cut from nothing, board 2 is not named."""
    world = World(
        {0: [("4g.20gb", 0), ("2g.10gb", 4)], 2: [("3g.20gb", 0)]},
        count=3,
        pods=[("team-a/busy", MIG_4G)],
        **options,
    )
    world.order({0: layout(("4g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5)), 1: layout(("3g.20gb", 0), ("3g.20gb", 4))})
    return world


def mps_slices_of_which_one_is_used(**options):
    """Two idle 5 GB slices give way to one of 10 GB beside a used one."""
    world = World(
        {0: ["5gb", "5gb", "5gb"]}, product=T4, mode=names.MPS, pods=[("team-a/busy", "nvidia.com/gpu-5gb")], **options
    )
    world.order({0: layout("5gb", "10gb")})
    return world


STORIES = [
    pytest.param(
        a_used_4g_beside_an_idle_2g,
        {
            0: layout(("4g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5)),
            1: layout(("3g.20gb", 0), ("3g.20gb", 4)),
            2: layout(("3g.20gb", 0)),
        },
        {MIG_4G: 1, MIG_1G: 2, "nvidia.com/mig-3g.20gb": 3},
        id="P10-mig",
    ),
    pytest.param(
        mps_slices_of_which_one_is_used,
        {0: layout("10gb", "5gb")},
        {"nvidia.com/gpu-5gb": 1, "nvidia.com/gpu-10gb": 1},
        id="mps",
    ),
]


def boundaries(story):
    """Return how many calls an agent makes that nobody kills, from the moment at which the order is there."""
    world = story()
    world.calls = 0
    world.finish()
    return world.calls


@pytest.mark.parametrize("after", [World.restart, World.reboot], ids=["killed", "without-power"])
@pytest.mark.parametrize("forgetful", [False, True], ids=["kubelet-remembers", "kubelet-drops-the-plugin"])
@pytest.mark.parametrize("delay_s", [0.0, 1.0], ids=["at-once", "after-1s"])
@pytest.mark.parametrize(("story", "layouts", "allocatable"), STORIES)
def test_wherever_the_agent_is_killed_the_end_is_the_same(story, layouts, allocatable, delay_s, forgetful, after):
    total = boundaries(story)
    assert total >= 8, "withdraw, report, destroy, create, announce, report"
    for boundary in range(total + 1):
        world = story(delay_s=delay_s, forgetful=forgetful)
        held = world._kubelet.allocated()
        world.calls, world.kills = 0, {boundary}
        world.finish(after=after)
        assert {index: world.layout(index) for index in layouts} == layouts, f"killed at {boundary}"
        assert not any(world.driver.orphans(uuid) for uuid in world.uuids), f"leaked, killed at {boundary}"
        assert world._kubelet.allocated() == held, f"disturbed, killed at {boundary}"
        assert world.allocatable() == allocatable, f"killed at {boundary}"
        assert world.dealt_with
        assert world.condition()[0] == "True"


def test_the_table_kills_indeed():
    """The twin of the table above: without a restart nothing would be finished."""
    world = a_used_4g_beside_an_idle_2g()
    world.calls, world.kills = 0, {1}
    with pytest.raises(Killed):
        world.act()
    assert not world.dealt_with
