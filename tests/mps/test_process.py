"""The agent's own process in MPS mode: NVML, the kubelet's sockets, the API server and the MPS program are outside of it."""

import signal

import pytest

from policies import names
from policies.annotations import write_spec
from policies.settings import DEFAULTS
from tests.agent.process import AgentProcess, condition
from tests.agent.world import layout
from tests.builders import T4
from tests.mps.standin import UID
from tests.nvml.library import needs_gcc

pytestmark = [
    needs_gcc,
    pytest.mark.skipif(DEFAULTS.mps.user_id != UID, reason="only root's daemons can have servers of another uid"),
]

TEN = "nvidia.com/gpu-10gb"


def cut(agent, plan, basis, target):
    agent.annotate(write_spec({0: layout(*target)}, {0: layout(*basis)}, plan))
    agent.wait(lambda node: node["metadata"]["annotations"].get(names.STATUS_PLAN) == plan)


@pytest.fixture
def agent(node):
    environment = {
        "PATH": f"{node.directory}:/usr/bin:/bin",
        "APPORTION_MPS_DIRECTORY": str(node.site.root),
    }
    with AgentProcess(T4, node={"product": T4, "mode": "mps"}, environment=environment) as agent:
        cut(agent, "1", (), ("10gb",))
        yield agent


def test_a_slice_is_served_by_a_daemon_that_outlives_the_agent(agent, node):
    """A01, A02: what the container gets; kill -9, a restart and an ordered end of the agent leave its programs alone."""
    (board,) = agent.machine.uuids
    assert condition(agent.node) == ("True", "BoardsReady", "")
    answer = agent.kubelet.admit("team-a/train", TEN)
    pipes = str(node.site.pipes(board))
    assert dict(answer.envs) == {
        "NVIDIA_VISIBLE_DEVICES": board,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=9600M",
        "CUDA_MPS_PIPE_DIRECTORY": pipes,
    }
    assert [(mount.host_path, mount.container_path) for mount in answer.mounts] == [
        (pipes, pipes),
        ("/dev/shm", "/dev/shm"),
    ]
    pid = node.pid(board)
    with node.attach(board) as program:
        assert program.recv(99) == b"ACTIVE\n"
        agent.stop(signal.SIGKILL)
        agent.start()
        cut(agent, "2", ("10gb",), ("10gb", "1gb"))
        agent.stop(signal.SIGTERM)
        agent.start()
        cut(agent, "3", ("10gb", "1gb"), ("10gb", "1gb", "1gb"))
        program.setblocking(False)  # noqa: FBT003
        with pytest.raises(BlockingIOError):
            program.recv(1)
    assert node.pid(board) == pid
    assert agent.log().count("mps_daemon_found") == 2
    assert agent.log().count("mps_daemon_started") == 1


def test_a_daemon_that_dies_takes_its_slices_from_the_node_and_brings_them_back(agent, node):
    (board,) = agent.machine.uuids
    node.break_by("dies")
    node.kill(board)
    agent.wait(lambda node: node["status"]["allocatable"][TEN] == "0")
    assert condition(agent.node)[:2] == ("False", "BoardFailed")
    node.break_by()
    # The longer the node has taken so far, the longer is the pause before it is started again.
    agent.wait(lambda node: node["status"]["allocatable"][TEN] == "1", patience_s=60.0)
