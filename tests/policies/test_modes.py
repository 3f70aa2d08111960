"""A board changes its mode when a person changes the node's label, and then only when nobody is left on it (pain P06)."""

import random

import pytest

from policies import names
from policies.annotations import BoardInventory, Placement, write_inventory
from policies.catalogue import by_product
from policies.decision import Layout
from policies.settle import settle
from tests.builders import H100
from tests.policies.cluster import bound, cluster, free, gated, node, play, pod_of, released, slices, used

LIVE = write_inventory(
    [
        BoardInventory(
            index=0,
            uuid="GPU-1",
            model=H100,
            memory_mib=81559,
            profiles=by_product(H100).profiles,
            mig=False,
            switch="live",
        )
    ]
)


def test_slices_left_from_another_mode_are_given_away_too():
    """The node's label says mps now; its MIG slices are still there."""
    left = node("n1", mode="mps", placements={"0": [{"profile": "2g.10gb", "start": 0, "used": False}]},
                resources={"nvidia.com/mig-2g.10gb": "1"})  # fmt: skip
    assert [release.pod for release in settle(cluster([left], [gated("a/one", "2g.10gb")])).ungate] == ["a/one"]


@pytest.mark.parametrize(
    ("left", "pods", "emptied"),
    [
        pytest.param([free("10gb"), free("20gb")], [], True, id="nobody-holds-it"),
        pytest.param([free("10gb"), used("20gb")], [bound("x/a", "n1", "20gb")], False, id="a-pod-holds-some-of-it"),
        pytest.param([free("10gb")], [released("x/a", "10gb")], False, id="a-pod-is-on-its-way-there"),
        pytest.param([free("10gb")], [bound("x/a", "n1", "10gb")], False, id="a-pod-is-bound-that-the-agent-does-not-show"),
        pytest.param([free("10gb")], [gated("x/a", "10gb")], False, id="a-pod-waits-for-it"),
        pytest.param([free("10gb")], [gated("x/a", "10gb", nodeSelector={"zone": "b"})], True, id="a-pod-waits-elsewhere"),
    ],
)  # fmt: skip
def test_a_board_changes_its_mode_only_when_nobody_holds_or_wants_what_is_left(left, pods, emptied):
    """P06: the node's label says mig now, the board can be switched live and still bears MPS slices."""
    decision = settle(cluster([node("n1", H100, placements={"0": left}, annotations=LIVE)], pods))
    existing = tuple(sorted(Placement(item["profile"]) for item in left))
    order = Layout(node="n1", target={0: ()}, basis={0: existing}, destroys=True)
    assert decision.layouts == ((order,) if emptied else ())


def test_a_board_whose_mode_has_changed_serves_pods_of_the_new_mode():
    """P06: what is left goes in two steps like all slices, then the board is cut as usual."""
    view = cluster([node("n1", H100, placements={"0": [free("10gb")]}, annotations=LIVE)], [gated("ml/a", "3g.40gb")])
    view, decision = play(view, random.Random(1))
    assert (pod_of(view, "ml/a").node, decision.waiting) == ("n1", ())
    assert slices(view) == ["0:3g.40gb@4 used"]


def test_an_empty_board_keeps_its_mode_whatever_waits():
    """Design 5: a mode is changed by a person who changes the label."""
    decision = settle(cluster([node("n1", H100)], [gated("ml/a", "10gb")]))
    assert (decision.layouts, [one.reason for one in decision.waiting]) == ((), [names.NO_BOARD])
