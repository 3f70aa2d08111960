"""The scheduler of the simulation."""

import pytest

from console.simulation.scheduler import choose, usage
from policies.view import view_node, view_pod
from tests.builders import make_node, make_pod

SLICE = "nvidia.com/mig-1g.5gb"


def nodes(*made):
    return {node.name: node for node in map(view_node, made)}


def pod(name="p", **fields):
    fields.setdefault("limits", {"cpu": "1", SLICE: "1"})
    return view_pod(make_pod(f"a/{name}", **fields))


def node(name, slices=1, resources=None, **fields):
    return make_node(name, resources=resources or ({SLICE: str(slices)} if slices else {}), **fields)


def test_the_node_that_was_planned_is_taken_then_the_first_by_name():
    seen = nodes(node("b"), node("a"), node("c"))
    assert choose(pod(), seen, {}, "c") == ("c", "")
    assert choose(pod(), seen, {}, "") == ("a", "")
    assert choose(pod(), seen, {}, "gone") == ("a", "")


def test_what_bound_pods_take_is_gone():
    seen = nodes(node("a"), node("b"))
    assert choose(pod(), seen, usage([pod("other", node="a")]), "a") == ("b", "")


@pytest.mark.parametrize(
    ("made", "wanted", "why"),
    [
        pytest.param(node("n1", slices=0), {}, "not enough nvidia.com/mig-1g.5gb", id="no slice"),
        pytest.param(node("n1"), {"limits": {"cpu": "65", SLICE: "1"}}, "not enough cpu", id="no cpu"),
        pytest.param(node("n1", resources={SLICE: "1", "pods": "0"}), {}, "not enough pods", id="too many pods"),
        pytest.param(node("n1", ready=False), {}, "not ready", id="not ready"),
        pytest.param(node("n1", cordoned=True), {}, "cordoned", id="cordoned"),
        pytest.param(node("n1"), {"nodeSelector": {"zone": "a"}}, "not selected", id="selector"),
        pytest.param(node("n1", taints=[{"key": "spot", "effect": "NoSchedule"}]), {}, "tainted", id="taint"),
    ],
)
def test_a_pod_that_fits_nowhere_says_why(made, wanted, why):
    assert choose(pod(**wanted), nodes(made), {}, "") == ("", f"1 of 1 nodes: {why}")


def test_reasons_are_counted_over_the_nodes():
    seen = nodes(node("a", ready=False), node("b", slices=0), node("c", slices=0))
    assert choose(pod(), seen, {}, "")[1] == "2 of 3 nodes: not enough nvidia.com/mig-1g.5gb; 1 of 3 nodes: not ready"
    assert choose(pod(), {}, {}, "") == ("", "no nodes")
