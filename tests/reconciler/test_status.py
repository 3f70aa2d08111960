"""What is said on pods and nodes, when, and how often; against a scripted API server."""

import json

import msgspec
import pytest

from kube.events import EventRecorder
from kube.informer import Informer
from kube.resource import NODES, PODS
from kube.store import Entry
from policies.decision import Waiting
from reconciler.observe import TOLD, project_node, project_pod, told
from reconciler.scribe import Scribe
from reconciler.status import WaitingReport
from tests.apiserver.steps import refusal
from tests.builders import raw_node, raw_pod

TRAIN = "/api/v1/namespaces/team-a/pods/train/status"
EVENTS = "/api/v1/namespaces/team-a/events"
N1 = "/api/v1/nodes/n1/status"
NO_ROOM = ("NoSliceFits", "needs 3g.20gb; 5 boards have 20 GB free, none contiguous")
STRATEGIC = "application/strategic-merge-patch+json"


def gated(name="train", *, waiting=None, version="1", gates=("nos.nebuly.com/admission",)):
    pod = raw_pod(f"team-a/{name}", limits={"nvidia.com/mig-3g.20gb": "1"}, gates=gates, version=version)
    if waiting:
        condition = {"type": "nos.nebuly.com/Admitted", "status": "False", "reason": waiting[0], "message": waiting[1]}
        pod["status"] = {"phase": "Pending", "conditions": [condition]}
    return pod


def echo(_, wire):
    """Answer as the API server does to a patch of a pod of which only the condition matters."""
    wire.json(200, gated(waiting=NO_ROOM, version="2"))


class World:
    """A writer whose informers know what the test says, at a time that it moves."""

    def __init__(self, client, at_most=25):
        self.pods = Informer(client, PODS, project_pod, indexes={TOLD: told})
        self.nodes = Informer(client, NODES, project_node)
        self.now, self.held = 1772442000.0, True
        self.recorder = EventRecorder(client, "tests")
        self.report = WaitingReport(self.pods, self.nodes, self.recorder, now=lambda: self.now, clock=lambda: self.now)
        self.scribe = Scribe(
            client,
            "condition",
            self.report.differences,
            every_s=1.0,
            at_most=at_most,
            held=lambda: self.held,
            clock=lambda: self.now,
        )

    def see(self, *pods):
        entries = {}
        for raw in pods:
            seen = project_pod(msgspec.json.encode(raw))
            entries[seen.key] = Entry(seen.uid, seen.version, seen)
        self.pods.store.replace(entries, "1")

    def see_node(self, **fields):
        raw = raw_node("n1", **fields)
        self.nodes.store.replace({"n1": Entry("", "1", project_node(msgspec.json.encode(raw)))}, "1")
        return raw

    def say(self, *waiting):
        self.report.say(
            [Waiting(pod=f"team-a/{pod}", reason=reason, message=message) for pod, (reason, message) in waiting]
        )

    def ticks(self, count=2):
        for _ in range(count):
            self.scribe.tick()
            self.now += 1.0


@pytest.fixture
def world(client):
    made = World(client)
    yield made
    made.recorder.close()


def conditions(server, path=TRAIN):
    return [json.loads(request.body)["status"]["conditions"][0] for request in server.asked("PATCH", path)]


def test_a_pod_that_waits_is_told_why_by_a_condition_and_an_event(server, world):
    """L01."""
    server.route("PATCH", TRAIN, echo)
    server.route("POST", EVENTS, lambda _, wire: wire.json(201, {"metadata": {"name": "e", "namespace": "team-a"}}))
    world.see(gated())
    world.say(("train", NO_ROOM))
    world.ticks()
    [request] = server.asked("PATCH", TRAIN)
    assert request.headers["Content-Type"] == STRATEGIC
    assert json.loads(request.body) == {
        "metadata": {"uid": "uid-train"},
        "status": {
            "conditions": [
                {
                    "type": "nos.nebuly.com/Admitted",
                    "status": "False",
                    "reason": "NoSliceFits",
                    "message": "needs 3g.20gb; 5 boards have 20 GB free, none contiguous",
                    "lastTransitionTime": "2026-03-02T09:00:01Z",
                }
            ]
        },
    }
    [event] = server.wait_for(1, "POST", EVENTS)
    told = json.loads(event.body)
    assert (told["type"], told["reason"], told["message"]) == ("Warning", *NO_ROOM)
    assert told["involvedObject"]["uid"] == "uid-train"

    world.ticks(40)
    assert len(server.asked("PATCH", TRAIN)) == 1  # what it says is true


@pytest.mark.parametrize("reason", ["SliceBeingCut", "CutForOthersFirst", "SlicesPromised"])
def test_what_passes_by_itself_is_told_without_a_warning(server, world, reason):
    server.route("PATCH", TRAIN, echo)
    server.route("POST", EVENTS, lambda _, wire: wire.json(201, {"metadata": {"name": "e", "namespace": "team-a"}}))
    world.see(gated())
    world.say(("train", (reason, "needs 1g.5gb; in a moment")))
    world.ticks()
    [event] = server.wait_for(1, "POST", EVENTS)
    assert json.loads(event.body)["type"] == "Normal"


def test_a_pod_that_waits_for_less_than_a_tick_is_not_written_to(server, world):
    """Most wait for a cut only, and a write of ours would make the release of the same moment stale."""
    world.see(gated())
    world.say(("train", ("SliceBeingCut", "n1 is being cut")))
    world.ticks(1)
    world.say()
    world.ticks(1)
    assert server.requests == []


