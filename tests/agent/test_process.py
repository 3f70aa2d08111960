"""The agent's process on a whole machine: NVML's library, the kubelet's sockets and the API server are outside of it."""

import signal

import pytest

from kube.resource import NODES, PODS
from policies import names
from policies.annotations import write_spec
from tests.agent.process import AgentProcess, condition
from tests.agent.world import layout
from tests.builders import A100, T4
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc

ONE, TWO, THREE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"
ALL_ONE = layout(*(("1g.5gb", start) for start in range(7)))
READY = ("True", "BoardsReady", "")


def allocatable(node, resource):
    return node["status"]["allocatable"].get(resource)


def done(plan):
    return lambda node: node["metadata"]["annotations"].get(names.STATUS_PLAN) == plan


def order(agent, plan, basis, *target):
    agent.annotate(write_spec({0: layout(*target)}, {0: layout(*basis)}, plan))


@pytest.fixture
def agent():
    with AgentProcess(A100) as agent:
        yield agent


def test_a_slice_is_cut_announced_told_and_given(agent):
    order(agent, "1", (), ("3g.20gb", 4))
    patch = agent.wait(done("1"))
    assert patch["status"]["allocatable"] == {THREE: "1"}, "plan and allocatable arrive together (P16)"
    assert condition(agent.node) == READY
    looks = agent.kubelet.asked.count("List")
    agent.pod("ADDED", "team-a/train", limits={THREE: 1}, phase="Pending")
    agent.kubelet.wait(lambda kubelet: kubelet.asked.count("List") > looks)
    answer = agent.kubelet.admit("team-a/train", THREE)
    assert set(answer.envs) == {"NVIDIA_VISIBLE_DEVICES"}
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"].startswith("MIG-")
    agent.pod("MODIFIED", "team-a/train", limits={THREE: 1}, phase="Running")
    agent.wait(lambda node: agent.placements(node)["0"][0].get("pod") == "team-a/train")


def test_it_watches_its_own_node_and_the_pods_on_it(agent):
    agent.wait(condition)
    (nodes,) = agent.api.wait_for(1, "GET", NODES.path(), watch=True)[:1]
    (pods,) = agent.api.wait_for(1, "GET", PODS.path(), watch=True)[:1]
    assert nodes.query["fieldSelector"] == "metadata.name=n1"
    assert pods.query["fieldSelector"] == "spec.nodeName=n1"
    assert "labelSelector" not in nodes.query


def test_what_must_go_is_gone_from_kubelet_and_node_before_it_is_destroyed(agent):
    order(agent, "1", (), ("2g.10gb", 4), ("3g.20gb", 0))
    agent.wait(done("1"))
    order(agent, "2", (("2g.10gb", 4), ("3g.20gb", 0)), ("3g.20gb", 0), ("1g.5gb", 4))
    patch = agent.wait(lambda node: allocatable(node, TWO) == "0")
    assert patch["status"]["capacity"] == {TWO: "0"}
    assert agent.kubelet.counts()[TWO] == (0, 0)
    assert [item.get("withdrawn") for item in agent.placements(agent.node)["0"]] == [None, True]
    assert len(agent.machine_numbers()) == 2, "and not destroyed: the leader has not looked yet"
    agent.annotate({names.SPEC_CUT: "2"})
    patch = agent.wait(done("2"))
    assert patch["status"]["allocatable"] == {ONE: "1"}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({"capacity": {ONE: "0"}, "allocatable": {ONE: "0"}}, id="zeroed-at-its-start"),
        pytest.param({"capacity": {ONE: None}, "allocatable": {ONE: None}}, id="removed-at-its-start"),
        pytest.param({"allocatable": {ONE: "1"}}, id="older-than-ours"),
        pytest.param({"capacity": {TWO: "3"}, "allocatable": {TWO: "3"}}, id="left-by-another-plugin"),
    ],
)
def test_what_the_kubelet_writes_over_ours_is_corrected_at_once(agent, written):
    """A07: by the next pass, which its write causes, not by the next look half a minute later."""
    order(agent, "1", (), ("1g.5gb", 0), ("1g.5gb", 1))
    agent.wait(done("1"))
    agent.write_status(**written)
    right = {resource: {ONE: "2", TWO: "0"}[resource] for resource in written["allocatable"]}
    patch = agent.wait(lambda node: all(allocatable(node, name) == count for name, count in right.items()))
    assert patch["status"]["allocatable"] == right


