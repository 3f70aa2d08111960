"""What the node agent may do, by RBAC and by the admission policy, on a real API server with the token of its pod.

The manifests are those of an overlay with other names: the policy knows agents by the end of their account's name.
"""

import json
import subprocess
import sys
from copy import deepcopy

import pytest
import yaml

from kube.client import Client
from kube.errors import Forbidden
from kube.resource import NODES, PODS, Resource
from policies import names
from policies.annotations import write_spec
from tests.agent.world import layout
from tests.builders import raw_node
from tests.sandbox.waiting import create_namespace, eventually

pytestmark = pytest.mark.sandbox

NAMESPACE, ACCOUNT = "gpus", "x-apportion-agent"
OURS, FOREIGN = "rights-a", "rights-b"
ACCOUNTS = Resource("", "v1", "serviceaccounts", namespaced=True)
READY = {"type": "Ready", "status": "True"}
OUR_CONDITION = {"type": names.PARTITIONING_CONDITION, "status": "True", "reason": "BoardsReady", "message": ""}


@pytest.fixture(scope="module")
def admin(sandbox, renamed):
    """Two nodes, the agent's account with its rights, and a pod of it on the first node."""
    client = Client.load(str(sandbox.kubeconfig))
    create_namespace(sandbox, NAMESPACE)
    rights = [one for one in renamed if "apportion-agent" in one["metadata"]["name"] and one["kind"] != "DaemonSet"]
    sandbox.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(rights))
    for name in (OURS, FOREIGN):
        node = raw_node(
            name, labels={"rights": name}, annotations={"example.com/note": "kept"}, resources={"example.com/disk": "1"}
        )
        del node["metadata"]["resourceVersion"]
        client.create(NODES.path(), node)
    yield client
    for name in (OURS, FOREIGN):
        client.delete(NODES.path(name=name))
    sandbox.kubectl("delete", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(rights))
    client.close()


def configure(sandbox, admin, directory, bound_to=None):
    """Return a kubeconfig with a token of the agent's account, bound to a pod if one is given."""
    binding = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **bound_to}} if bound_to else {}
    answer = admin.create(ACCOUNTS.path(NAMESPACE, ACCOUNT, "token"), {"spec": {"expirationSeconds": 3600, **binding}})
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": json.loads(answer)["status"]["token"]}}]
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture(scope="module")
def kubeconfig(sandbox, admin, tmp_path_factory):
    """What the agent of node rights-a has: the token that the kubelet gives its pod."""
    container = {"name": "agent", "image": "registry.example/agent:1"}
    spec = {"nodeName": OURS, "serviceAccountName": ACCOUNT, "containers": [container]}
    made = json.loads(admin.create(PODS.path(NAMESPACE), {"metadata": {"name": "agent"}, "spec": spec}))
    pod = {"name": "agent", "uid": made["metadata"]["uid"]}
    yield configure(sandbox, admin, tmp_path_factory.mktemp("agent"), pod)
    admin.delete(PODS.path(NAMESPACE, "agent"), {"gracePeriodSeconds": 0})


@pytest.fixture(scope="module")
def agent(kubeconfig):
    client = Client.load(kubeconfig)

    def is_bounded():
        try:
            patch(client, FOREIGN, {"metadata": {"annotations": {"nos.nebuly.com/status-probe": "1"}}})
        except Forbidden as error:
            return "may not change node" in error.message
        return False

    eventually(is_bounded, "the API server follows its own policies by a watch")
    yield client
    client.close()


def patch(client, node, change):
    return json.loads(client.strategic_patch(NODES.path(name=node, subresource="status"), change))


REPORT = {
    "metadata": {
        "annotations": {
            names.INVENTORY: "[]",
            names.STATUS_PLACEMENTS: "{}",
            names.STATUS_PLAN: "17",
            names.STATUS_GPU + "0-3g.20gb-free": "1",
        }
    },
    "status": {
        "capacity": {"nvidia.com/mig-3g.20gb": "1", "nvidia.com/gpu-10gb": "4", "nvidia.com/gpu.shared": "4"},
        "allocatable": {"nvidia.com/mig-3g.20gb": "1"},
        "conditions": [OUR_CONDITION],
    },
}


def test_an_agent_reports_on_its_own_node(agent):
    """And the report changes and goes again, in each of its parts."""
    node = patch(agent, OURS, REPORT)
    assert node["status"]["capacity"]["nvidia.com/mig-3g.20gb"] == "1"
    assert node["metadata"]["annotations"][names.STATUS_PLAN] == "17"
    assert {one["type"] for one in node["status"]["conditions"]} == {"Ready", names.PARTITIONING_CONDITION}
    gone = {
        "metadata": {"annotations": dict.fromkeys(REPORT["metadata"]["annotations"])},
        "status": {
            "capacity": dict.fromkeys(REPORT["status"]["capacity"]),
            "allocatable": dict.fromkeys(REPORT["status"]["allocatable"]),
            "conditions": [{**OUR_CONDITION, "status": "False", "reason": "BoardFailed"}],
        },
    }
    node = patch(agent, OURS, gone)
    assert set(node["metadata"]["annotations"]) == {"example.com/note"}
    assert set(node["status"]["allocatable"]) == {"cpu", "memory", "pods", "example.com/disk"}


