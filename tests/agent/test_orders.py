"""What counts as an order of the leader."""

import pytest

from policies import names
from tests.agent.world import World


@pytest.mark.parametrize(
    ("annotations", "cut"),
    [
        pytest.param({names.SPEC_PLAN: "", names.SPEC_CUT: ""}, None, id="empty"),
        pytest.param({names.SPEC_CUT: ""}, None, id="without-a-plan"),
        pytest.param({names.SPEC_PLAN: "2"}, False, id="not-allowed"),
        pytest.param({names.SPEC_PLAN: "2", names.SPEC_CUT: "1"}, False, id="another-was-allowed"),
        pytest.param({names.SPEC_PLAN: "2", names.SPEC_CUT: "2"}, True, id="allowed"),
    ],
)
def test_only_a_plan_with_an_id_is_one_and_is_cut_only_when_that_is_allowed(annotations, cut):
    world = World()
    world.annotate({names.STATUS_PLAN: "1", names.SPEC_PLACEMENTS: "{}", **annotations})
    order = world.read().order
    assert (order and order.cut) is cut
