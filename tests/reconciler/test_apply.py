"""How the writes of a decision end, and what is known afterwards; against a scripted API server."""

import json
import math

import msgspec
import pytest

from kube.informer import Informer
from kube.resource import NODES, PODS
from kube.store import Entry
from policies.annotations import Placement
from policies.decision import Cut, Decision, Layout, Relabel, Release
from reconciler.apply import Applier
from reconciler.observe import picture, project_node, project_pod
from tests.apiserver.steps import refusal, status
from tests.builders import raw_node, raw_pod

GATE = "nos.nebuly.com/admission"
PODS_OF_A = "/api/v1/namespaces/team-a/pods"
TRAIN, OTHER = f"{PODS_OF_A}/train", f"{PODS_OF_A}/other"
N1 = "/api/v1/nodes/n1"
PATCH = "application/merge-patch+json"


def gated(name="train", version="1"):
    limits = {"nvidia.com/mig-1g.5gb": "1"}
    return raw_pod(f"team-a/{name}", limits=limits, gates=[GATE], version=version)


def free(name="train", version="2", **fields):
    return raw_pod(f"team-a/{name}", limits={"nvidia.com/mig-1g.5gb": "1"}, version=version, **fields)


def answer(obj):
    return lambda _, wire: wire.json(200, obj)


def cut(_, wire):
    wire.cut()


class World:
    """An applier whose informers know one node and two gated pods, and a clock that the test moves."""

    def __init__(self, client):
        self.pods, self.nodes = Informer(client, PODS, project_pod), Informer(client, NODES, project_node)
        self.watch(gated(), gated("other"))
        raw = raw_node("n1")
        self.nodes.store.replace({"n1": Entry("", "1", project_node(msgspec.json.encode(raw)))}, "1")
        self.now, self.held, self.news = 1000.0, True, False
        self.applier = Applier(
            client,
            self.pods,
            self.nodes,
            held=lambda: self.held,
            news=lambda: self.news,
            now=lambda: self.now,
            clock=lambda: self.now,
            timeout_s=5.0,
            chance=lambda: 0.0,
        )

    def watch(self, *pods, version="1"):
        """Let the informer have seen these pods."""
        entries = {}
        for raw in pods:
            meta = raw["metadata"]
            seen = project_pod(msgspec.json.encode(raw))
            entries[f"{meta['namespace']}/{meta['name']}"] = Entry(meta["uid"], meta["resourceVersion"], seen)
        self.pods.store.replace(entries, version)

    def apply(self, *releases, layouts=(), cuts=(), due_s=math.inf):
        decision = Decision(
            ungate=tuple(self.release(key) for key in releases), layouts=tuple(layouts), cuts=tuple(cuts)
        )
        seen = picture(self.nodes.store.list(), self.pods.store.list(), self.now)
        return self.applier.apply(decision, seen, due_s)

    def release(self, key):
        pod = self.pods.store.get(key)
        return Release(pod=key, uid=pod.uid, version=pod.version)


@pytest.fixture
def world(client):
    made = World(client)
    yield made
    made.applier.close()


def test_a_release_is_one_merge_patch_and_seen_at_once(server, world):
    server.route("PATCH", TRAIN, answer(free()))
    assert world.apply("team-a/train") == math.inf
    [request] = server.asked("PATCH", TRAIN)
    assert request.headers["Content-Type"] == PATCH
    assert json.loads(request.body) == {
        "metadata": {"resourceVersion": "1", "annotations": {"nos.nebuly.com/released-at": "1970-01-01T00:16:40Z"}},
        "spec": {"schedulingGates": None},
    }
    seen = world.pods.store.get("team-a/train")
    assert (seen.gated, seen.released, seen.version) == (False, True, "2")


def test_a_label_that_is_not_true_is_written_and_seen_at_once(server, world):
    server.route("PATCH", TRAIN, answer(gated(version="2")))
    decision = Decision(relabel=(Relabel(pod="team-a/train", uid="uid-train", version="1", capacity="in-quota"),))
    seen = picture(world.nodes.store.list(), world.pods.store.list(), world.now)
    assert world.applier.apply(decision, seen) == math.inf
    [request] = server.asked("PATCH", TRAIN)
    assert json.loads(request.body)["metadata"]["labels"] == {"nos.nebuly.com/capacity": "in-quota"}
    assert world.pods.store.get("team-a/train").version == "2"


