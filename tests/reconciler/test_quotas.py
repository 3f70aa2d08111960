"""What is written on quotas and namespaces, and what is left alone; against a scripted API server."""

import json

import msgspec
import pytest

from kube.events import EventRecorder
from kube.informer import Informer
from kube.resource import COMPOSITE_QUOTAS, ELASTIC_QUOTAS, NAMESPACES, read_meta
from kube.store import Entry
from policies.decision import QuotaStatus
from reconciler.quotas import QuotaReport, project_composite, project_elastic, project_namespace, status_patch
from reconciler.scribe import Scribe
from tests.apiserver.steps import refusal

API = "/apis/nos.nebuly.com/v1alpha1/namespaces"
SINCE = "2026-01-01T00:00:00Z"
READY = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 2,
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": SINCE,
}
USED = {"nvidia.com/gpu": "1500m", "memory": "2Gi"}


def raw(namespace="team-a", name="quota", *, status=None, generation=2, **spec):
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "7"}
    return {"metadata": {**metadata, "generation": generation}, "spec": spec, "status": status or {}}


def encoded(obj):
    return json.dumps(obj).encode()


def wanted(**fields):
    made = {
        "kind": "ElasticQuota",
        "namespace": "team-a",
        "name": "quota",
        "generation": 2,
        "used": {"nvidia.com/gpu": 1500, "memory": 2 * 1024**3 * 1000},
    }
    return QuotaStatus(**made | fields)


def patch(status, **fields):
    body = status_patch(wanted(**fields), project_elastic(encoded(raw(status=status))), 0.0)
    return body and msgspec.json.decode(msgspec.json.encode(body))


def test_a_new_quota_gets_its_whole_status():
    """Used as nos wrote it, with canonical quantities."""
    assert patch({}, borrowed={"nvidia.com/gpu": 500}) == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "used": USED,
            "borrowed": {"nvidia.com/gpu": "500m"},
            "conditions": [{**READY, "lastTransitionTime": "1970-01-01T00:00:00Z"}],
        },
    }


def test_a_status_that_is_true_is_not_written():
    assert patch({"used": USED, "conditions": [READY]}) is None


