"""What is written on policies, and what is left alone; against a scripted API server."""

import json

import pytest

from kube.events import EventRecorder
from kube.informer import Informer
from kube.resource import GPU_POLICIES, read_meta
from kube.store import Entry
from reconciler.policies import PolicyReport, project_policy
from reconciler.scribe import Scribe
from tests.apiserver.steps import refusal

SINCE, NOW = "2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z"
READY = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 2,
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": SINCE,
}
FAULT = "spec.rules[0].rounding: down: must be one of exact, up"


def raw(namespace="team-a", name="policy", *, conditions=(), created=SINCE, generation=2, **rule):
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "resourceVersion": "7",
            "generation": generation,
            "creationTimestamp": created,
        },
        "spec": {"rules": [rule]},
        "status": {"conditions": list(conditions)},
    }


def path(namespace="team-a", name="policy"):
    return f"/apis/nos.nebuly.com/v1alpha1/namespaces/{namespace}/gpupolicies/{name}/status"


class World:
    """A scribe that knows of the policies that are put before it; `at` is its clock, in seconds."""

    def __init__(self, client, server):
        self.server, self.at = server, 1000.0
        self.policies = Informer(client, GPU_POLICIES, project_policy)
        self.policies.synced.set()
        self.recorder = EventRecorder(client, "tests")
        self.report = PolicyReport(self.policies, self.recorder, now=lambda: 0.0)
        self.scribe = Scribe(
            client, "policy", self.report.differences, every_s=1.0, held=lambda: True, clock=lambda: self.at
        )

    def know(self, *policies):
        for policy in policies:
            meta, text = read_meta(json.dumps(policy).encode()), json.dumps(policy).encode()
            self.policies.store.observe(meta.key, Entry(meta.uid, meta.resource_version, project_policy(text)))
            self.server.route("PATCH", path(meta.namespace, meta.name), self.patched(policy))
            events = f"/api/v1/namespaces/{meta.namespace}/events"
            self.server.route("POST", events, lambda _, wire: wire.json(201, {"metadata": {"name": "event"}}))

    @staticmethod
    def patched(policy):
        def answer(request, wire):
            changed = json.loads(request.body)
            metadata = {**policy["metadata"], "resourceVersion": "9"}
            wire.json(200, {**policy, "metadata": metadata, "status": changed["status"]})

        return answer

    def told(self, *where):
        """Return the conditions that were written, one list for each write."""
        return [json.loads(one.body)["status"]["conditions"] for one in self.server.asked("PATCH", path(*where))]


@pytest.fixture
def world(client, server):
    made = World(client, server)
    yield made
    made.recorder.close()


def test_a_policy_that_holds_is_ready_and_is_told_so_once(world, server):
    world.know(raw())
    world.scribe.tick()
    world.scribe.tick()
    (request,) = server.asked("PATCH", path())
    assert json.loads(request.body) == {
        "metadata": {"resourceVersion": "7"},
        "status": {"conditions": [{**READY, "lastTransitionTime": NOW}]},
    }


@pytest.mark.parametrize(
    ("conditions", "policy", "expected"),
    [
        pytest.param([READY], {}, None, id="true already"),
        pytest.param([READY], {"generation": 3}, [{**READY, "observedGeneration": 3}], id="a new generation: since when stays"),
        pytest.param([READY], {"rounding": "down"}, [{**READY, "status": "False", "reason": "Invalid", "message": FAULT, "lastTransitionTime": NOW}], id="invalid"),
        pytest.param([{**READY, "status": "False", "reason": "Invalid", "message": "another"}], {"rounding": "down"},
                     [{**READY, "status": "False", "reason": "Invalid", "message": FAULT}], id="another fault: since when stays"),
        pytest.param([{"type": "Theirs", "status": "True"}, {**READY, "reason": "Old"}], {}, [{"type": "Theirs", "status": "True"}, READY], id="conditions of others stay"),
    ],
)  # fmt: skip
def test_only_what_is_not_true_is_written(world, conditions, policy, expected):
    world.know(raw(conditions=conditions, **policy))
    world.scribe.tick()
    assert world.told() == ([expected] if expected else [])


def test_the_younger_of_two_is_told_of_the_conflict_until_the_older_is_gone(world):
    older, younger = raw(conditions=[READY]), raw(name="again", created="2026-02-01T00:00:00Z")
    world.know(older, younger)
    world.scribe.tick()
    assert world.told() == []
    ((condition,),) = world.told("team-a", "again")
    assert (condition["status"], condition["reason"]) == ("False", "Conflict")
    assert condition["message"] == "GpuPolicy team-a/policy, which is older, governs the namespace: delete one of them"
    world.policies.store.observe("team-a/policy", Entry("team-a-policy", "10", None))
    world.scribe.tick()
    assert world.told("team-a", "again")[1:] == [[{**READY, "lastTransitionTime": NOW}]]


def test_one_bad_policy_stops_no_other_even_if_it_cannot_be_written(world, server):
    """Q37."""
    world.know(raw("team-a", rounding="down"), raw("team-b"))
    server.route("PATCH", path("team-a"), refusal(422, "Invalid"))
    world.scribe.tick()
    assert [condition["reason"] for (condition,) in world.told("team-b")] == ["Ready"]


def test_a_policy_that_does_not_hold_is_told_of_in_one_event(world, server):
    world.know(raw(rounding="down"))
    world.scribe.tick()
    world.scribe.tick()
    world.recorder.close()
    (event,) = server.asked("POST", "/api/v1/namespaces/team-a/events")
    written = json.loads(event.body)
    assert (written["type"], written["reason"], written["message"]) == ("Warning", "Invalid", FAULT)
    assert written["involvedObject"]["kind"] == "GpuPolicy"


def test_no_event_tells_of_a_reason_that_the_condition_gave_before(world, server):
    """Another fault for the same reason is in the condition; an Event for each edit would be noise."""
    before = {**READY, "status": "False", "reason": "Invalid", "message": "another"}
    world.know(raw(conditions=[before], rounding="down"))
    world.scribe.tick()
    world.recorder.close()
    assert len(world.told()) == 1
    assert server.asked("POST", "/api/v1/namespaces/team-a/events") == []


def test_nothing_is_said_before_all_policies_are_known(world, server):
    """The older of two may be on the page that has not come yet."""
    world.policies.synced.clear()
    world.know(raw())
    world.scribe.tick()
    assert server.requests == []
