"""The real control plane behaves as a cluster does, as far as Apportion and its users look at it."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
import yaml

from console.sandbox.kubectl import KubectlError
from console.sandbox.lifecycle import Sandbox
from tests.sandbox.waiting import create_namespace, eventually

pytestmark = pytest.mark.sandbox

NAMESPACE = "control-plane"


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Iterator[Sandbox]:
    create_namespace(sandbox, NAMESPACE)
    yield sandbox
    sandbox.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _succeeds(sandbox: Sandbox, *arguments: str) -> bool:
    try:
        sandbox.kubectl(*arguments)
    except KubectlError:
        return False
    return True


def _pod(name: str, **metadata: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


def _create(sandbox: Sandbox, *objects: dict[str, object]) -> None:
    sandbox.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(objects))


def _wait(sandbox: Sandbox, what: str, condition: str) -> None:
    sandbox.kubectl("wait", "-n", NAMESPACE, what, f"--for={condition}", "--timeout=30s")


def _evict(sandbox: Sandbox, pod: str) -> None:
    metadata = {"name": pod, "namespace": NAMESPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    sandbox.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def test_nodes_are_ready_and_labelled(cluster: Sandbox) -> None:
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    assert {
        node["metadata"]["name"]: (
            node["metadata"]["labels"]["nvidia.com/gpu.product"],
            node["metadata"]["labels"]["nos.nebuly.com/gpu-partitioning"],
            [condition["status"] for condition in node["status"]["conditions"] if condition["type"] == "Ready"],
            node["spec"].get("taints", []),
        )
        for node in nodes
    } == {
        "a100-40-0": ("NVIDIA-A100-SXM4-40GB", "mig", ["True"], []),
        "a30-0": ("NVIDIA-A30", "mig", ["True"], []),
        "t4-0": ("Tesla-T4", "mps", ["True"], []),
    }


def test_the_version_is_one_that_clients_can_parse(cluster: Sandbox) -> None:
    server = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]
    assert (server["major"], server["minor"], server["gitVersion"]) == ("1", "36", "v1.36.3")


def test_a_pod_runs_until_it_is_deleted_and_then_ends_at_once(cluster: Sandbox) -> None:
    _create(cluster, _pod("runs"))
    _wait(cluster, "pod/runs", "condition=Ready")
    pod = json.loads(cluster.kubectl("get", "-n", NAMESPACE, "pod", "runs", "-o", "json"))
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"]
    cluster.kubectl("delete", "-n", NAMESPACE, "pod", "runs", "--timeout=30s")


def test_a_pod_ends_as_long_after_its_start_as_it_says(cluster: Sandbox) -> None:
    """The annotation is that of `apportion simulate`. A change of the pod meanwhile does not lose its end."""
    _create(cluster, _pod("short", annotations={"simulate.apportion/duration": "2s"}))
    _wait(cluster, "pod/short", "jsonpath={.status.startTime}")
    cluster.kubectl("label", "-n", NAMESPACE, "pod", "short", "changed=yes")
    _wait(cluster, "pod/short", "jsonpath={.status.phase}=Succeeded")
    status = json.loads(cluster.kubectl("get", "-n", NAMESPACE, "pod", "short", "-o", "json"))["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    worked = datetime.fromisoformat(ended["finishedAt"]) - datetime.fromisoformat(ended["startedAt"])
    assert worked >= timedelta(seconds=2)


def test_a_pod_that_is_deleted_tells_its_end_before_it_is_gone(cluster: Sandbox) -> None:
    """As a kubelet does: whoever holds it by a finalizer, as Jobs do, sees a phase that is final, and how it came to it."""
    _create(cluster, _pod("held", finalizers=["example.org/hold"]))
    _wait(cluster, "pod/held", "condition=Ready")
    cluster.kubectl("delete", "-n", NAMESPACE, "pod", "held", "--wait=false")
    _wait(cluster, "pod/held", "jsonpath={.status.phase}=Failed")
    status = json.loads(cluster.kubectl("get", "-n", NAMESPACE, "pod", "held", "-o", "json"))["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    cluster.kubectl("patch", "-n", NAMESPACE, "pod", "held", "--type=merge", '-p={"metadata":{"finalizers":null}}')
    _wait(cluster, "pod/held", "delete")


def test_a_gated_pod_waits_until_its_gate_goes(cluster: Sandbox) -> None:
    pod = _pod("gated")
    pod["spec"] = {"schedulingGates": [{"name": "example.org/gate"}], "containers": [{"name": "c", "image": "none"}]}
    _create(cluster, pod)
    _wait(cluster, "pod/gated", "jsonpath={.status.conditions[0].reason}=SchedulingGated")
    patch = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    cluster.kubectl("patch", "-n", NAMESPACE, "pod", "gated", "--type=json", "-p", patch)
    _wait(cluster, "pod/gated", "condition=Ready")


@pytest.mark.parametrize(
    ("kind", "api", "spec"),
    [
        pytest.param("Deployment", "apps/v1", {"replicas": 2}, id="Deployment"),
        pytest.param("StatefulSet", "apps/v1", {"replicas": 2, "serviceName": "none"}, id="StatefulSet"),
        pytest.param("DaemonSet", "apps/v1", {}, id="DaemonSet"),
    ],
)
def test_controllers_make_pods_and_the_garbage_collector_takes_them(
    cluster: Sandbox, kind: str, api: str, spec: dict[str, object]
) -> None:
    name = kind.lower()
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _pod("x")["spec"]}
    metadata = {"name": name, "namespace": NAMESPACE}
    workload = {"selector": {"matchLabels": labels}, "template": template, **spec}
    _create(cluster, {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": workload})
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, f"{name}/{name}", "--timeout=30s")
    cluster.kubectl("delete", "-n", NAMESPACE, f"{name}/{name}")
    cluster.kubectl("wait", "-n", NAMESPACE, "pod", "-l", f"app={name}", "--for=delete", "--timeout=30s")


def test_a_job_completes_when_its_pod_ends(cluster: Sandbox) -> None:
    template = {
        "metadata": {"annotations": {"simulate.apportion/duration": "100ms"}},
        "spec": {**_pod("x")["spec"], "restartPolicy": "Never"},
    }
    metadata = {"name": "job", "namespace": NAMESPACE}
    _create(cluster, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}})
    _wait(cluster, "job/job", "condition=Complete")


def test_a_job_that_ignores_disruptions_survives_an_eviction(cluster: Sandbox) -> None:
    """Its pod comes back, and the end of the first is no failure, of which this Job may not have one."""
    ignore = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [ignore]},
        "template": {"spec": {**_pod("x")["spec"], "restartPolicy": "Never"}},
    }
    metadata = {"name": "patient", "namespace": NAMESPACE}
    _create(cluster, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})

    def pod() -> str:
        return cluster.kubectl("get", "-n", NAMESPACE, "pods", "-l", "job-name=patient", "-o", "name").strip()

    _wait(cluster, "job/patient", "jsonpath={.status.ready}=1")
    evicted = pod()
    _evict(cluster, evicted.removeprefix("pod/"))
    # The Job controller lets 10 s pass, whoever ended the pod.
    eventually(lambda: pod() not in ("", evicted), "the pod comes back")
    _wait(cluster, pod(), "condition=Ready")
    status = json.loads(cluster.kubectl("get", "-n", NAMESPACE, "job", "patient", "-o", "json"))["status"]
    assert (status.get("failed", 0), status.get("conditions", [])) == (0, [])


def test_a_budget_refuses_an_eviction(cluster: Sandbox) -> None:
    _create(
        cluster,
        _pod("guarded", labels={"app": "guarded"}),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": NAMESPACE},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        },
    )
    _wait(cluster, "pod/guarded", "condition=Ready")
    _wait(cluster, "pdb/guard", "jsonpath={.status.currentHealthy}=1")
    with pytest.raises(KubectlError, match=r"TooManyRequests.*disruption budget"):
        _evict(cluster, "guarded")


def test_service_accounts_have_tokens_with_the_rights_of_their_roles(cluster: Sandbox) -> None:
    token = cluster.kubectl("create", "token", "-n", NAMESPACE, "default").strip()
    may = ("auth", "can-i", "list", "pods", f"--token={token}", "-n", NAMESPACE)
    server = ("--kubeconfig=/dev/null", f"--server={cluster.server_url}")
    authority = f"--certificate-authority={cluster.directory / 'ca.crt'}"
    with pytest.raises(KubectlError, match="status 1"):
        cluster.kubectl(*may, *server, authority)
    role = f"--serviceaccount={NAMESPACE}:default"
    cluster.kubectl("create", "rolebinding", "viewer", "-n", NAMESPACE, "--clusterrole=view", role)
    eventually(lambda: _succeeds(cluster, *may, *server, authority), "the role is seen by the API server")


def test_the_server_is_not_trusted_without_its_ca(cluster: Sandbox) -> None:
    with pytest.raises(KubectlError, match="certificate"):
        cluster.kubectl("get", "nodes", "--kubeconfig=/dev/null", f"--server={cluster.server_url}", "--token=x")
