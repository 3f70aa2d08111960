"""What users may not change, tried with kubectl; and what everybody else does to pods all the time, which goes on.

Accounts of others have all rights here (group system:masters), so that it is the guard alone that refuses.
"""

import json
from collections.abc import Iterator

import pytest

from console.sandbox.kubectl import KubectlError
from console.sandbox.watching import PodWatch
from policies import names
from tests.builders import raw_pod
from tests.sandbox.waiting import create_namespace, eventually

pytestmark = pytest.mark.sandbox

NAMESPACE = "guarded"
WAIT_S = 30.0
QUOTA = f"""
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota
metadata: {{name: quota, namespace: {NAMESPACE}}}
spec:
  min: {{cpu: 6, nos.nebuly.com/gpu-memory: 20}}
  max: {{cpu: 6}}
"""
SCHEDULER = ("--as=system:kube-scheduler", "--as-group=system:masters")
KUBELET = ("--as=system:node:n1", "--as-group=system:nodes", "--as-group=system:masters")
RECONCILER = ("--as=system:serviceaccount:apportion-system:apportion-reconciler", "--as-group=system:masters")


@pytest.fixture(scope="module")
def governed(cluster) -> Iterator[PodWatch]:
    """A namespace with a quota, in which `runs` runs with a slice and `waits` waits behind a foreign gate as well."""
    create_namespace(cluster, NAMESPACE)
    cluster.kubectl("apply", "-f", "-", stdin=QUOTA)
    eventually(
        lambda: get(cluster, "namespace", NAMESPACE)["metadata"]["labels"].get(names.QUOTA_LABEL),
        "the quota governs",
        WAIT_S,
    )
    with PodWatch(cluster, NAMESPACE) as pods:
        asks = {"nvidia.com/mig-1g.5gb": "1", "cpu": "1"}
        pods.create(manifest("runs", limits=asks))
        pods.create(manifest("waits", limits=asks, gates=["example.com/hold"]))
        pods.wait("runs", lambda pod: pod is not None and pod.running, WAIT_S)
        used = ("eq", "quota", "-n", NAMESPACE)
        eventually(
            lambda: get(cluster, *used).get("status", {}).get("used", {}).get("cpu") == "1", "it is counted", WAIT_S
        )
        tell_resources(cluster, "runs")
        yield pods
        cluster.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")


def tell_resources(cluster, name):
    """Say what a container has, as a kubelet does and kwok does not: nothing is resized without."""
    (status,) = get(cluster, "pod", name, "-n", NAMESPACE)["status"]["containerStatuses"]
    told = {"status": {"containerStatuses": [{**status, "resources": {"requests": {"cpu": "1"}}}]}}
    kubectl(cluster, *KUBELET, "patch", "pod", name, "--subresource=status", f"--patch={json.dumps(told)}")


def manifest(name, **fields):
    pod = raw_pod(f"/{name}", **fields)
    return {"metadata": {"name": name}, "spec": {**pod["spec"], "terminationGracePeriodSeconds": 0}}


def get(cluster, *what):
    return json.loads(cluster.kubectl("get", *what, "-o", "json"))


def kubectl(cluster, *arguments):
    return cluster.kubectl(f"--namespace={NAMESPACE}", *arguments)


def resized(name, cpu):
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}
    return "patch", "pod", name, "--subresource=resize", f"--patch={json.dumps({'spec': {'containers': [container]}})}"


