"""The cluster as the webhook remembers it, followed from a scripted API server over TLS."""

import json
import threading

import pytest

from policies.annotations import PlacedSlice, write_status
from policies.constraints import Constraints
from tests.apiserver.server import PATIENCE_S
from tests.apiserver.steps import Live, events, listing, refusal
from tests.builders import raw_node, raw_pod
from tests.webhook.fuzz import Fuzzer
from tests.webhook.reviews import answer, review
from webhook.review import mutate
from webhook.tally import Tally
from webhook.view import ClusterView, project_elastic, project_namespace, project_node

NODES, NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"
ELASTIC, COMPOSITE = (f"/apis/nos.nebuly.com/v1alpha1/{kind}elasticquotas" for kind in ("", "composite"))
POLICIES = "/apis/nos.nebuly.com/v1alpha1/gpupolicies"


@pytest.fixture
def view(server, client):
    for path in (ELASTIC, COMPOSITE, POLICIES):
        server.route("GET", path, listing([], 5))
        server.route("GET", path, events(), watch=True)
    view = ClusterView(client)
    yield view
    view.stop()


def namespace(name, **labels):
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}}


def node(name, version=1, **fields):
    made = raw_node(name, **fields)
    made["metadata"] |= {"uid": name, "resourceVersion": str(version)}
    return made


def until(true):
    """Wait for what another thread is about to make true; the patience only bounds a failure."""
    waiting = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if true():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come true")


def nodes_up(view):
    return sorted(name for group in view.inventory.offer(Constraints()).up for name in group.nodes)


def test_reviews_are_answered_from_what_the_watch_has_told(server, view):
    live = Live()
    server.route("GET", NODES, listing([node("a"), node("cpu", mode=None)], 5))
    server.route("GET", NODES, live, watch=True)
    strict = namespace("strict", **{"pod-security.kubernetes.io/enforce": "baseline"})
    server.route("GET", NAMESPACES, listing([strict, namespace("free")], 5))
    server.route("GET", NAMESPACES, events(), watch=True)
    assert not view.synced()
    view.start()
    until(view.synced)
    assert nodes_up(view) == ["a"]
    assert view.labels_of("strict") == {"pod-security.kubernetes.io/enforce": "baseline"}
    assert view.labels_of("free") == view.labels_of("unknown") == {}
    assert (view.knows("free"), view.knows("unknown")) == (True, False)
    live.send("ADDED", node("b", 6, mode="mps"))
    until(lambda: nodes_up(view) == ["a", "b"])
    live.send("MODIFIED", node("b", 7, mode="mps", cordoned=True))
    until(lambda: nodes_up(view) == ["a"])
    live.send("DELETED", node("a", 8))
    until(lambda: nodes_up(view) == [])
    live.end()


