"""Orders that stay undone: what a node says of its last plan may be anything."""

import pytest
from msgspec.structs import replace

from policies import names
from policies.settle import settle
from policies.view import view_pod
from tests.policies.cluster import cluster, free, gated, node, used
from tests.policies.teams import quota


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


def test_who_others_have_gone_for_keeps_its_claim_where_an_agent_does_not_answer():
    """Q20: else another takes the board as soon as the agent is back, and they went in vain. A clock set back is enough for that."""
    later = "1772460000000"  # five hours on: the leader's clock has been set back since it gave the order
    order = {names.SPEC_PLACEMENTS: '{"0":[{"profile":"4g.20gb","start":0}]}', names.SPEC_PLAN: later}
    claim = replace(
        view_pod(gated("a/claim", "4g.20gb", created="2026-03-02T09:00:01Z")), waiting=(names.EVICTING, "-")
    )
    older = view_pod(gated("z/older", "2g.10gb", created="2026-03-02T09:00:00Z"))
    there = node("n1", placements={"0": [free("3g.20gb", 0), used("1g.5gb", 4)]}, annotations=order)
    view = replace(cluster([there], [], now=1_772_442_000.0), pods=(claim, older), quotas=(quota("a"),))
    assert {item.pod: item.reason for item in settle(view).waiting} == {
        "a/claim": names.EVICTING,
        "z/older": names.NO_ROOM,
    }