OTHER_QUOTA = json.dumps({"metadata": {"labels": {names.QUOTA_LABEL: "other"}}})
NO_GATE = '[{"op": "remove", "path": "/spec/schedulingGates"}]'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("patch", "pod", "waits", "--type=json", f"--patch={NO_GATE}"), "spec.schedulingGates", id="gate"),
        pytest.param(("label", "--overwrite", "pod", "runs", f"{names.CAPACITY_LABEL}=over-quota"), names.CAPACITY_LABEL, id="capacity"),
        pytest.param(("label", "pod", "runs", f"{names.CAPACITY_LABEL}-"), names.CAPACITY_LABEL, id="capacity-removed"),
        pytest.param(("annotate", "--overwrite", "pod", "runs", f"{names.RECORD}=x"), names.RECORD, id="record"),
        pytest.param(("annotate", "pod", "runs", f"{names.EVICTED_FOR}=a/b"), names.EVICTED_FOR, id="evicted-for"),
        pytest.param(("annotate", "pod", "runs", f"{names.NON_PREEMPTIBLE}=true"), names.NON_PREEMPTIBLE, id="non-preemptible"),
        pytest.param(("label", "--overwrite", "namespace", NAMESPACE, f"{names.QUOTA_LABEL}=other"), names.QUOTA_LABEL, id="quota-of-a-namespace"),
        pytest.param(("patch", "namespace", NAMESPACE, "--subresource=status", f"--patch={OTHER_QUOTA}"), names.QUOTA_LABEL, id="quota-by-the-status"),
        pytest.param(("debug", "runs", "--image=i", "--env=NVIDIA_VISIBLE_DEVICES=all"), "NVIDIA_VISIBLE_DEVICES", id="debugged-with-all-devices"),
        pytest.param(resized("runs", "8"), "guarded/quota uses 1 cpu, the pod asks for 7, and the max of guarded/quota is 6", id="resized-beyond-quota"),
        pytest.param(resized("waits", "7"), "can never run: the max of guarded/quota is 6", id="resized-beyond-all-at-the-gate"),
    ],
)  # fmt: skip
def test_what_is_ours_nobody_changes(cluster, governed, arguments, said):
    """W35."""
    with pytest.raises(KubectlError, match="denied the request") as refused:
        kubectl(cluster, *arguments, "--dry-run=server") if "debug" not in arguments else kubectl(cluster, *arguments)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("label", "--overwrite", "pod", "runs", f"{names.CAPACITY_LABEL}=in-quota"), id="capacity"),
        pytest.param(("annotate", "pod", "runs", f"{names.EVICTED_FOR}=a/b"), id="evicted-for"),
        pytest.param(("patch", "pod", "waits", "--type=json", f"--patch={NO_GATE}"), id="gate"),
        pytest.param(resized("runs", "8"), id="resize"),
    ],
)
def test_our_own_account_does(cluster, governed, arguments):
    kubectl(cluster, *RECONCILER, *arguments, "--dry-run=server")


READY = '{"status":{"conditions":[{"type":"example.com/Seen","status":"True"}]}}'


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((*KUBELET, "patch", "pod", "runs", "--subresource=status", f"--patch={READY}"), id="status-by-the-kubelet"),
        pytest.param(("annotate", "--overwrite", "pod", "runs", "example.com/a=b"), id="annotation"),
        pytest.param(("label", "--overwrite", "pod", "runs", "a=b"), id="label"),
        pytest.param(("patch", "pod", "waits", "--type=merge", '--patch={"metadata":{"finalizers":["example.com/kept"]}}'), id="finalizer"),
        pytest.param(("patch", "pod", "waits", "--type=merge", '--patch={"metadata":{"finalizers":null}}'), id="no-finalizer"),
        pytest.param(("debug", "runs", "--image=i", "--env=A=b"), id="W15-debugged"),
        pytest.param(("debug", "runs", "--image=i"), id="W15-debugged-again"),
        pytest.param(resized("runs", "2"), id="resized-within-quota"),
        pytest.param(resized("runs", "1"), id="resized-to-less"),
        pytest.param(resized("waits", "2"), id="resized-at-the-gate"),
    ],
)  # fmt: skip
def test_what_others_do_all_the_time_goes_on(cluster, governed, arguments):
    """W13, W15, W23."""
    kubectl(cluster, *arguments)


def test_the_scheduler_binds_and_the_owner_of_a_gate_removes_it(cluster, governed):
    """W23: all of `governed` came through the gate and the scheduler; and so does this, once its other gate is gone."""
    governed.create(manifest("held", limits={"nvidia.com/mig-1g.5gb": "1"}, gates=["example.com/other"]))
    assert [gate["name"] for gate in get(cluster, "pod", "held", "-n", NAMESPACE)["spec"]["schedulingGates"]] == [
        "example.com/other",
        names.GATE,
    ]
    kubectl(
        cluster, "patch", "pod", "held", "--type=json", '--patch=[{"op": "remove", "path": "/spec/schedulingGates/0"}]'
    )
    governed.wait("held", lambda pod: pod is not None and pod.running, WAIT_S)


def test_a_resize_of_a_slice_is_the_api_servers_to_refuse(cluster, governed):
    container = {"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "2"}}}
    change = json.dumps({"spec": {"containers": [container]}})
    with pytest.raises(KubectlError, match="only cpu and memory resources are mutable"):
        kubectl(cluster, "patch", "pod", "runs", "--subresource=resize", f"--patch={change}")
