"""The service between the API server and the agents: what wakes a pass, what is written, and what is tried again."""

import copy
import json
import queue
import threading

import pytest
from structlog.testing import capture_logs

from kube.client import STRATEGIC_PATCH, Client
from kube.resource import NODES, PODS
from policies import names
from policies.annotations import write_spec
from reconciler.agent.pods import read_pod
from reconciler.agent.report import report_stopped
from reconciler.agent.service import Service
from reconciler.agent.simulated.nodes import LATENCIES, simulated_agent
from tests.agent.merging import merge
from tests.agent.world import layout
from tests.apiserver.server import PATIENCE_S, ApiServer
from tests.apiserver.steps import Live, listing, refusal
from tests.builders import raw_node, raw_pod

STATUS = NODES.path(name="n1", subresource="status")
ONE = "nvidia.com/mig-1g.5gb"


class Cluster:
    """A scripted API server with one node; each patch of its status comes out of `written`, and goes into the watch."""

    def __init__(self, server, tmp_path, **node):
        self.node = raw_node(**node)
        self.node["metadata"]["uid"] = "uid-1"
        self.version = 10
        self.written = queue.Queue()
        self.rejected = queue.Queue()
        self._turn = threading.RLock()  # the agent's writes and the test's
        self.nodes, self.pods = Live(), Live()
        self.server = server
        server.route("GET", NODES.path(), listing([self.node], 10))
        server.route("GET", NODES.path(), self.nodes, watch=True)
        server.route("GET", PODS.path(), listing([], 10))
        server.route("GET", PODS.path(), self.pods, watch=True)
        server.route("PATCH", STATUS, self.patch)
        self.client = Client.load(server.kubeconfig(tmp_path))
        self.service = Service(self.client, self.agent, labels="a=b", workers=2, clock=lambda: 1_000.0)

    def agent(self, node, pods):
        return simulated_agent(node, pods, lambda pod, *_: self.rejected.put(pod.key), LATENCIES["none"])

    def patch(self, request, wire):
        assert request.headers["Content-Type"] == STRATEGIC_PATCH
        body = json.loads(request.body)
        with self._turn:
            merge(self.node, body)
            wire.json(200, self.changed())
        self.written.put(body)

    def changed(self):
        """Send the node as it is now down the watch, and return it."""
        with self._turn:
            self.version += 1
            self.node["metadata"]["resourceVersion"] = str(self.version)
            node = copy.deepcopy(self.node)
            self.nodes.send("MODIFIED", node)
            return node

    def annotate(self, annotations):
        with self._turn:
            self.node["metadata"]["annotations"] |= annotations
            self.changed()

    def pod(self, kind, key, **fields):
        with self._turn:
            self.version += 1
            self.pods.send(kind, raw_pod(key, node="n1", version=str(self.version), **fields))

    def next_patch(self):
        return self.written.get(timeout=PATIENCE_S)

    def placements(self):
        return json.loads(self.next_patch()["metadata"]["annotations"][names.STATUS_PLACEMENTS])


@pytest.fixture
def cluster(tmp_path):
    with ApiServer() as server:
        made = Cluster(server, tmp_path)
        yield made
        made.nodes.end()
        made.pods.end()
        made.service.stop()
        made.client.close()


def test_a_node_is_looked_at_when_it_appears_and_when_an_order_comes(cluster):
    cluster.service.start()
    assert set(cluster.next_patch()["metadata"]["annotations"]) == {names.INVENTORY, names.STATUS_PLACEMENTS}
    cluster.annotate(write_spec({0: layout(("3g.20gb", 4))}, {0: ()}, "5"))
    patch = cluster.next_patch()
    assert patch["metadata"]["annotations"][names.STATUS_PLAN] == "5"
    assert patch["status"]["allocatable"] == {"nvidia.com/mig-3g.20gb": "1"}
    assert cluster.written.empty(), "the echo of what was written is no news"
    assert cluster.service.ready()
    assert cluster.service.alive()


def test_pods_that_come_and_go_are_reported(cluster):
    cluster.service.start()
    cluster.annotate(write_spec({0: layout(("1g.5gb", 6))}, {0: ()}, "5"))
    while cluster.next_patch()["metadata"]["annotations"].get(names.STATUS_PLAN) != "5":
        pass
    cluster.pod("ADDED", "team-a/train", limits={ONE: 1})
    assert cluster.placements() == {"0": [{"profile": "1g.5gb", "start": 6, "used": True, "pod": "team-a/train"}]}
    cluster.pod("ADDED", "team-a/late", limits={ONE: 1})
    assert cluster.rejected.get(timeout=PATIENCE_S) == "team-a/late"
    cluster.pod("MODIFIED", "team-a/train", limits={ONE: 1}, phase="Succeeded")
    assert cluster.placements()["0"][0]["pod"] == "team-a/late"


