"""A reboot of a node with a fixed layout: what pods hold is made again where it was, the rest as the layout has it."""

from tests.agent.fixed.node import FixedNode, mig_parted, sharing
from tests.agent.world import layout

ONE = "nvidia.com/mig-1g.5gb"
TWO_ONES = mig_parted('devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 2}')


def test_the_slices_of_pods_are_made_again_where_they_were():
    """By itself the layout would have its slices elsewhere."""
    node = FixedNode({0: [("1g.5gb", 2)]}, pods=[("team-a/x", ONE)], mig_parted=TWO_ONES)
    before = node.layout(0)
    node.reboot()
    node.run()
    assert ("1g.5gb@2 team-a/x", node.layout(0)) == (node.reported()[0], before)
    assert FixedNode(mig_parted=TWO_ONES).layout(0) != before, "else this would show nothing"


def test_turns_on_a_slice_are_pods_that_hold_it():
    turns = sharing("timeSlicing", f"name: {ONE}, replicas: 2", strategy="mixed")
    node = FixedNode({0: [("1g.5gb", 2)]}, pods=[("team-a/x", ONE + ".shared")], plugin=turns)
    node.reboot()
    node.run()
    assert node.layout(0) == layout(("1g.5gb", 2))