@pytest.mark.parametrize(
    ("news", "due_s", "answer_s", "written"),
    [
        pytest.param(True, math.inf, 0.4, 3, id="news: a second is over, and pods may come all the time"),
        pytest.param(False, math.inf, 0.4, 4, id="no news: what was decided holds"),
        pytest.param(False, math.inf, 4.0, 3, id="no news: but nothing is carried out for longer than ten seconds"),
        pytest.param(False, 2.0, 1.0, 2, id="no news: but there are victims to go on with"),
    ],
)
def test_a_claim_does_not_wait_until_ten_thousand_releases_are_written(
    server, client, monkeypatch, news, due_s, answer_s, written
):
    monkeypatch.setattr("reconciler.apply.WORKERS", 1)
    world = World(client)
    world.news = news
    keys = [f"team-a/p{number}" for number in range(4)]
    world.watch(*(gated(key.partition("/")[2]) for key in keys))

    def slowly(request, wire):
        world.now += answer_s
        wire.json(200, free(request.path.rpartition("/")[2]))

    for number in range(4):
        server.route("PATCH", f"{PODS_OF_A}/p{number}", slowly)
    assert world.apply(*keys, due_s=due_s) == (math.inf if written == 4 else 0.0)
    assert [request.path for request in server.requests] == [f"{PODS_OF_A}/p{number}" for number in range(written)]
    world.applier.close()


def test_orders_and_cuts_go_to_their_nodes(server, world):
    ordered = raw_node("n1", annotations={"nos.nebuly.com/spec-partitioning-plan": "1000000"})
    ordered["metadata"]["resourceVersion"] = "2"
    server.route("PATCH", N1, answer(ordered))
    target = {0: (Placement("1g.5gb", 6),)}
    world.apply(layouts=[Layout(node="n1", target=target, basis={0: ()}, destroys=False)])
    world.apply(cuts=[Cut(node="n1", plan="1000000")])
    order, allowed = (json.loads(request.body)["metadata"] for request in server.asked("PATCH", N1))
    assert order["resourceVersion"] == "1"
    assert order["annotations"]["nos.nebuly.com/spec-partitioning-plan"] == "1000000"  # 1000 s, in milliseconds
    assert allowed == {"resourceVersion": "2", "annotations": {"nos.nebuly.com/spec-cut": "1000000"}}


def node_of_two(version, used=False, start=0, **fields):
    """Return n1 with two boards: one with two slices, an empty one."""
    slices = [{"profile": "1g.5gb", "start": start, "used": used}, {"profile": "1g.5gb", "start": 6, "used": False}]
    raw = raw_node("n1", count=2, placements={"0": slices, "1": []}, **fields)
    raw["metadata"]["resourceVersion"] = version
    return raw


MORE = Layout(
    node="n1",
    target={0: (Placement("1g.5gb", 0), Placement("1g.5gb", 5), Placement("1g.5gb", 6))},
    basis={0: (Placement("1g.5gb", 0), Placement("1g.5gb", 6))},
    destroys=False,
)
LESS = Layout(node="n1", target={0: (Placement("1g.5gb", 6),)}, basis=MORE.basis, destroys=True)
PLAN = {"nos.nebuly.com/spec-partitioning-plan": "7", "nos.nebuly.com/status-partitioning-plan": "7"}


@pytest.mark.parametrize(
    ("layout", "now", "again"),
    [
        pytest.param(MORE, {"used": True}, True, id="a pod has landed: the layout is what the order was made from"),
        pytest.param(MORE, {"resources": {"nvidia.com/mig-1g.5gb": "2"}}, True, id="a slice is announced"),
        pytest.param(MORE, {"start": 3}, False, id="the board is cut in another way"),
        pytest.param(MORE, {"annotations": PLAN}, False, id="somebody else has given an order"),
        pytest.param(MORE, {"cordoned": True}, False, id="nobody can come to it any more"),
        pytest.param(LESS, {"used": True}, False, id="a slice that was to go is used"),
        pytest.param(LESS, {"resources": {"nvidia.com/mig-1g.5gb": "2"}}, True, id="nothing that was to go is used"),
    ],
)
def test_an_order_is_given_again_at_once_if_its_node_has_changed_in_nothing_that_decides(
    server, world, layout, now, again
):
    """Design 5: bound, per board, to the layout it was made from; agents tell of use while it is under way."""
    old = project_node(msgspec.json.encode(node_of_two("1")))
    world.nodes.store.replace({"n1": Entry("", "1", old)}, "1")
    server.route("PATCH", N1, refusal(409, "Conflict"), answer(node_of_two("4", **now)))
    server.route("GET", N1, answer(node_of_two("3", **now)))
    assert world.apply(layouts=[layout]) == (math.inf if again else 0.0)
    sent = [json.loads(request.body)["metadata"]["resourceVersion"] for request in server.asked("PATCH", N1)]
    assert sent == (["1", "3"] if again else ["1"])


