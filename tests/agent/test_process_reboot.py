"""A node that loses power, and the whole agent on it: its program, its sockets, its files, real NVML calls (docs/adr/0023)."""

import signal

import pynvml

from policies.annotations import write_spec
from tests.agent.process import AgentProcess
from tests.agent.world import layout
from tests.builders import A100
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc

THREE = "nvidia.com/mig-3g.20gb"
RUNNING = {"limits": {THREE: 1}, "phase": "Running", "uid": "uid-of-train"}


def lose_power(agent):
    """End agent and kubelet without a word; instances are gone when the node is up again, and the kubelet's checkpoint is not."""
    agent.stop(signal.SIGKILL)
    agent.kubelet.stop()
    agent.machine.enter()
    pynvml.nvmlInit()
    agent.machine.reboot()
    agent.machine.leave()
    agent.kubelet.start()
    agent.start()
    agent.pod("ADDED", "team-a/train", **RUNNING)


def slices(agent, node):
    return agent.placements(node).get("0", [])


def runs_with_a_slice(agent):
    agent.annotate(write_spec({0: layout(("3g.20gb", 0), ("3g.20gb", 4))}, {0: ()}, "1"))
    agent.kubelet.wait(lambda kubelet: kubelet.counts() == {THREE: (2, 2)})
    answer = agent.kubelet.admit("team-a/train", THREE)
    agent.pod("ADDED", "team-a/train", **RUNNING)
    agent.wait(lambda node: [item.get("pod") for item in slices(agent, node)].count("team-a/train") == 1)
    return answer


def test_the_layout_comes_back_and_the_pod_that_was_told_of_the_old_device_is_to_go():
    with AgentProcess(A100) as agent:
        runs_with_a_slice(agent)
        before = agent.machine_numbers().keys()
        lose_power(agent)
        agent.wait(lambda node: "uid-of-train" in [item.get("stale") for item in slices(agent, node)])
        assert agent.machine_numbers().keys() == before
        assert agent.kubelet.counts() == {THREE: (2, 2)}
        agent.kubelet.end("team-a/train")
        agent.pod("DELETED", "team-a/train", **RUNNING)
        agent.wait(lambda node: not any(item["used"] or "stale" in item for item in slices(agent, node)))


def test_with_cdi_the_name_stands_for_the_new_device_and_the_pod_goes_on(tmp_path):
    settings = {"APPORTION_DEVICE_IDS": "cdi", "APPORTION_CDI_DIRECTORY": str(tmp_path)}
    with AgentProcess(A100, environment=settings) as agent:
        answer = runs_with_a_slice(agent)
        assert not answer.envs
        (spec,) = tmp_path.iterdir()
        before = spec.read_text()
        lose_power(agent)
        agent.kubelet.wait(lambda kubelet: kubelet.counts() == {THREE: (2, 2)})
        assert spec.read_text() != before
        assert spec.read_text().count("MIG-") == before.count("MIG-")
        assert not any("stale" in item for item in slices(agent, agent.node))
