"""The agent on a real API server: that its patch does what it is meant to, and that it serves as a process."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

from kube.client import Client
from kube.errors import ApiError
from kube.resource import NODES, PODS
from policies import names
from policies.annotations import write_spec
from tests.agent.world import layout
from tests.apiserver.server import PATIENCE_S
from tests.builders import raw_node, raw_pod

pytestmark = pytest.mark.sandbox

NODE = "agent-test"
PATH = NODES.path(name=NODE)
THREE, SEVEN = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-7g.40gb"


@pytest.fixture
def client(sandbox):
    connected = Client.load(str(sandbox.kubeconfig), user_agent="apportion-test/1")
    yield connected
    connected.close()


@pytest.fixture
def node(client):
    """A node that only the agent of this test serves."""
    made = raw_node(NODE, labels={"served-by": NODE})
    made["metadata"].pop("resourceVersion")
    client.create(NODES.path(), made)
    yield
    client.delete(PATH)


@pytest.fixture
def agent(sandbox, node):
    """Start an agent as a process; return a function that starts another."""
    running = []

    def start():
        command = [sys.executable, "-m", "reconciler.agent", "--simulated", "--port=0", f"--selector=served-by={NODE}"]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, env={**os.environ, "KUBECONFIG": str(sandbox.kubeconfig)}, text=True
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stderr.close()


class Watched:
    """What happens to the node, in order."""

    def __init__(self, client):
        self._seen = queue.Queue()
        self._stream = client.watch(NODES.path(), {"fieldSelector": f"metadata.name={NODE}"}, PATIENCE_S)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self):
        self._stream.interrupt()
        self._thread.join(PATIENCE_S)

    def _run(self):
        with self._stream as stream:
            for line in stream:
                self._seen.put(json.loads(line)["object"])

    def until(self, holds):
        """Return the first state of the node, from here on, of which `holds` is true."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            state = self._seen.get(timeout=max(0.0, give_up - time.monotonic()))
            if holds(state):
                return state


@pytest.fixture
def watched(client, node):
    opened = Watched(client)
    yield opened
    opened.close()


def note(state, name):
    return state["metadata"].get("annotations", {}).get(name, "")


def annotate(client, annotations):
    client.merge_patch(PATH, {"metadata": {"annotations": annotations}})


def test_a_node_is_cut_used_recut_and_taken_up_again_by_the_next_agent(client, agent, watched):
    first = agent()
    watched.until(lambda state: note(state, names.INVENTORY))

    threes = layout(("3g.20gb", 0), ("3g.20gb", 4))
    annotate(client, write_spec({0: threes}, {0: ()}, "1"))
    state = watched.until(lambda state: note(state, names.STATUS_PLAN) == "1")
    assert state["status"]["allocatable"][THREE] == "2", "in the same patch as the plan"
    assert state["status"]["allocatable"]["cpu"] == "64", "what is not ours stays"
    conditions = {condition["type"]: condition["status"] for condition in state["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert conditions[names.PARTITIONING_CONDITION] == "True"

    pod = raw_pod(f"default/{NODE}", limits={THREE: "1"}, node=NODE)
    for field in ("uid", "resourceVersion"):
        pod["metadata"].pop(field)
    client.create(PODS.path("default"), pod)
    state = watched.until(lambda state: f"default/{NODE}" in note(state, names.STATUS_PLACEMENTS))
    used = [item for item in json.loads(note(state, names.STATUS_PLACEMENTS))["0"] if item["used"]]
    assert [item["start"] for item in used] == [4], "which leaves the start for a 4g"

    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 0
    annotate(client, write_spec({0: layout(("2g.10gb", 0), ("3g.20gb", 4))}, {0: threes}, "2"))
    agent()
    watched.until(lambda state: '"withdrawn":true' in note(state, names.STATUS_PLACEMENTS))
    annotate(client, {names.SPEC_CUT: "2"})
    state = watched.until(lambda state: note(state, names.STATUS_PLAN) == "2")
    assert json.loads(note(state, names.STATUS_PLACEMENTS)) == {
        "0": [
            {"profile": "2g.10gb", "start": 0, "used": False},
            {"profile": "3g.20gb", "start": 4, "used": True, "pod": f"default/{NODE}"},
        ]
    }
    assert {name: n for name, n in state["status"]["allocatable"].items() if name.startswith("nvidia.com/")} == {
        THREE: "1",
        "nvidia.com/mig-2g.10gb": "1",
    }
    counts = {key for key in state["metadata"]["annotations"] if key.startswith(names.STATUS_GPU)}
    assert counts == {names.STATUS_GPU + "0-3g.20gb-used", names.STATUS_GPU + "0-2g.10gb-free"}
    client.delete(PODS.path("default", NODE), {"gracePeriodSeconds": 0})


def test_a_patch_for_an_earlier_node_of_the_same_name_is_refused(client, node):
    with pytest.raises(ApiError, match="uid"):
        client.strategic_patch(
            f"{PATH}/status", {"metadata": {"uid": "an-earlier-one"}, "status": {"capacity": {SEVEN: "1"}}}
        )


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        pytest.param(["--simulated", "--kubeconfig=/nowhere"], 1, "no kubeconfig at /nowhere", id="no-kubeconfig"),
        pytest.param([], 2, "give --node-name (or APPORTION_NODE_NAME)", id="no-node"),
        pytest.param(["--simulated", "--latency=slow"], 2, "'slow' is not one of 'none', 'real'", id="usage"),
    ],
)
def test_what_keeps_the_agent_from_starting_is_said_in_a_line(arguments, status, message):
    done = subprocess.run(
        [sys.executable, "-m", "reconciler.agent", *arguments], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == status
    assert message in done.stderr