@pytest.mark.parametrize(
    ("seen", "fields", "changes"),
    [
        pytest.param({"used": {**USED, "nvidia.com/gpu": "1"}}, {}, {"used": {"nvidia.com/gpu": "1500m"}}, id="one amount"),
        pytest.param({"used": {**USED, "cpu": "3"}}, {}, {"used": {"cpu": None}}, id="a resource that left min and max"),
        pytest.param(
            {"used": USED, "lent": {"nvidia.com/gpu": 1}}, {}, {"lent": {"nvidia.com/gpu": None}}, id="nothing is lent any more"
        ),
        pytest.param(
            {"used": USED},
            {"generation": 3},
            {"conditions": [{**READY, "observedGeneration": 3}]},
            id="a generation that was judged: the time of the last transition stays",
        ),
        pytest.param(
            {"used": USED},
            {"ready": False, "reason": "Superseded", "message": "by x"},
            {"conditions": [{**READY, "status": "False", "reason": "Superseded", "message": "by x",
                             "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
            id="no longer in force",
        ),
    ],
)  # fmt: skip
def test_only_what_differs_is_written(seen, fields, changes):
    body = patch({"conditions": [READY], **seen}, **fields)
    assert body == {"metadata": {"resourceVersion": "7"}, "status": changes}


def test_conditions_of_others_stay():
    other = {"type": "Theirs", "status": "True"}
    body = patch({"used": USED, "conditions": [other, {**READY, "reason": "Old"}]})
    assert body["status"]["conditions"] == [other, READY]


class World:
    """A writer that knows of two quotas and three namespaces."""

    def __init__(self, client, server):
        self.elastic = Informer(client, ELASTIC_QUOTAS, project_elastic)
        self.composite = Informer(client, COMPOSITE_QUOTAS, project_composite)
        self.namespaces = Informer(client, NAMESPACES, project_namespace)
        self.at, self.held = 1000.0, True
        self.recorder = EventRecorder(client, "tests")
        for team in ("a", "b"):
            self.know(self.elastic, raw(f"team-{team}"))
            server.route("PATCH", f"{API}/team-{team}/elasticquotas/quota/status", answer(raw(f"team-{team}")))
            path = f"/api/v1/namespaces/team-{team}/events"
            server.route("POST", path, lambda _, wire: wire.json(201, {"metadata": {"name": "event"}}))
        for name, label in (("team-a", "quota"), ("team-b", ""), ("left", "gone")):
            labels = {"nos.nebuly.com/quota": label} if label else {}
            self.know(
                self.namespaces, {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}}
            )
        informers = {"ElasticQuota": self.elastic, "CompositeElasticQuota": self.composite}
        self.report = QuotaReport(informers, self.namespaces, self.recorder, now=lambda: 0.0)
        self.writer = Scribe(
            client, "quota", self.report.differences, every_s=1.0, held=lambda: self.held, clock=lambda: self.at
        )

    def know(self, informer, obj):
        meta = read_meta(encoded(obj))
        informer.store.observe(meta.key, Entry(meta.uid, meta.resource_version, informer.project(encoded(obj))))

    def say(self, *statuses):
        views = {pod.view.namespace: pod.view for pod in self.elastic.store.list()}
        self.report.say(statuses, views)


def answer(obj, version="9"):
    obj["metadata"]["resourceVersion"] = version
    return lambda _, wire: wire.json(200, obj)


@pytest.fixture
def world(client, server):
    made = World(client, server)
    yield made
    made.recorder.close()


def namespace(server, name, label=""):
    path = f"/api/v1/namespaces/{name}"
    labels = {"nos.nebuly.com/quota": label} if label else {}
    server.route("PATCH", path, answer({"metadata": {"name": name, "uid": name, "labels": labels}}))
    return path


def test_the_label_says_which_quota_governs_a_namespace(server, world):
    labelled, left = namespace(server, "team-b", "quota"), namespace(server, "left")
    world.say()
    world.writer.tick()
    world.writer.tick()
    key = "nos.nebuly.com/quota"
    assert [json.loads(r.body)["metadata"]["labels"][key] for r in server.asked("PATCH", labelled)] == ["quota"]
    assert [json.loads(r.body)["metadata"]["labels"][key] for r in server.asked("PATCH", left)] == [None]
    assert len(server.requests) == 2


def statuses(world, server):
    for name in ("team-b", "left"):
        namespace(server, name, "quota" if name == "team-b" else "")
    return wanted(), wanted(namespace="team-b")


def test_one_quota_that_cannot_be_written_stops_no_other(server, world):
    """Q37"""
    one, other = statuses(world, server)
    bad, good = (f"{API}/team-{team}/elasticquotas/quota/status" for team in "ab")
    server.route("PATCH", bad, refusal(422, "Invalid"))
    world.say(one, other)
    world.writer.tick()
    assert len(server.asked("PATCH", good)) == 1
    world.writer.tick()
    assert len(server.asked("PATCH", bad)) == 1  # again only after a pause
    world.at += 1.0
    world.writer.tick()
    assert len(server.asked("PATCH", bad)) == 2


def test_a_quota_that_was_edited_since_it_was_judged_is_left_to_the_next_decision(server, world):
    one, _ = statuses(world, server)
    world.say(msgspec.structs.replace(one, generation=1))
    world.writer.tick()
    assert server.asked("PATCH", f"{API}/team-a/elasticquotas/quota/status") == []


def test_nothing_is_written_once_the_lease_is_lost(server, world):
    """R06"""
    world.held = False
    world.say(*statuses(world, server))
    world.writer.tick()
    assert server.requests == []


def test_a_quota_that_is_not_in_force_is_told_of(server, world):
    """Q34, Q37: the fault stands on the object that has it."""
    one, _ = statuses(world, server)
    fault = "spec.min[nvidia.com/gpu]: 4: is more than spec.max[nvidia.com/gpu], 1: lower it, or raise that"
    world.say(msgspec.structs.replace(one, ready=False, reason="Invalid", message=fault, used={}))
    world.writer.tick()
    world.recorder.close()
    [event] = server.asked("POST", "/api/v1/namespaces/team-a/events")
    written = json.loads(event.body)
    assert (written["type"], written["reason"], written["message"]) == ("Warning", "Invalid", fault)
    assert written["involvedObject"] == {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "ElasticQuota",
        "name": "quota",
        "namespace": "team-a",
        "uid": "team-a-quota",
    }
