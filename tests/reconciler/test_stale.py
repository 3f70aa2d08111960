"""A pod whose slice a reboot has made anew, from its node's report to the eviction and what people are told (docs/adr/0023)."""

import json

import pytest

from tests.apiserver.steps import refusal
from tests.builders import A30, raw_node, raw_pod
from tests.reconciler.leading import Leader

SLICE = {"nvidia.com/mig-2g.12gb": "1"}
EVICTION, EVENTS = "/api/v1/namespaces/ml/pods/train/eviction", "/api/v1/namespaces/ml/events"
EMPTY = ("/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets",
         "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations")  # fmt: skip


@pytest.fixture
def leader(server, client):
    """A leader that sees a node with a stale slice, and the pod that holds it; its clock stands still."""
    for path in EMPTY:
        server.route("GET", path, lambda _, wire: wire.json(200, {"items": []}))
    server.route("POST", EVENTS, lambda _, wire: wire.json(201, {"metadata": {"name": "event"}}))
    clock = [0.0]
    leader = Leader(client, lambda: clock[0])
    leader.clock = clock
    held = {"profile": "2g.12gb", "start": 2, "used": True, "pod": "ml/train", "stale": "uid-1"}
    node = raw_node("n1", A30, placements={"0": [held]}, resources=SLICE)
    pod = raw_pod("ml/train", limits=SLICE, node="n1", phase="Running", uid="uid-1", version="7")
    leader.see("10", nodes=[node], pods=[pod])
    yield leader
    leader.close()


def events(server, count):
    return [json.loads(request.body) for request in server.wait_for(count, "POST", EVENTS)]


def test_the_pod_is_evicted_without_a_mark_once_and_told_why(server, leader):
    server.route("POST", EVICTION, lambda _, wire: wire.json(201, {"kind": "Status", "status": "Success"}))
    leader.cycle()
    leader.cycle()
    (asked,) = server.asked("POST", EVICTION)
    assert json.loads(asked.body)["deleteOptions"]["preconditions"] == {"uid": "uid-1", "resourceVersion": "7"}
    (event,) = events(server, 1)
    assert (event["type"], event["reason"], event["involvedObject"]["name"]) == ("Warning", "DeviceReplaced", "train")
    assert event["message"].startswith("evicted: GPU 0 of node n1 was reset or the node restarted")


def test_a_budget_is_asked_and_its_refusal_respected(server, leader):
    server.route("POST", EVICTION, refusal(429, "TooManyRequests", {"Retry-After": "10"}))
    leader.cycle()
    leader.cycle()
    assert len(server.asked("POST", EVICTION)) == 1
    (event,) = events(server, 1)
    assert (event["reason"], event["involvedObject"]["name"]) == ("EvictionRefused", "train")
    leader.clock[0] = 400.0
    leader.cycle()
    assert len(server.asked("POST", EVICTION)) == 2
