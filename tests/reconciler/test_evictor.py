"""How evictions end, and what is known afterwards; against a scripted API server."""

import json
import math

import msgspec
import pytest

from kube.events import EventRecorder
from kube.informer import Informer
from kube.resource import PODS
from kube.store import Entry
from policies.decision import Evict
from reconciler.evictor import Evictor
from reconciler.observe import MARK, mark, project_pod
from tests.apiserver.steps import refusal, status
from tests.builders import raw_pod

MARKED = {"nos.nebuly.com/evicted-for": "team-b/claims"}
LENT = "/api/v1/namespaces/team-a/pods/lent"
OTHER = "/api/v1/namespaces/team-a/pods/other"
LATE = "/api/v1/namespaces/team-a/pods/late"
EVENTS_A, EVENTS_B = (f"/api/v1/namespaces/team-{team}/events" for team in "ab")


def lent(version="1", *, name="lent", marked=False, uid=None, ending=False, grace=30):
    raw = raw_pod(
        f"team-a/{name}",
        limits={"nvidia.com/gpu": "1"},
        node="n1",
        version=version,
        uid=uid,
        annotations=MARKED if marked else None,
        terminationGracePeriodSeconds=grace,
    )
    if ending:
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return raw


def answer(obj, code=200):
    return lambda _, wire: wire.json(code, obj)


def cut(_, wire):
    wire.cut()


evicted = answer({"kind": "Status", "status": "Success", "code": 201}, 201)


class World:
    """An evictor that knows of pods, and clocks that the test moves together."""

    def __init__(self, client, server):
        self.server = server
        self.pods = Informer(client, PODS, project_pod, indexes={MARK: mark})
        self.at, self.held = 1000.0, True
        self.recorder = EventRecorder(client, "tests")
        for path in (EVENTS_A, EVENTS_B):
            server.route("POST", path, lambda _, wire: wire.json(201, {"metadata": {"name": "event"}}))
        self.watch(lent())
        self.evictor = Evictor(
            client,
            self.pods,
            self.recorder,
            held=lambda: self.held,
            now=lambda: self.at,
            clock=lambda: self.at,
            timeout_s=5.0,
            max_grace_s=600,
            chance=lambda: 0.0,
        )

    def watch(self, *pods):
        """Let the informer have been told of these pods; of their states the newest is the watch's."""
        for raw in pods:
            meta = raw["metadata"]
            key, seen = f"{meta['namespace']}/{meta['name']}", project_pod(msgspec.json.encode(raw))
            self.pods.store.observe(key, msgspec.structs.replace(entry(meta), value=seen))

    def evict(self, *names, quota="team-b/quota"):
        """Evict what is seen of these pods."""
        known = {pod.key: pod for pod in self.pods.store.list()} | self.evictor.assumed()
        wanted = [decided(known[f"team-a/{name}"], quota) for name in names]
        return self.evictor.apply(wanted, known)

    def seen(self, name="lent"):
        """Return (ending, for whom, refused until) as the next decision is told."""
        pod = self.evictor.assumed().get(f"team-a/{name}") or self.pods.store.get(f"team-a/{name}")
        return pod and (pod.terminating, pod.evicted_for, pod.refused_until)

    def said(self):
        """Return (type, reason, message) of the Events, by the object that they are about."""
        self.recorder.close()
        bodies = [json.loads(r.body) for path in (EVENTS_A, EVENTS_B) for r in self.server.asked("POST", path)]
        return {b["involvedObject"]["name"]: (b["type"], b["reason"], b["message"]) for b in bodies}


def entry(meta):

    return Entry(meta["uid"], meta["resourceVersion"], None)


def decided(pod, quota="team-b/quota"):
    return Evict(
        pod=pod.key,
        uid=pod.uid,
        version=pod.version,
        claimant="team-b/claims",
        claimant_uid="uid-claims",
        quota=quota,
        grace_s=30,
        reason="Reclaimed",
        message="team-a/quota uses 2 nvidia.com/gpu, 1 above its min",
    )


@pytest.fixture
def world(client, server):
    made = World(client, server)
    yield made
    made.evictor.close()
    made.recorder.close()


def bodies(server, method, path):
    return [json.loads(request.body) for request in server.asked(method, path)]