def test_a_message_of_which_only_the_numbers_change_is_written_twice_a_minute_at_most(server, world):
    server.route("PATCH", TRAIN, echo)
    world.see(gated())
    world.say(("train", NO_ROOM))
    world.ticks(2)
    for boards in range(25):
        world.say(("train", ("NoSliceFits", f"needs 3g.20gb; {boards} boards have 20 GB free, none contiguous")))
        world.ticks(1)
    assert len(conditions(server)) == 1
    world.ticks(10)
    assert [item["message"][15:17] for item in conditions(server)] == ["5 ", "24"]


def test_another_reason_is_told_at_the_next_tick_but_one(server, world):
    server.route("PATCH", TRAIN, echo)
    world.see(gated(waiting=NO_ROOM))
    world.say(("train", ("NodesAway", "only n7 could serve 3g.20gb; it is cordoned")))
    world.ticks(2)
    [condition] = conditions(server)
    assert condition["reason"] == "NodesAway"
    assert "lastTransitionTime" not in condition  # it was False before


def test_a_pod_that_was_released_is_told_so(server, world):
    server.route("PATCH", TRAIN, lambda _, wire: wire.json(200, gated(gates=(), version="2")))
    world.see(gated(waiting=NO_ROOM, gates=()))
    world.say()
    world.ticks(3)
    assert conditions(server) == [
        {
            "type": "nos.nebuly.com/Admitted",
            "status": "True",
            "reason": "AsExpected",
            "message": "",
            "lastTransitionTime": "2026-03-02T09:00:00Z",
        }
    ]


def test_nothing_is_said_before_the_first_decision(server, world):
    world.see(gated(waiting=NO_ROOM, gates=()))
    world.ticks(3)
    assert server.requests == []


def test_nothing_is_said_once_the_lease_is_lost(server, world):
    world.see(gated())
    world.say(("train", NO_ROOM))
    world.held = False
    world.ticks(3)
    assert server.requests == []


def test_a_tick_writes_a_bounded_number_in_the_order_of_the_queue(server, client):
    world = World(client, at_most=2)
    world.see(gated("p3"), gated("p1"), gated("p2"))
    world.say(("p1", NO_ROOM), ("p2", NO_ROOM), ("p3", NO_ROOM))
    world.ticks(2)
    written = [request.path for request in server.requests if request.method == "PATCH"]
    assert written == [f"/api/v1/namespaces/team-a/pods/{name}/status" for name in ("p1", "p2")]


def test_a_refused_condition_does_not_keep_the_others_from_being_told(server, world):
    server.route("PATCH", TRAIN, refusal(403, "Forbidden"))
    world.see(gated(), gated("zeta"))
    world.say(("train", NO_ROOM), ("zeta", NO_ROOM))
    world.ticks(2)
    assert server.asked("PATCH", "/api/v1/namespaces/team-a/pods/zeta/status")


def test_a_node_whose_boards_no_table_knows_says_so_until_an_agent_reports(server, world):
    """Bad input: an unknown GPU model; the node is left alone."""
    raw = world.see_node(product="NVIDIA-Z900-96GB")
    message = (
        "label nvidia.com/gpu.product: 'NVIDIA-Z900-96GB' is in no table and no agent has reported "
        "nos.nebuly.com/gpu-inventory; its boards are left alone"
    )
    told = {"type": "nos.nebuly.com/Partitioning", "status": "False", "reason": "NotUnderstood", "message": message}
    raw["metadata"]["resourceVersion"] = "2"
    raw["status"]["conditions"].append(told)
    server.route("PATCH", N1, lambda _, wire: wire.json(200, raw))
    world.say()
    world.ticks(3)
    [condition] = conditions(server, N1)
    assert condition == {**told, "lastTransitionTime": "2026-03-02T09:00:00Z"}

    world.see_node(product="NVIDIA-Z900-96GB", annotations={"nos.nebuly.com/gpu-inventory": "[]"})
    world.ticks(1)
    assert len(conditions(server, N1)) == 1  # the agent speaks for itself now


def test_what_an_agent_says_of_its_node_is_not_overwritten(server, world):
    raw = raw_node("n1", product="NVIDIA-Z900-96GB")
    raw["status"]["conditions"].append(
        {"type": "nos.nebuly.com/Partitioning", "status": "False", "reason": "NoBoards", "message": "no driver"}
    )
    world.nodes.store.replace({"n1": Entry("", "1", project_node(msgspec.json.encode(raw)))}, "1")
    world.say()
    world.ticks(3)
    assert server.requests == []


def test_that_victims_go_for_a_pod_is_written_at_once_and_before_all_else(server, client):
    """ADR 6: the next leader reads it. The Event is the evictor's, which knows the victims."""
    world = World(client, at_most=1)
    claims = "/api/v1/namespaces/team-a/pods/claims/status"
    for path, name in ((TRAIN, "train"), (claims, "claims")):
        server.route("PATCH", path, lambda _, wire, name=name: wire.json(200, gated(name, version="2")))
    world.see(gated(), gated("claims"))
    world.say(("train", NO_ROOM), ("claims", ("Evicting", "team-b/lent goes")))
    world.ticks(1)
    assert [request.path for request in server.requests] == [claims]
    [condition] = conditions(server, claims)
    assert (condition["status"], condition["reason"]) == ("False", "Evicting")
    world.recorder.close()
    assert server.asked("POST", EVENTS) == []
