"""Where agent, allocatable and bound pods do not say alike what is held: the least is given away."""

import pytest

from policies.annotations import Placement
from policies.settle import settle
from policies.supply import survey
from tests.policies.cluster import bound, cluster, free, gated, node, used

THREE = "nvidia.com/mig-3g.20gb"
TWOS = [free("2g.10gb", 0), free("2g.10gb", 2)]


def held_by(key, profile, start):
    return used(profile, start) | {"pod": key}


def told(decision):
    return [(waiting.pod, waiting.message) for waiting in decision.waiting]


def test_a_slice_that_is_reported_as_used_is_given_to_nobody_whoever_holds_it():
    """A board is cut for the pod, and only that: it is not released onto the slice as well."""
    decision = settle(cluster([node(placements={"0": [*TWOS, used("3g.20gb", 4)]})], [gated("w/a", "3g.20gb")]))
    assert decision.ungate == ()
    assert [layout.target for layout in decision.layouts] == [{0: (Placement("3g.20gb", 0), Placement("3g.20gb", 4))}]


def test_a_slice_whose_holder_is_no_more_is_waited_for():
    """The pod has it as soon as the agent says so, and no board is cut for it meanwhile."""
    one = node(placements={"0": [*TWOS, held_by("w/gone", "3g.20gb", 4)]})
    decision = settle(cluster([one], [gated("w/a", "3g.20gb")]))
    assert (decision.ungate, decision.layouts) == ((), ())
    assert told(decision) == [
        ("w/a", "needs 3g.20gb; node n1 has it when its agent reports that its last holder has ended")
    ]


@pytest.mark.parametrize(
    ("slices", "announced", "running", "given"),
    [
        pytest.param([free("3g.20gb", 0), free("3g.20gb", 4)], 1, [], 1, id="A07-fewer-announced"),
        pytest.param([free("3g.20gb", 0)], 2, [], 1, id="A07-more-announced"),
        pytest.param([used("3g.20gb", 0), free("3g.20gb", 4)], 2, [], 1, id="used-by-the-agents-word"),
        pytest.param([used("3g.20gb", 0), free("3g.20gb", 4)], 1, [], 0, id="used-and-fewer-announced"),
        pytest.param([free("3g.20gb", 0), free("3g.20gb", 4)], 2, ["w/x"], 1, id="bound-and-not-shown"),
        pytest.param([used("3g.20gb", 0), free("3g.20gb", 4)], 2, ["w/x"], 1, id="bound-and-shown-without-its-name"),
        pytest.param([held_by("w/x", "3g.20gb", 0), free("3g.20gb", 4)], 2, ["w/x"], 1, id="bound-and-shown"),
        pytest.param([held_by("w/gone", "3g.20gb", 0), free("3g.20gb", 4)], 2, ["w/x"], 0, id="bound-and-another-gone"),
    ],
)
def test_of_agent_allocatable_and_pods_the_least_is_given_away(slices, announced, running, given):
    one = node(placements={"0": slices}, resources={THREE: str(announced)})
    view = cluster([one], [bound(key, "n1", "3g.20gb") for key in running])
    assert survey(view.nodes[0], view.pods).grantable.get("3g.20gb", 0) == given