def test_an_order_to_a_node_that_changes_all_the_time_is_decided_anew_in_the_end(server, world):
    versions = iter(range(3, 10))
    world.nodes.store.replace({"n1": Entry("", "1", project_node(msgspec.json.encode(node_of_two("1"))))}, "1")
    server.route("PATCH", N1, refusal(409, "Conflict"))
    server.route("GET", N1, lambda _, wire: wire.json(200, node_of_two(str(next(versions)), used=True)))
    assert world.apply(layouts=[MORE]) == 0.0
    assert len(server.asked("PATCH", N1)) == 4


def test_a_pod_that_has_changed_is_read_again_and_decided_anew(server, world):
    server.route("PATCH", TRAIN, refusal(409, "Conflict"))
    server.route("GET", TRAIN, answer(gated(version="5")))
    assert world.apply("team-a/train") == 0.0
    assert world.pods.store.get("team-a/train").version == "5"


def test_a_pod_that_is_gone_is_forgotten(server, world):
    server.route("PATCH", TRAIN, refusal(404, "NotFound"))
    assert world.apply("team-a/train") == 0.0
    assert world.pods.store.get("team-a/train") is None


def test_a_write_without_an_answer_counts_as_done_until_it_is_repeated(server, world):
    """Design 5, own writes: else the next settle grants the slice twice."""
    server.route("PATCH", TRAIN, cut, answer(free()))
    again_s = world.apply("team-a/train")
    assert again_s == 0.25  # half of 0.5 s, by the chance of 0
    assert world.pods.store.get("team-a/train").gated
    taken = world.applier.repeat_unknown()
    assert [(key, pod.released) for key, pod in taken.items()] == [("team-a/train", True)]
    assert len(server.asked("PATCH", TRAIN)) == 1  # not before its time

    world.now += again_s
    assert world.applier.repeat_unknown() == {}
    first, second = server.asked("PATCH", TRAIN)
    assert first.body == second.body  # the precondition included
    assert world.pods.store.get("team-a/train").released


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(lambda _, wire: wire.json(500, status(500, "InternalError")), id="500: etcd may have it"),
        pytest.param(lambda _, wire: wire.json(504, status(504, "Timeout")), id="504: the server gave up waiting"),
        pytest.param(lambda _, wire: wire.reply(200, b"<html>"), id="an answer that is no object"),
    ],
)
def test_a_failure_that_leaves_open_what_happened_counts_as_done(server, world, failure):
    server.route("PATCH", TRAIN, failure)
    world.apply("team-a/train")
    assert list(world.applier.repeat_unknown()) == ["team-a/train"]


def test_an_unknown_write_is_settled_by_a_later_state_of_its_object(server, world):
    """Done or not, with a newer resourceVersion it can no longer happen."""
    server.route("PATCH", TRAIN, cut)
    world.apply("team-a/train")
    world.watch(gated(version="9"), gated("other"), version="9")
    world.now += 60
    assert world.applier.repeat_unknown() == {}
    assert len(server.asked("PATCH", TRAIN)) == 1


def test_a_refusal_holds_back_only_the_pod_that_it_concerns(server, world):
    server.route("PATCH", TRAIN, refusal(403, "Forbidden"))
    server.route("PATCH", OTHER, answer(free("other")))
    assert world.apply("team-a/train", "team-a/other") == 0.25
    assert world.pods.store.get("team-a/other").released
    world.apply("team-a/train")
    assert len(server.asked("PATCH", TRAIN)) == 1
    world.now += 0.25
    assert world.apply("team-a/train") == 0.5  # twice as long
    assert len(server.asked("PATCH", TRAIN)) == 2


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(server, world):
    server.route("PATCH", TRAIN, refusal(429, "TooManyRequests", {"Retry-After": "7"}))
    assert world.apply("team-a/train") == 7.0


def test_what_was_refused_and_is_no_longer_decided_is_not_waited_for(server, world):
    """Else its time, once past, would keep the loop turning."""
    server.route("PATCH", TRAIN, refusal(403, "Forbidden"))
    world.apply("team-a/train")
    world.now += 10
    assert world.apply() == math.inf


def test_nothing_is_written_once_the_lease_is_lost(server, world):
    """R06: each step asks whether we still lead."""
    world.held = False
    world.apply("team-a/train", "team-a/other")
    assert server.requests == []