def test_a_report_that_cannot_be_written_is_written_later(cluster):
    """R06 in small: what was done is not done again; the report follows from what is there."""
    cluster.server.route("PATCH", STATUS, refusal(500, "InternalError"), refusal(409, "Conflict"), cluster.patch)
    cluster.service.start()
    assert names.INVENTORY in cluster.next_patch()["metadata"]["annotations"]
    assert len(cluster.server.asked("PATCH", STATUS)) == 3


def test_a_node_that_is_gone_needs_no_report(cluster):
    cluster.server.route("PATCH", STATUS, refusal(404, "NotFound"))
    cluster.service.start()
    cluster.server.wait_for(1, "PATCH", STATUS)
    cluster.nodes.send(
        "DELETED", copy.deepcopy(cluster.node) | {"metadata": cluster.node["metadata"] | {"resourceVersion": "11"}}
    )
    again = copy.deepcopy(cluster.node)
    again["metadata"] |= {"uid": "uid-2", "resourceVersion": "12"}
    cluster.node, cluster.version = again, 12
    cluster.server.route("PATCH", STATUS, cluster.patch)
    cluster.nodes.send("ADDED", copy.deepcopy(again))
    assert cluster.next_patch()["metadata"]["uid"] == "uid-2", "made anew under the same name, it gets an agent anew"


def test_a_fault_of_ours_on_one_node_does_not_end_the_workers(cluster):
    made = cluster.agent
    broken = threading.Event()

    def breaks_once(node, pods):
        if not broken.is_set():
            broken.set()
            raise RuntimeError("a fault of ours")
        return made(node, pods)

    cluster.service._make_agent = breaks_once
    cluster.service.start()
    assert names.INVENTORY in cluster.next_patch()["metadata"]["annotations"]
    assert cluster.service.alive()


def test_nothing_is_done_before_pods_are_known(cluster):
    """A pod that is not known holds nothing: its slice would be given away."""
    gate = threading.Event()

    def late(request, wire):
        gate.wait(PATIENCE_S)
        listing([], 10)(request, wire)

    cluster.server.route("GET", PODS.path(), late)
    cluster.service.start()
    cluster.server.wait_for(1, "GET", NODES.path(), watch=True)
    assert not cluster.service.ready()
    assert cluster.written.empty()
    gate.set()
    assert cluster.next_patch()


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        pytest.param({"node": "n1", "limits": {ONE: 1}}, True, id="bound"),
        pytest.param({"node": "n1", "limits": {"nvidia.com/gpu-10gb": 1}}, True, id="mps"),
        pytest.param({"node": "n1", "limits": {"nvidia.com/gpu": 1}}, True, id="a-whole-gpu"),
        pytest.param({"node": "n1", "limits": {"example.com/tpu": 1}}, False, id="anothers-device"),
        pytest.param({"node": "n1", "limits": {ONE: 1}, "phase": "Failed"}, False, id="ended"),
        pytest.param({"limits": {ONE: 1}}, False, id="unbound"),
        pytest.param({"node": "n1"}, False, id="no-slice"),
    ],
)
def test_only_pods_that_hold_devices_are_kept(fields, kept):
    assert (read_pod(json.dumps(raw_pod(**fields)).encode()) is not None) is kept


def test_the_last_that_is_written_of_a_node_is_that_nothing_is_offered_any_more(cluster):
    cluster.service.start()
    cluster.annotate(write_spec({0: layout(("1g.5gb", 6))}, {0: ()}, "5"))
    while cluster.next_patch()["metadata"]["annotations"].get(names.STATUS_PLAN) != "5":
        pass
    cluster.service.stop()
    cluster.service.say(report_stopped)
    patch = cluster.next_patch()
    assert patch["status"]["allocatable"] == {ONE: "0"}
    assert patch["status"]["conditions"][0]["reason"] == "AgentStopped"
    cluster.service.say(report_stopped)
    assert cluster.written.empty(), "it is said already"


def test_an_api_server_that_is_away_at_the_end_keeps_no_agent_from_ending(cluster):
    cluster.service.start()
    cluster.next_patch()
    cluster.service.stop()
    cluster.server.route("PATCH", STATUS, refusal(500, "InternalError"))
    with capture_logs() as logs:
        cluster.service.say(report_stopped)
    assert [entry["event"] for entry in logs] == ["report_not_written"]