def test_a_kubelet_that_restarts_is_served_again_and_its_numbers_corrected(agent):
    order(agent, "1", (), ("1g.5gb", 0), ("1g.5gb", 1))
    agent.wait(done("1"))
    agent.kubelet.stop()
    agent.wait(lambda node: condition(node)[1] == "KubeletDisagrees" and allocatable(node, ONE) == "0")
    agent.kubelet.start()
    agent.wait(lambda node: allocatable(node, ONE) == "2" and condition(node) == READY)
    assert agent.kubelet.admit("team-a/train", ONE).envs["NVIDIA_VISIBLE_DEVICES"]


def test_an_xid_makes_devices_unhealthy_at_once(agent):
    order(agent, "1", (), ("1g.5gb", 0))
    agent.wait(done("1"))
    agent.machine.xid(agent.machine.uuids[0], 79)
    patch = agent.wait(lambda node: allocatable(node, ONE) == "0")
    assert "capacity" not in patch["status"], "it exists, and cannot serve"
    assert agent.kubelet.counts() == {ONE: (1, 0)}
    assert condition(agent.node)[:2] == ("False", "BoardFailed")
    assert "XID error 79" in condition(agent.node)[2]


def test_an_agent_that_starts_again_finds_all_as_it_was(agent):
    order(agent, "1", (), ("1g.5gb", 0), ("1g.5gb", 1))
    agent.wait(done("1"))
    first = agent.kubelet.admit("team-a/train", ONE).envs["NVIDIA_VISIBLE_DEVICES"]
    assert agent.stop(signal.SIGKILL) == -signal.SIGKILL
    agent.kubelet.wait(lambda kubelet: kubelet.counts() == {ONE: (2, 0)})
    agent.start()
    agent.kubelet.wait(lambda kubelet: kubelet.counts() == {ONE: (2, 2)})
    second = agent.kubelet.admit("team-a/late", ONE).envs["NVIDIA_VISIBLE_DEVICES"]
    assert first != second
    assert set(agent.kubelet.holders) == {f"{agent.machine.uuids[0]}/1g.5gb/{start}" for start in (0, 1)}


def test_it_ends_in_good_order_when_it_is_told_to():
    with AgentProcess(A100) as agent:
        order(agent, "1", (), ("1g.5gb", 0))
        agent.wait(done("1"))
        assert agent.stop() == 0
        patch = agent.wait(lambda node: allocatable(node, ONE) == "0")
        assert "capacity" not in patch["status"]
        assert condition(agent.node) == ("False", "AgentStopped", "its agent has ended")
        agent.kubelet.wait(lambda kubelet: kubelet.counts() == {ONE: (1, 0)})
        assert [path.name for path in agent.kubelet.plugins.iterdir()] == ["kubelet.sock"]
        assert '"stopped"' in agent.log()
        assert "Traceback" not in agent.log()


@pytest.mark.parametrize(
    ("options", "reason", "message"),
    [
        pytest.param({"driver": False}, "NoBoards", "is NVIDIA's driver installed, and visible to the agent?", id="no-library"),
        pytest.param({"kubelet": False}, "KubeletDisagrees", "Apportion needs a kubelet of Kubernetes 1.30 or later", id="no-kubelet"),
    ],
)  # fmt: skip
def test_what_a_node_lacks_is_in_its_condition_and_the_agent_stays(options, reason, message):
    """A14, A23."""
    with AgentProcess(T4, node={"product": T4, "mode": "mps"}, **options) as agent:
        agent.wait(lambda node: condition(node)[1] == reason and message in condition(node)[2])
        assert agent.stop() == 0
        assert "Traceback" not in agent.log()


def test_its_memory_is_below_ninety_mib_with_eight_boards_cut_into_fifty_six_slices():
    with AgentProcess(*[A100] * 8, node={"count": 8}) as agent:
        agent.annotate(write_spec(dict.fromkeys(range(8), ALL_ONE), dict.fromkeys(range(8), ()), "1"))
        agent.wait(done("1"))
        assert allocatable(agent.node, ONE) == "56"
        for n in range(56):
            agent.kubelet.admit(f"team-a/p{n}", ONE)
            agent.pod("ADDED", f"team-a/p{n}", limits={ONE: 1}, phase="Running")
        agent.wait(lambda node: sum(item["used"] for items in agent.placements(node).values() for item in items) == 56)
        assert agent.resident_mib() <= 90
        print(f"{agent.resident_mib():.1f} MiB")
