"""A call that never returns: the node tells of it after half a minute, probes after two, for which the agent is ended."""

import threading

import pytest
from structlog.testing import capture_logs

from kube.resource import NODES, PODS
from reconciler.agent.service import Service
from tests.agent.test_service import Cluster
from tests.apiserver.server import PATIENCE_S, ApiServer
from tests.apiserver.steps import listing
from tests.sandbox.waiting import eventually


class Hanging:
    """A driver one call of which waits."""

    def __init__(self, driver):
        self._driver, self.called, self.go_on = driver, threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def boards(self):
        self.called.set()
        self.go_on.wait(PATIENCE_S)
        return self._driver.boards()


@pytest.fixture
def cluster(tmp_path):
    with ApiServer() as server:
        made = Cluster(server, tmp_path)
        made.now = 0.0
        made.service = Service(made.client, made.agent, node="n1", workers=1, ticks=lambda: made.now)
        yield made
        made.nodes.end()
        made.pods.end()
        made.service.stop()
        made.client.close()


def test_a_pass_that_hangs_is_told_on_the_node_after_half_a_minute_and_is_not_alive_after_two(cluster):
    hanging = []

    def make(node, pods):
        agent = cluster.agent(node, pods)
        hanging.append(Hanging(agent._boards._driver))
        agent._boards._driver = hanging[0]
        return agent

    cluster.service._make_agent = make
    cluster.service.start()
    cluster.server.wait_for(1, "GET", PODS.path(), watch=True)
    while not hanging:
        pass
    assert hanging[0].called.wait(PATIENCE_S)
    asked = []

    def silent(longer_s):
        asked.append(longer_s)
        return (3, 5)

    cluster.now = 29.0
    assert not cluster.service.say_if_hung(silent)
    cluster.now = 30.0
    assert not cluster.service.say_if_hung(lambda _: ()), "it is long, for all that is known: it may cut eight boards"
    assert (asked, cluster.written.empty()) == ([30.0], True)
    assert cluster.service.say_if_hung(silent)
    where = cluster.service.hangs(30.0)
    assert where.startswith("threading.py, line ")
    (condition,) = cluster.next_patch()["status"]["conditions"]
    assert condition["reason"] == "AgentFailed"
    assert condition["message"] == (
        f"a pass waits for GPU 3, GPU 5 ({where}), and all boards of the node with it: look for a GPU that does not answer "
        "nvidia-smi, and reset it or reboot the node; after two minutes the agent is started again"
    )
    assert asked == [30.0, 30.0]
    cluster.now = 119.0
    assert cluster.service.alive()
    cluster.now = 120.0
    assert not cluster.service.alive()
    assert not cluster.service.ready()
    hanging[0].go_on.set()
    patch = cluster.next_patch()
    assert patch["status"]["conditions"][0]["reason"] == "BoardsReady", "another pass takes it back"
    while not cluster.service.ready():
        pass
    assert cluster.service.alive(), "it has gone on"
    assert not cluster.service.say_if_hung(silent)


def test_an_agent_whose_node_is_not_there_is_not_ready_and_says_so(cluster):
    cluster.service = Service(cluster.client, cluster.agent, node="n-typo", workers=1)
    cluster.server.route("GET", NODES.path(), listing([], 10))
    with capture_logs() as logs:
        cluster.service.start()
        eventually(lambda: "no_such_node" in [entry["event"] for entry in logs], "it says so")
    assert not cluster.service.ready()
