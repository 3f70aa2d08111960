"""Orders that stay undone: what a node says of its last plan may be anything."""

import pytest

from policies import names
from policies.settle import settle
from tests.policies.cluster import cluster, gated, node


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param("9" * 400, id="more than a float can hold"),
        pytest.param("9" * 5000, id="more than Python reads"),
        pytest.param("9796076207440", id="in 270 years"),
        pytest.param("somebody's", id="no number"),
    ],
)
def test_an_order_that_no_leader_has_given_ends_no_decision_and_is_not_waited_for(plan):
    """One node that bears nonsense must not disturb the pods of others."""
    order = {names.SPEC_PLACEMENTS: '{"0":[{"profile":"3g.20gb","start":4}]}', names.SPEC_PLAN: plan}
    odd, other = node("n1", annotations=order), node("n2", placements={"0": []})
    decision = settle(cluster([odd, other], [gated("a/waits", "3g.20gb")], now=1_772_442_000.0))
    assert [layout.node for layout in decision.layouts] == ["n2"]