def test_the_mark_comes_first_then_the_eviction_and_never_a_delete(server, world):
    """Q11: the Eviction API looks after budgets, a DELETE would not."""
    server.route("PATCH", LENT, answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", evicted)
    assert world.evict("lent") == math.inf
    assert [(r.method, r.path) for r in server.requests if "/events" not in r.path] == [
        ("PATCH", LENT),
        ("POST", f"{LENT}/eviction"),
    ]
    [marking], [asked] = bodies(server, "PATCH", LENT), bodies(server, "POST", f"{LENT}/eviction")
    assert marking == {"metadata": {"uid": "uid-lent", "resourceVersion": "1", "annotations": MARKED}}
    assert asked["deleteOptions"] == {"preconditions": {"uid": "uid-lent"}, "gracePeriodSeconds": 30}
    assert world.seen() == (True, "team-b/claims", 0.0)
    message = "team-a/quota uses 2 nvidia.com/gpu, 1 above its min"
    assert world.said() == {
        "lent": ("Warning", "Reclaimed", f"evicted for team-b/claims: {message}"),
        "claims": ("Normal", "Evicting", f"team-a/lent is evicted: {message}"),
    }


def late(version="1"):
    return raw_pod("team-a/late", limits={"nvidia.com/gpu": "1"}, version=version, owner=True)


def place_lost(pod):
    return Evict(
        pod=pod.key,
        uid=pod.uid,
        version=pod.version,
        quota="team-a/quota",
        grace_s=30,
        reason="PlaceLost",
        message="the scheduler has found no node for it",
    )


def test_a_pod_that_goes_for_nobody_bears_no_mark_and_goes_only_while_it_is_bound_nowhere(server, world):
    """It may have been bound a moment ago: the state that was decided from is a precondition."""
    server.route("POST", f"{LATE}/eviction", evicted)
    world.watch(late())
    pod = world.pods.store.get("team-a/late")
    assert world.evictor.apply([place_lost(pod)], {pod.key: pod}) == math.inf
    assert [(r.method, r.path) for r in server.requests if "/events" not in r.path] == [("POST", f"{LATE}/eviction")]
    [asked] = bodies(server, "POST", f"{LATE}/eviction")
    assert asked["deleteOptions"]["preconditions"] == {"uid": "uid-late", "resourceVersion": "1"}
    assert world.seen("late") == (True, "", 0.0)
    assert world.said() == {"late": ("Warning", "PlaceLost", "evicted: the scheduler has found no node for it")}


def test_one_that_has_been_bound_meanwhile_stays(server, world):
    server.route("POST", f"{LATE}/eviction", refusal(409, "Conflict"))
    server.route("GET", LATE, answer(late("2")))
    world.watch(late())
    pod = world.pods.store.get("team-a/late")
    assert world.evictor.apply([place_lost(pod)], {pod.key: pod}) == 0.0
    assert world.seen("late") == (False, "", 0.0)
    assert world.pods.store.get("team-a/late").version == "2"


def test_a_refusal_is_told_to_the_pod_itself_where_it_goes_for_nobody(server, world):
    server.route("POST", f"{LATE}/eviction", refusal(403, "Forbidden"))
    world.watch(late())
    pod = world.pods.store.get("team-a/late")
    assert world.evictor.apply([place_lost(pod)], {pod.key: pod}) == 1.0
    assert not server.asked("PATCH", LATE)
    assert world.seen("late") == (False, "", 1001.0)
    assert world.said()["late"][:2] == ("Warning", "EvictionRefused")


def test_once_the_watch_tells_that_a_victim_ends_nothing_is_assumed_any_more(server, world):
    server.route("PATCH", LENT, answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", evicted)
    world.evict("lent")
    world.watch(lent("3", marked=True, ending=True))
    assert world.evictor.assumed() == {}
    assert world.seen() == (True, "team-b/claims", 0.0)


def test_a_pod_made_again_under_the_name_of_a_victim_is_another_pod(server, world):
    """Q20: the replacement of a victim is not taken for the victim."""
    server.route("PATCH", LENT, answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", evicted)
    world.evict("lent")
    world.pods.store.remove("team-a/lent", "uid-lent", "4")
    world.watch(lent("5", uid="new"))
    assert world.seen() == (False, "", 0.0)


@pytest.mark.parametrize(
    ("asked_s", "pause_s"),
    [pytest.param(10, 10.0, id="as long as the server asks"), pytest.param(0, 1.0, id="else a pause of ours")],
)
def test_a_budget_that_refuses_gets_the_mark_taken_back_and_the_pod_is_left_alone(server, world, asked_s, pause_s):
    """Q11: 429 means another candidate or later, never a delete."""
    server.route("PATCH", LENT, answer(lent("2", marked=True)), answer(lent("3")))
    server.route("POST", f"{LENT}/eviction", refusal(429, "TooManyRequests", {"Retry-After": str(asked_s)}))
    assert world.evict("lent") == pause_s
    _, back = bodies(server, "PATCH", LENT)
    assert back["metadata"] == {
        "uid": "uid-lent",
        "resourceVersion": "2",
        "annotations": {"nos.nebuly.com/evicted-for": None},
    }
    assert world.seen() == (False, "", 1000.0 + pause_s)
    assert world.said() == {
        "claims": (
            "Warning",
            "EvictionRefused",
            f"team-a/lent cannot be evicted: no; not tried again for {math.ceil(pause_s)} s",
        )
    }


def test_refusals_in_a_row_are_tried_ever_more_seldom(server, world):
    server.route("PATCH", LENT, answer(lent("2", marked=True)), answer(lent("3")), answer(lent("4", marked=True)), answer(lent("5")))  # fmt: skip
    server.route("POST", f"{LENT}/eviction", refusal(429))
    assert world.evict("lent") == 1.0
    world.at += 1.0
    assert world.evict("lent") == 2.0


@pytest.mark.parametrize("code", [403, 422])
def test_any_refusal_takes_the_mark_back(server, world, code):
    server.route("PATCH", LENT, answer(lent("2", marked=True)), answer(lent("3")))
    server.route("POST", f"{LENT}/eviction", refusal(code))
    world.evict("lent")
    assert len(server.asked("PATCH", LENT)) == 2
    assert world.seen()[:2] == (False, "")


def test_a_pod_that_changed_before_it_was_marked_is_read_and_judged_again(server, world):
    server.route("PATCH", LENT, refusal(409, "Conflict"))
    server.route("GET", LENT, answer(lent("4")))
    assert world.evict("lent") == 0.0
    assert server.asked("POST", f"{LENT}/eviction") == []
    assert world.pods.store.get("team-a/lent").version == "4"


@pytest.mark.parametrize("marking", [True, False], ids=["before it is marked", "before it is evicted"])
def test_a_pod_that_is_gone_is_forgotten(server, world, marking):
    server.route("PATCH", LENT, refusal(404) if marking else answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", refusal(404))
    assert world.evict("lent") == 0.0
    assert world.pods.store.get("team-a/lent") is None


def test_an_eviction_of_another_pod_of_the_name_is_refused_and_judged_again(server, world):
    server.route("PATCH", LENT, answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", refusal(409, "Conflict"))
    server.route("GET", LENT, answer(lent("4", uid="new")))
    assert world.evict("lent") == 0.0
    assert world.seen() == (False, "", 0.0)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(cut, id="no answer"),
        pytest.param(lambda _, wire: wire.json(500, status(500, "InternalError")), id="500: etcd may have it"),
    ],
)
def test_without_an_answer_the_pod_counts_as_ending_until_it_is_read_again(server, world, failure):
    server.route("PATCH", LENT, answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", failure)
    assert world.evict("lent") == 5.0
    assert world.seen()[:2] == (True, "team-b/claims")
    assert server.asked("GET", LENT) == []

    world.at += 5.0
    server.route("GET", LENT, answer(lent("3", marked=True, ending=True)))
    assert world.seen()[:2] == (True, "team-b/claims")
    assert world.evictor.assumed() == {}


def test_one_that_still_runs_when_it_is_read_again_was_not_evicted(server, world):
    """Such as a pod under two budgets, for which the API server answers 500: others are chosen meanwhile."""
    server.route("PATCH", LENT, answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", refusal(500))
    server.route("GET", LENT, answer(lent("2", marked=True)))
    world.evict("lent")
    world.at += 5.0
    assert world.seen() == (False, "team-b/claims", 1006.0)
    server.route("PATCH", LENT, answer(lent("3")))
    world.evict()
    assert world.seen() == (False, "", 1006.0)  # the mark, which nobody wants any more, is taken back


def test_while_it_cannot_be_read_it_goes_on_counting_as_ending(server, world):
    server.route("PATCH", LENT, answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", cut)
    server.route("GET", LENT, refusal(503))
    world.evict("lent")
    world.at += 5.0
    assert world.seen()[:2] == (True, "team-b/claims")
    world.at += 4.0
    world.evictor.assumed()
    assert len(server.asked("GET", LENT)) == 1  # again only after its time


def test_a_mark_that_a_killed_leader_left_is_completed_if_the_victim_is_still_one(server, world):
    """Killed between mark and eviction: the next one writes no second mark, and evicts no second pod."""
    world.watch(lent("2", marked=True))
    server.route("POST", f"{LENT}/eviction", evicted)
    world.evict("lent")
    assert server.asked("PATCH", LENT) == []
    assert len(server.asked("POST", f"{LENT}/eviction")) == 1


def test_a_mark_that_a_killed_leader_left_is_taken_back_if_the_pod_is_no_victim_any_more(server, world):
    world.watch(lent("2", marked=True))
    server.route("PATCH", LENT, answer(lent("3")))
    world.evict()
    [back] = bodies(server, "PATCH", LENT)
    assert back["metadata"]["annotations"] == {"nos.nebuly.com/evicted-for": None}
    world.evict()
    assert len(server.asked("PATCH", LENT)) == 1


def test_a_mark_for_another_claimant_is_corrected_before_the_eviction(server, world):
    stale = lent("2")
    stale["metadata"]["annotations"] = {"nos.nebuly.com/evicted-for": "team-c/gone"}
    world.watch(stale)
    server.route("PATCH", LENT, answer(lent("3", marked=True)))
    server.route("POST", f"{LENT}/eviction", evicted)
    world.evict("lent")
    assert bodies(server, "PATCH", LENT)[0]["metadata"]["annotations"] == MARKED


def test_nothing_is_written_once_the_lease_is_lost(server, world):
    """R06: each step asks whether we still lead."""
    world.watch(lent("2", name="other", marked=True))
    world.held = False
    world.evict("lent")
    assert server.requests == []


def test_a_lease_lost_between_mark_and_eviction_leaves_the_rest_to_the_next_leader(server, world):
    def lose(_, wire):
        world.held = False
        wire.json(200, lent("2", marked=True))

    server.route("PATCH", LENT, lose)
    world.evict("lent")
    assert [r.method for r in server.requests] == ["PATCH"]


@pytest.mark.parametrize(
    ("limit", "quotas"),
    [pytest.param("A_SECOND", "ab", id="of all quotas"), pytest.param("A_SECOND_OF_QUOTA", "aa", id="of one quota")],
)
def test_no_more_than_so_many_are_evicted_in_a_second(server, world, monkeypatch, limit, quotas):
    """Q21: a mistake in a quota is seen before all that it asks for has happened."""
    monkeypatch.setattr(f"reconciler.evictor.{limit}", 1)
    world.watch(lent("2", name="other"))
    for path, name in ((LENT, "lent"), (OTHER, "other")):
        server.route("PATCH", path, answer(lent("3", name=name, marked=True)))
        server.route("POST", f"{path}/eviction", evicted)
    known = {pod.key: pod for pod in world.pods.store.list()}
    wanted = [decided(pod, quota) for pod, quota in zip(known.values(), quotas, strict=True)]
    assert world.evictor.apply(wanted, known) == 1.0
    assert len(server.asked("POST", f"{OTHER}/eviction")) == 0
    world.at += 1.0
    world.evict("other")
    assert len(server.asked("POST", f"{OTHER}/eviction")) == 1


def test_an_api_server_that_takes_no_marks_is_left_alone_for_a_moment(server, world):
    """No pod is at fault, so none is passed over for another."""
    server.route("PATCH", LENT, refusal(503), answer(lent("2", marked=True)))
    server.route("POST", f"{LENT}/eviction", evicted)
    world.evict("lent")
    assert world.seen() == (False, "", 0.0)
    assert world.evict("lent") == 1.0
    assert len(server.asked("PATCH", LENT)) == 1
    world.at += 1.0
    world.evict("lent")
    assert world.seen()[0]


def test_a_victim_that_does_not_end_is_told_of_once(server, world):
    world.watch(lent("2", marked=True, ending=True))
    world.evict()
    world.at += 91.0
    world.evict()
    world.at += 91.0
    world.evict()
    [event] = bodies(server, "POST", EVENTS_A) if world.recorder.close() is None else []
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "VictimDoesNotEnd", 1)
    assert event["message"] == (
        "evicted for team-b/claims, and still there 91 s later: what it holds is kept for that pod; "
        "look for finalizers, and at node n1"
    )