def quota(version, *, used=None, namespace="team-a", **spec):
    metadata = {"name": "quota", "namespace": namespace, "uid": namespace, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": spec, "status": {"used": used} if used else {}}


def test_what_quotas_use_is_known_from_their_status(server, view):
    """Design 9, memory: no pods are watched."""
    live, gpu = Live(), "nvidia.com/gpu"
    for path in (NODES, NAMESPACES):
        server.route("GET", path, listing([], 5))
        server.route("GET", path, events(), watch=True)
    server.route("GET", ELASTIC, listing([quota(5, min={gpu: 1}), quota(5, namespace="idle", min={gpu: 1})], 5))
    server.route("GET", ELASTIC, live, watch=True)
    view.start()
    until(view.synced)

    def capacity():
        return view.standings.estimate("team-a", {gpu: 1000}, borrows=True).capacity

    assert (view.standings.governs("team-a"), view.standings.governs("else")) == (True, False)
    assert capacity() == "in-quota"
    assert view.standings is view.standings  # made once for all reviews until something changes
    live.send("MODIFIED", quota(6, used={gpu: "1"}, min={gpu: 1}))
    until(lambda: capacity() == "over-quota")
    live.send("DELETED", quota(7, min={gpu: 1}))
    until(lambda: not view.standings.governs("team-a"))
    assert [item.key for item in view.quotas] == ["idle/quota"]
    live.end()


def test_what_nodes_show_in_use_is_no_longer_taken_for_given_away(server, view):
    """Four of an A30 are given away: the fifth pod has to go elsewhere, until they are bound and end."""
    live, a30 = Live(), "NVIDIA-A30"
    used = write_status({0: tuple(PlacedSlice(profile="1g.6gb", start=start, used=True) for start in range(4))}, "1")
    for path in (NODES, NAMESPACES):
        server.route("GET", path, listing([node("a100"), node("a30", product=a30)] if path == NODES else [], 5))
        server.route("GET", path, live if path == NODES else events(), watch=True)
    view.tally = Tally(lambda: 0.0)  # time alone brings nothing back
    view.start()
    until(view.synced)

    def gets(**fields):
        asking = review(raw_pod(annotations={"nos.nebuly.com/gpu-fraction": "0.25"}), **fields)
        return answer(mutate, asking, view)["warnings"][0].split()[3]

    assert [gets() for _ in range(5)] == ["nvidia.com/mig-1g.6gb"] * 4 + ["nvidia.com/mig-1g.10gb"]
    assert gets(dryRun=True) == "nvidia.com/mig-1g.10gb"
    live.send("MODIFIED", node("a30", 6, product=a30, annotations=used))
    live.send("MODIFIED", node("a30", 7, product=a30))
    until(lambda: gets(dryRun=True) == "nvidia.com/mig-1g.6gb")
    live.end()


def policy(version, namespace="team-a", **spec):
    metadata = {"name": "policy", "namespace": namespace, "uid": namespace, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": spec}


def test_policies_hold_as_soon_as_the_watch_tells(server, view):
    live = Live()
    for path in (NODES, NAMESPACES):
        server.route("GET", path, listing([], 5))
        server.route("GET", path, events(), watch=True)
    server.route("GET", POLICIES, listing([policy(5, rules=[{"modes": ["mps"]}])], 5))
    server.route("GET", POLICIES, live, watch=True)
    view.start()
    until(view.synced)

    def modes(namespace="team-a"):
        return view.policies.governing(namespace).rule_for({}).modes

    assert (modes(), modes("team-b")) == (("mps",), ("mig", "mps"))
    assert view.policies is view.policies  # made once for all reviews until something changes
    live.send("MODIFIED", policy(6, rules=[{"modes": ["mig"]}]))
    until(lambda: modes() == ("mig",))
    live.send("MODIFIED", policy(7, rules=[{"modes": "mig"}]))
    until(lambda: view.policies.governing("team-a").faults)
    live.send("DELETED", policy(8))
    until(lambda: modes() == ("mig", "mps"))
    live.end()


def test_nothing_is_answered_before_the_policies_are_known(server, view):
    """W26: an empty memory is not taken for a cluster without policies."""
    for path in (NODES, NAMESPACES):
        server.route("GET", path, listing([], 5))
        server.route("GET", path, events(), watch=True)
    server.route("GET", POLICIES, refusal(503))
    view.start()
    server.wait_for(2, "GET", POLICIES)
    assert not view.synced()


def test_a_status_that_somebody_spoilt_counts_as_none():
    raw = json.dumps(quota(5, used={"cpu": "lots"}, min={"cpu": 1})).encode()
    assert project_elastic(raw).used == {}


def test_while_the_api_server_is_away_reviews_are_answered_from_memory(server, view):
    server.route("GET", NODES, listing([node("a")], 5))
    server.route("GET", NODES, refusal(503), watch=True)
    server.route("GET", NAMESPACES, listing([], 5))
    server.route("GET", NAMESPACES, events(), watch=True)
    view.start()
    until(view.synced)
    server.wait_for(2, "GET", NODES, watch=True)
    body = json.dumps({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "namespace": "x", "resource": {"group": "", "resource": "pods"},
                    "object": raw_pod(annotations={"nos.nebuly.com/gpu-fraction": "0.5"})},
    }).encode()  # fmt: skip
    assert b'"allowed":true' in mutate(body, view)
    assert view.synced()


def test_little_is_kept_of_each_object():
    """R08: of nodes without slices nothing, of namespaces without labels that matter only that they are there."""
    assert project_node(json.dumps(raw_node("cpu", mode=None)).encode()) is None
    one, other = (project_namespace(json.dumps(namespace(name, app="x")).encode()) for name in "ab")
    assert one == {}
    assert one is other


def test_a_change_that_does_not_matter_is_no_change():
    """Heartbeats of kubelets must not make us gather the nodes again."""
    before, after = raw_node("a"), raw_node("a")
    after["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    after["metadata"]["resourceVersion"] = "9"
    assert project_node(json.dumps(before).encode()) == project_node(json.dumps(after).encode())


def test_no_review_makes_us_ask_or_write_anything(server, view):
    """Dry run or not, allowed or denied: what we know comes by the watches, and nothing goes out."""
    for path in (NODES, NAMESPACES):
        server.route("GET", path, listing([], 5))
        server.route("GET", path, events(), watch=True)
    view.start()
    until(view.synced)
    view.stop()
    before, fuzzer = len(server.requests), Fuzzer(11)
    for _ in range(300):
        call, review, sound = fuzzer.next()
        if sound:
            assert call(json.dumps(review).encode(), view)
    assert len(server.requests) == before
    assert {request.method for request in server.requests} == {"GET"}
