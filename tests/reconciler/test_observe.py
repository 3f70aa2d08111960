"""What is kept of pods and nodes, and which of their changes matter."""

import msgspec
import pytest

from policies.budgets import BudgetView
from policies.governing import QuotaView
from policies.view import view_pod
from reconciler.observe import ENDING, MARKED, mark, picture, project_node, project_pod, same_pod
from tests.builders import make_pod, raw_node, raw_pod

GATE = "nos.nebuly.com/admission"


def pod(key="team-a/train", **fields):
    return project_pod(msgspec.json.encode(raw_pod(key, **fields)))


def node(name="n1", **fields):
    return project_node(msgspec.json.encode(raw_node(name, **fields)))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"limits": {"nvidia.com/mig-1g.5gb": "1"}}, id="asks for a slice"),
        pytest.param({"limits": {"nvidia.com/gpu": "1"}, "node": "n1"}, id="has a whole board"),
        pytest.param({"gates": [GATE]}, id="is gated for its quota alone"),
        pytest.param({"limits": {"cpu": "1"}, "labels": {"app": "web"}}, id="a quota of CPU may come to govern it"),
    ],
)
def test_a_pod_that_has_not_ended_is_kept_whole(fields):
    assert pod(**fields) == view_pod(make_pod(**fields))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_not_kept(phase):
    """R08; Q21: it uses nothing, whatever finalizer keeps it there."""
    assert pod(limits={"nvidia.com/mig-1g.5gb": "1"}, node="n1", phase=phase) is None


def test_what_many_pods_have_in_common_is_held_once():
    """R08: 20,000 pods, few kinds of requests and labels."""
    one, other = (pod(key, limits={"cpu": "2"}, labels={"app": "web"}) for key in ("a/1", "a/2"))
    assert one.request is other.request
    assert one.labels is other.labels


def test_a_pod_that_cannot_be_read_is_a_fault_of_decoding():
    """The informer then keeps its last readable state, logs it, and goes on with the others."""
    with pytest.raises(msgspec.DecodeError, match="is not a quantity"):
        pod(limits={"nvidia.com/gpu": "lots"})


def test_of_other_peoples_pods_only_those_on_nodes_of_ours_are_in_the_picture():
    nodes = [node("ours"), node("foreign", mode="")]
    pods = [
        pod("a/on-ours", limits={"cpu": "1"}, node="ours"),
        pod("a/elsewhere", limits={"cpu": "1"}, node="foreign"),
        pod("a/static-mig", limits={"nvidia.com/mig-1g.5gb": "1"}, node="foreign"),
    ]
    seen = picture(nodes, pods, 7.0)
    assert [item.key for item in seen.view.pods] == ["a/on-ours", "a/static-mig"]
    assert [item.name for item in seen.view.nodes] == ["ours", "foreign"]
    assert seen.view.now == 7.0


def quota(namespace="governed"):
    return QuotaView(kind="ElasticQuota", namespace=namespace, name="quota", namespaces=(namespace,))


def test_with_a_quota_its_pods_and_the_room_on_all_nodes_are_in_the_picture():
    nodes = [node("ours"), node("foreign", mode="")]
    pods = [
        pod("governed/waits", limits={"cpu": "1"}),
        pod("a/waits", limits={"cpu": "1"}),
        pod("a/elsewhere", limits={"cpu": "1"}, node="foreign"),
    ]
    budgets = [BudgetView(namespace="governed", name="b"), BudgetView(namespace="a", name="b")]
    seen = picture(nodes, pods, 7.0, quotas=[quota()], budgets=budgets)
    assert [item.key for item in seen.view.pods] == ["governed/waits", "a/elsewhere"]
    assert [item.key for item in seen.view.budgets] == ["governed/b"]
    assert seen.view.quotas == (quota(),)
    assert list(seen.governed.by_namespace) == ["governed"]


@pytest.mark.parametrize(
    ("fields", "index"),
    [
        pytest.param({}, (), id="not marked"),
        pytest.param({"evicted_for": "a/b"}, (MARKED,), id="marked"),
        pytest.param({"evicted_for": "a/b", "terminating": True}, (ENDING,), id="on its way out"),
        pytest.param({"terminating": True}, (), id="deleted by somebody else"),
    ],
)
def test_marked_pods_are_found_without_a_search(fields, index):
    assert mark(msgspec.structs.replace(pod(), **fields)) == index


def test_what_a_write_may_have_changed_stands_in_for_what_was_seen():
    gated = pod("a/p", gates=[GATE], limits={"nvidia.com/mig-1g.5gb": "1"})
    before = node("n1")
    done = {
        "a/p": msgspec.structs.replace(gated, gated=False),
        "n1": msgspec.structs.replace(before, view=msgspec.structs.replace(before.view, spec_plan="17")),
        "a/gone": gated,
    }
    seen = picture([before], [gated], 0.0, done)
    assert [(item.key, item.gated) for item in seen.view.pods] == [("a/p", False)]
    assert [item.spec_plan for item in seen.view.nodes] == ["17"]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"version": "9"}, True, id="only the resourceVersion"),
        pytest.param({"waiting": ("NoSliceFits", "no room")}, True, id="a condition of ours"),
        pytest.param({"node": "n1"}, False, id="it is bound"),
        pytest.param({"gated": False}, False, id="it is released"),
        pytest.param({"terminating": True}, False, id="it is being deleted"),
    ],
)
def test_only_changes_that_decisions_read_start_a_cycle(change, same):
    before = pod(gates=[GATE], limits={"nvidia.com/mig-1g.5gb": "1"})
    assert same_pod(before, msgspec.structs.replace(before, **change)) is same


def test_a_node_brings_what_writes_to_it_need():
    seen = node(
        annotations={
            "nos.nebuly.com/spec-gpu-0-1g.5gb": "2",
            "nos.nebuly.com/status-gpu-0-1g.5gb-free": "2",
            "nos.nebuly.com/gpu-inventory": "[]",
        }
    )
    assert (seen.version, seen.counts, seen.agent) == ("1", ("nos.nebuly.com/spec-gpu-0-1g.5gb",), True)
    assert not node().agent