def test_the_agents_own_program_needs_no_more_than_that(agent, admin, kubeconfig):
    """It tells what the node has, cuts a board and announces the slice; its driver is in memory, its rights are real."""
    arguments = ["--simulated", "--port=0", f"--selector=rights={OURS}", f"--kubeconfig={kubeconfig}"]
    process = subprocess.Popen([sys.executable, "-m", "reconciler.agent", *arguments], stderr=subprocess.DEVNULL)

    def has(annotation, value=""):
        node = json.loads(admin.get(NODES.path(name=OURS)))
        return value in node["metadata"]["annotations"].get(annotation, "none")

    try:
        eventually(lambda: has(names.INVENTORY, "A100"), "the agent tells what boards there are")
        order = write_spec({0: layout(("3g.20gb", 4))}, {0: ()}, "18")
        admin.merge_patch(NODES.path(name=OURS), {"metadata": {"annotations": order}})
        eventually(lambda: has(names.STATUS_PLAN, "18"), "the agent carries out the order")
    finally:
        process.terminate()
        assert process.wait(30) == 0
    node = json.loads(admin.get(NODES.path(name=OURS)))
    assert node["status"]["allocatable"]["nvidia.com/mig-3g.20gb"] == "1"


def test_the_report_on_another_node_is_refused(agent):
    with pytest.raises(Forbidden, match=f"the agent of node {OURS} may not change node {FOREIGN}"):
        patch(agent, FOREIGN, deepcopy(REPORT))


def test_a_token_that_is_of_no_pod_is_of_no_node(sandbox, admin, agent, tmp_path):
    stray = Client.load(configure(sandbox, admin, tmp_path))
    with pytest.raises(Forbidden, match=f"the agent of no node .* may not change node {OURS}"):
        patch(stray, OURS, deepcopy(REPORT))
    stray.close()


NOTES = "an agent may change the annotations nos.nebuly.com/gpu-inventory and nos.nebuly.com/status-*, and not "
RESOURCES = "an agent may change the resources nvidia.com/*, and not "
CONDITIONS = "an agent may change the condition nos.nebuly.com/Partitioning, and no other"
REST = "an agent may change capacity, allocatable and one condition in the status of a node, and nothing else"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"metadata": {"labels": {"team": "mine"}}}, "an agent may not change the labels of a node", id="label"),
        pytest.param({"metadata": {"labels": {"kubernetes.io/hostname": None}}}, "the labels of a node", id="label-gone"),
        pytest.param({"metadata": {"annotations": {names.SPEC_CUT: "17"}}}, NOTES + names.SPEC_CUT, id="an-order"),
        pytest.param({"metadata": {"annotations": {"example.com/note": "new"}}}, NOTES + "example.com/note", id="foreign-note"),
        pytest.param({"metadata": {"annotations": {"example.com/note": None}}}, NOTES + "example.com/note", id="foreign-note-gone"),
        pytest.param({"metadata": {"finalizers": ["example.com/x"]}}, "finalizers or owners", id="finalizer"),
        pytest.param({"status": {"capacity": {"example.com/disk": "9"}}}, RESOURCES + "example.com/disk", id="foreign-resource"),
        pytest.param({"status": {"allocatable": {"cpu": "9999"}}}, RESOURCES + "cpu", id="cpu"),
        pytest.param({"status": {"allocatable": {"pods": None}}}, RESOURCES + "pods", id="resource-gone"),
        pytest.param({"status": {"capacity": {"example.com/more": "1"}}}, RESOURCES + "example.com/more", id="new-resource"),
        pytest.param({"status": {"conditions": [{**READY, "status": "False"}]}}, CONDITIONS, id="not-ready"),
        pytest.param({"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}, CONDITIONS, id="condition-gone"),
        pytest.param({"status": {"conditions": [{"type": "Mine", "status": "True"}]}}, CONDITIONS, id="new-condition"),
        pytest.param({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}, REST, id="address"),
        pytest.param({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 9}}}}, REST, id="kubelet"),
    ],
)  # fmt: skip
def test_what_is_not_the_agents_is_refused_on_its_own_node_too(agent, change, why):
    with pytest.raises(Forbidden) as refused:
        patch(agent, OURS, change)
    assert why in refused.value.message


def test_taints_cannot_be_reached_by_the_status_and_the_node_itself_not_at_all(agent):
    change = {"spec": {"unschedulable": True, "taints": [{"key": "mine", "effect": "NoExecute"}]}}
    node = patch(agent, OURS, change)
    assert not node["spec"].get("unschedulable")
    with pytest.raises(Forbidden, match='cannot patch resource "nodes"'):
        agent.strategic_patch(NODES.path(name=OURS), change)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        pytest.param(lambda agent: agent.delete(NODES.path(name=OURS)), "delete", id="node"),
        pytest.param(lambda agent: agent.delete(PODS.path(NAMESPACE, "agent")), "delete", id="pod"),
        pytest.param(
            lambda agent: agent.create(
                PODS.path(NAMESPACE, "agent", "eviction"),
                {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "agent", "namespace": NAMESPACE}},
            ),
            "create",
            id="eviction",
        ),
        pytest.param(
            lambda agent: agent.get(Resource("", "v1", "secrets", namespaced=True).path(NAMESPACE)),
            "list",
            id="secrets",
        ),
    ],
)
def test_it_has_no_right_to(agent, call, what):
    with pytest.raises(Forbidden, match=f"cannot {what} resource"):
        call(agent)


def test_it_sees_its_node_and_pods_and_tells_of_them(agent):
    """What the service of the agent watches, and where it reports."""
    assert json.loads(agent.get(NODES.path()))["kind"] == "NodeList"
    assert json.loads(agent.get(PODS.path()))["kind"] == "PodList"


def test_a_simulated_agent_has_an_account_of_its_own(admin):
    """It stands for the agents of many nodes, and exists on sandboxes only; whoever is no agent is not bounded by this."""
    assert patch(admin, FOREIGN, deepcopy(REPORT))["metadata"]["annotations"][names.STATUS_PLAN] == "17"
