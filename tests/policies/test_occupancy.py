"""Where agent, allocatable and bound pods do not say alike what is held: the least is given away."""

import pytest

from policies import names
from policies.annotations import Placement
from policies.catalogue import by_product
from policies.settle import settle
from policies.supply import overbooking, survey
from policies.view import view_node, view_pod
from tests.builders import make_node
from tests.policies.cluster import bound, cluster, free, gated, node, used

A100_80 = "NVIDIA-A100-80GB-PCIe"
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


# More pods than there can be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "placements",
    [
        pytest.param({"0": [], "1": []}, id="nothing-shown"),
        pytest.param({"0": [used("4g.20gb", 0)], "1": [used("4g.20gb", 0), free("1g.5gb", 6)]}, id="all-shown"),
    ],
)
def test_where_more_pods_are_bound_than_there_can_be_nothing_is_given_on_top(placements):
    """Three pods on 4g, and two boards with room for one each: nobody knows what the third holds."""
    running = [bound(f"w/{name}", "n1", "4g.20gb") for name in "xyz"]
    view = cluster([node(count=2, placements=placements)], [*running, gated("w/a", "1g.5gb")])
    decision = settle(view)
    assert (decision.ungate, decision.layouts) == ((), ())
    assert (
        overbooking(view.nodes[0], running_on(view)) == "pods bound to it need 3 x 4g.20gb, of which its boards hold 2"
    )


def test_others_are_given_what_there_is_as_soon_as_enough_pods_have_ended():
    view = cluster(
        [node(placements={"0": [used("4g.20gb", 0)]})], [bound("w/x", "n1", "4g.20gb"), gated("w/a", "1g.5gb")]
    )
    assert [layout.target for layout in settle(view).layouts] == [
        {0: (Placement("4g.20gb", 0), Placement("1g.5gb", 6))}
    ]
    assert overbooking(view.nodes[0], running_on(view)) == ""


def test_nobody_is_evicted_from_a_crowded_node_whose_end_would_free_nothing():
    """Of three that are bound to one 4g, two have to end before it is anybody's."""
    one = view_node(node(placements={"0": [used("4g.20gb", 0)]}))
    running = [view_pod(bound(f"w/{name}", "n1", "4g.20gb")) for name in "xyz"]
    seen = [
        survey(one, running, leaving=[f"w/{name}" for name in leaving]).plots[0].face for leaving in ("x", "xy", "xyz")
    ]
    assert [(face.rigid, face.fixed, face.open, face.free) for face in seen] == [
        (True, (Placement("4g.20gb", 0),), (), ()),
        (False, (Placement("4g.20gb", 0),), (), ()),
        (False, (), (), (Placement("4g.20gb", 0),)),
    ]


def test_what_an_order_brings_may_hold_pods_that_the_agent_does_not_show_yet():
    order = {names.SPEC_PLACEMENTS: '{"0":[{"profile":"4g.20gb","start":0}]}', names.SPEC_PLAN: "1000"}
    view = cluster(
        [node(placements={"0": [free("7g.40gb", 0)]}, annotations=order)], [bound("w/x", "n1", "4g.20gb")], now=2.0
    )
    assert overbooking(view.nodes[0], running_on(view)) == ""


def test_slices_that_none_of_the_boards_makes_are_another_plugins():
    view = cluster([node(placements={"0": []})], [bound("w/x", "n1", "10gb"), gated("w/a", "1g.5gb")])
    assert overbooking(view.nodes[0], running_on(view)) == ""
    assert [layout.target for layout in settle(view).layouts] == [{0: (Placement("1g.5gb", 6),)}]


def running_on(view):
    return [pod for pod in view.pods if pod.holds]


# Names -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "notes",
    [
        pytest.param({"annotations": {"nos.nebuly.com/status-gpu-0-7g.79gb-used": "1"}}, id="counted"),
        pytest.param({"placements": {"0": [used("7g.79gb", 0)]}}, id="placed"),
        pytest.param({"placements": {"0": [used("7g.80gb", 0)]}}, id="the-pod-alone"),
        pytest.param({}, id="only-the-pod"),
    ],
)
def test_a_profile_by_the_name_of_another_driver_is_the_one_that_the_board_has(notes):
    """P22: nos and its table said 7g.79gb, the driver of an A100-80 says 7g.80gb."""
    one, other = make_node("n1", A100_80, **notes), make_node("n2", A100_80, placements={"0": []})
    view = cluster([one, other], [bound("w/x", "n1", "7g.79gb"), gated("w/a", "1g.10gb")])
    plot = survey(view.nodes[0], running_on(view)).plots[0]
    assert (plot.face.fixed, plot.face.open, plot.face.rigid) == ((Placement("7g.80gb", 0),), (), False)
    assert view.nodes[0].faults == ()
    assert [layout.node for layout in settle(view).layouts] == ["n2"]


@pytest.mark.parametrize(
    ("product", "written", "name"),
    [
        (A100_80, "7g.79gb", "7g.80gb"),
        (A100_80, "7g.80gb", "7g.80gb"),
        (A100_80, "3g.20gb", "3g.20gb"),  # in nos's table for this board too, and a profile of another one
        (A100_80, "5g.25gb", "5g.25gb"),
        (A100_80, "1g.10gb+me", "1g.10gb+me"),
        (A100_80, "10gb", "10gb"),
        ("NVIDIA-GB200", "3g.95gb", "3g.93gb"),
        ("NVIDIA-GB200", "1g.24gb+me", "1g.23gb+me"),
        ("NVIDIA-H100-NVL", "1g.11gb", "1g.12gb"),
        ("NVIDIA-A30", "1g.5gb", "1g.5gb"),
    ],
)
def test_names_of_other_drivers_are_near_and_have_the_same_compute(product, written, name):
    assert by_product(product).known_as(written) == name
