"""Which changes start a cycle, and which end the one under way."""

import json

import msgspec
import pytest

from policies.governing import QuotaView
from reconciler.changes import Changes, is_news
from reconciler.observe import picture, project_node, project_pod
from reconciler.policies import project_policy
from tests.builders import raw_node, raw_pod

GATE = "nos.nebuly.com/admission"
SLICE = {"nvidia.com/mig-1g.5gb": "1"}
QUOTA = QuotaView(kind="ElasticQuota", namespace="governed", name="quota", namespaces=("governed",))


def gated(version="10"):
    return raw_pod("team-a/train", limits=SLICE, gates=[GATE], version=version)


def free(version="11", **fields):
    return raw_pod("team-a/train", limits=SLICE, version=version, **fields)


@pytest.mark.parametrize(
    ("old", "new", "starts"),
    [
        pytest.param({}, {"version": "20"}, False, id="a heartbeat: a thousand kubelets send one every few seconds"),
        pytest.param({}, {"version": "20", "cordoned": True}, True, id="a cordon"),
        pytest.param(None, {}, True, id="a new node"),
        pytest.param({}, None, True, id="a node that is gone"),
    ],
)
def test_a_node_starts_a_cycle_only_by_what_decisions_read(old, new, starts):
    def node(version="1", **fields):
        raw = raw_node("n1", **fields)
        raw["metadata"]["resourceVersion"] = version
        return project_node(json.dumps(raw).encode())

    changes = Changes()
    changes.node("n1", None if old is None else node(**old), None if new is None else node(**new))
    assert changes.any.is_set() is starts
    assert changes.news.is_set() is starts


@pytest.mark.parametrize(
    ("old", "new", "starts"),
    [
        pytest.param(None, gated(), True, id="a pod that waits"),
        pytest.param(gated("10"), gated("11"), False, id="a pod of which only the version is new"),
        pytest.param(free(), free(node="n1"), True, id="a pod that is bound"),
        pytest.param(free(node="n1"), None, True, id="a pod that is gone"),
        pytest.param(
            None, raw_pod("a/web", limits={"cpu": "1"}, node="n1"), True, id="room is taken on a node of ours"
        ),
        pytest.param(None, raw_pod("a/web", limits={"cpu": "1"}, node="other"), False, id="room is taken elsewhere"),
        pytest.param(None, raw_pod("a/web", limits={"cpu": "1"}), False, id="a pod that asks nothing of us"),
    ],
)
def test_without_quotas_a_pod_starts_a_cycle_only_by_what_decisions_read(old, new, starts):
    changes = Changes()
    changes.heed(picture([project_node(json.dumps(raw_node("n1")).encode())], [], 0.0))
    before, after = (raw and project_pod(json.dumps(raw).encode()) for raw in (old, new))
    changes.pod("a/b", before, after)
    assert changes.any.is_set() is starts


@pytest.mark.parametrize(
    ("key", "node", "starts"),
    [
        pytest.param("governed/web", "", True, id="a pod of a governed namespace that asks for CPU alone"),
        pytest.param("a/web", "other", True, id="room is taken where a governed pod may run"),
        pytest.param("a/web", "", False, id="anybody's pod that is bound nowhere"),
    ],
)
def test_with_quotas_the_pods_that_they_govern_and_the_room_on_all_nodes_matter(key, node, starts):
    changes = Changes()
    changes.heed(picture([], [], 0.0, quotas=[QUOTA]))
    raw = raw_pod(key, limits={"cpu": "1"}, **({"node": node} if node else {}))
    changes.pod(key, None, project_pod(json.dumps(raw).encode()))
    assert changes.any.is_set() is starts


@pytest.mark.parametrize(
    ("old", "new", "starts"),
    [
        pytest.param(None, {}, True, id="it comes"),
        pytest.param({}, None, True, id="it goes"),
        pytest.param({}, {"spec": {"quota": {"admission": "label"}}}, True, id="its pods wait no longer"),
        pytest.param({}, {"status": {"conditions": [{"type": "Ready"}]}}, False, id="we write its condition"),
    ],
)
def test_a_policy_starts_a_cycle_only_by_what_decisions_read(old, new, starts):
    def seen(fields):
        written = {"metadata": {"name": "policy", "namespace": "team-a"}, "spec": {}, **fields}
        return project_policy(json.dumps(written).encode())

    changes = Changes()
    changes.policy("team-a/policy", None if old is None else seen(old), None if new is None else seen(new))
    assert changes.any.is_set() is starts
    assert changes.news.is_set() is starts


@pytest.mark.parametrize(
    ("old", "new", "news"),
    [
        pytest.param(None, {"gates": [GATE]}, True, id="it comes"),
        pytest.param({"node": "n1"}, None, True, id="it goes"),
        pytest.param({"node": "n1"}, {"node": "n1", "uid": "another"}, True, id="it comes again"),
        pytest.param({"node": "n1"}, {"node": "n1", "ending": True}, True, id="it begins to end"),
        pytest.param({"gates": ["a/b", GATE]}, {"gates": [GATE]}, True, id="a gate of somebody else is gone"),
        pytest.param(
            {"node": "n1", "limits": {"cpu": "2"}},
            {"node": "n1", "limits": {"cpu": "1"}},
            True,
            id="it gives room back",
        ),
        pytest.param({"gates": [GATE]}, {}, False, id="our gate is gone"),
        pytest.param({}, {"node": "n1"}, False, id="it is bound"),
        pytest.param({"node": "n1"}, {"node": "n1", "phase": "Running"}, False, id="it runs"),
        pytest.param({}, {"labels": {"nos.nebuly.com/capacity": "in-quota"}}, False, id="we write its label"),
    ],
)
def test_only_room_that_is_wanted_or_becomes_free_may_call_for_another_decision(old, new, news):
    def seen(fields):
        if fields is None:
            return None
        raw = raw_pod("team-a/train", **{key: value for key, value in fields.items() if key != "ending"})
        if "ending" in fields:
            raw["metadata"]["deletionTimestamp"] = "2026-03-02T12:00:00Z"
        return project_pod(msgspec.json.encode(raw))

    assert is_news(seen(old), seen(new)) is news
