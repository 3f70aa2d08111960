"""What a real API server and scheduler make of the leader's patches and evictions."""

import json
import math
import secrets
import time

import msgspec
import pytest

from console.sandbox.lifecycle import Sandbox
from kube.client import Client
from kube.errors import Conflict, NotFound
from kube.events import EventRecorder
from kube.informer import Informer
from kube.resource import NAMESPACES, NODES, PODS
from policies.decision import Evict, Release, Waiting
from policies.timestamps import epoch
from reconciler.evictor import Evictor
from reconciler.observe import MARK, TOLD, mark, project_node, project_pod, told
from reconciler.patches import release_patch
from reconciler.scribe import Scribe
from reconciler.status import WaitingReport
from tests.apiserver.server import PATIENCE_S
from tests.sandbox.waiting import create_namespace

pytestmark = pytest.mark.sandbox

# A second gate keeps a reconciler that may run in this sandbox from deciding about our pods.
GATES = [{"name": "nos.nebuly.com/admission"}, {"name": "tests.apportion/hold"}]
LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}


@pytest.fixture
def client(sandbox: Sandbox):
    connected = Client.load(str(sandbox.kubeconfig))
    yield connected
    connected.close()


@pytest.fixture
def namespace(sandbox, client):
    name = f"reconciler-{secrets.token_hex(4)}"
    create_namespace(sandbox, name)
    yield name
    client.delete(NAMESPACES.path(name=name))


def create(client, namespace, **spec):
    pod = {
        "metadata": {"generateName": "pod-", "namespace": namespace},
        "spec": {
            "schedulingGates": GATES,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
            "automountServiceAccountToken": False,
            **spec,
        },
    }
    return client.create(PODS.path(namespace), pod)


def release(client, pod, *avoid):
    body = release_patch(pod, Release(pod=pod.key, uid=pod.uid, version=pod.version, avoid=avoid), time.time())
    return json.loads(client.merge_patch(PODS.path(pod.namespace, pod.name), body))


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param(None, id="no affinity"),
        pytest.param([{"matchExpressions": [LINUX]}, {}], id="terms, one of them empty"),
        pytest.param(
            [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}], id="a term on fields"
        ),
    ],
)
def test_one_patch_releases_a_pod_and_keeps_it_off_nodes_promised_to_others(sandbox, client, namespace, terms):
    nodes = sorted(item["metadata"]["name"] for item in json.loads(client.get(NODES.path()))["items"])
    *avoid, left = nodes
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pod = project_pod(create(client, namespace, **({"affinity": affinity} if terms else {})))
    assert "schedulingGates" not in release(client, pod, *avoid)["spec"]
    sandbox.kubectl(
        "wait", "--for=condition=PodScheduled", f"--timeout={PATIENCE_S:g}s", "-n", namespace, f"pod/{pod.name}"
    )
    assert json.loads(client.get(PODS.path(namespace, pod.name)))["spec"]["nodeName"] == left


def test_a_pod_that_has_changed_since_is_not_released(client, namespace):
    pod = project_pod(create(client, namespace))
    client.merge_patch(PODS.path(namespace, pod.name), {"metadata": {"labels": {"changed": "yes"}}})
    with pytest.raises(Conflict):
        release(client, pod)


def test_a_pod_of_the_same_name_made_again_is_not_released(client, namespace):
    pod = project_pod(create(client, namespace))
    path = PODS.path(namespace, pod.name)
    client.delete(path, {"gracePeriodSeconds": 0})
    with pytest.raises(NotFound):
        release(client, pod)
    client.create(PODS.path(namespace), {
        "metadata": {"name": pod.name},
        "spec": {"schedulingGates": GATES, "containers": [{"name": "main", "image": "x"}]},
    })  # fmt: skip
    with pytest.raises(Conflict):
        release(client, pod)


def test_a_condition_of_ours_stands_beside_those_of_others(client, namespace):
    """L01."""
    raw = create(client, namespace)
    pod = project_pod(raw)
    pods = Informer(client, PODS, project_pod, namespace=namespace, indexes={TOLD: told})
    pods.start()
    assert pods.synced.wait(PATIENCE_S)
    recorder = EventRecorder(client, "tests")
    report = WaitingReport(pods, Informer(client, NODES, project_node), recorder, now=time.time, clock=time.monotonic)
    report.say([Waiting(pod=pod.key, reason="NoSliceFits", message="needs 3g.20gb; none is free")])
    scribe = Scribe(client, "condition", report.differences, every_s=1.0, held=lambda: True, clock=time.monotonic)
    scribe.tick()
    scribe.tick()
    recorder.close()
    pods.stop()
    conditions = json.loads(client.get(PODS.path(namespace, pod.name)))["status"]["conditions"]
    told_now = {item["type"]: (item["status"], item["reason"], item["message"]) for item in conditions}
    assert told_now["nos.nebuly.com/Admitted"] == ("False", "NoSliceFits", "needs 3g.20gb; none is free")
    assert told_now["PodScheduled"][:2] == ("False", "SchedulingGated")


@pytest.fixture
def evictor(client, namespace):
    """An evictor that follows the pods of the namespace, and the way to have it evict one for a claimant."""
    pods = Informer(client, PODS, project_pod, namespace=namespace, indexes={MARK: mark})
    pods.start()
    assert pods.synced.wait(PATIENCE_S)
    recorder = EventRecorder(client, "tests")
    made = Evictor(
        client,
        pods,
        recorder,
        held=lambda: True,
        now=time.time,
        clock=time.monotonic,
        timeout_s=5.0,
        max_grace_s=600,
    )

    def evict(pod, **change):
        decided = Evict(
            pod=pod.key,
            uid=pod.uid,
            version=pod.version,
            claimant=f"{namespace}/claims",
            claimant_uid="",
            quota="q",
            grace_s=7,
            reason="Reclaimed",
            message="a test",
        )
        pods.lay_over(client.get(PODS.path(namespace, pod.name)))
        return made.apply([msgspec.structs.replace(decided, **change)], {pod.key: pod})

    yield evict, made
    made.close()
    recorder.close()
    pods.stop()


def running(client, sandbox, namespace, **metadata):
    """Return a pod that is bound and runs."""
    pod = {
        "metadata": {"generateName": "runs-", **metadata},
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        },
    }
    name = json.loads(client.create(PODS.path(namespace), pod))["metadata"]["name"]
    sandbox.kubectl("wait", "--for=condition=Ready", f"--timeout={PATIENCE_S:g}s", "-n", namespace, f"pod/{name}")
    return project_pod(client.get(PODS.path(namespace, name)))


def test_a_victim_bears_its_mark_and_the_condition_of_a_disruption_when_it_ends(client, sandbox, namespace, evictor):
    evict, _ = evictor
    pod = running(client, sandbox, namespace, finalizers=["tests.apportion/hold"])
    while evict(pod) == 0.0:  # somebody has written its status meanwhile: decide anew, as the leader does
        pod = project_pod(client.get(PODS.path(namespace, pod.name)))
    raw = json.loads(client.get(PODS.path(namespace, pod.name)))
    assert raw["metadata"]["annotations"]["nos.nebuly.com/evicted-for"] == f"{namespace}/claims"
    [disrupted] = [item for item in raw["status"]["conditions"] if item["type"] == "DisruptionTarget"]
    assert disrupted["reason"] == "EvictionByEvictionAPI"
    client.merge_patch(PODS.path(namespace, pod.name), {"metadata": {"finalizers": None}})


def test_a_budget_that_refuses_leaves_the_pod_as_it_was(client, sandbox, namespace, evictor):
    """Q11: 429 of the API server itself, under a budget that the view did not know."""
    evict, made = evictor
    pod = running(client, sandbox, namespace, labels={"app": "kept"})
    sandbox.kubectl("create", "pdb", "kept", "-n", namespace, "--selector=app=kept", "--min-available=1")
    sandbox.kubectl("wait", "--for=jsonpath={.status.expectedPods}=1", "-n", namespace, "pdb/kept")
    while (again_s := evict(project_pod(client.get(PODS.path(namespace, pod.name))))) == 0.0:
        pass
    assert 0 < again_s < math.inf
    now = project_pod(client.get(PODS.path(namespace, pod.name)))
    assert (now.terminating, now.evicted_for, now.running) == (False, "", True)
    assert made.assumed()[pod.key].refused_until > time.time()


def test_another_pod_of_the_name_is_not_evicted(client, sandbox, namespace, evictor):
    evict, _ = evictor
    pod = running(client, sandbox, namespace)
    marked = msgspec.structs.replace(pod, evicted_for=f"{namespace}/claims")
    assert evict(marked, uid="00000000-0000-0000-0000-000000000000") == 0.0
    assert not project_pod(client.get(PODS.path(namespace, pod.name))).terminating


def unschedulable(client, sandbox, namespace):
    """Return a pod that has been released, and for which the scheduler finds no node, once it says so."""
    pod = project_pod(create(client, namespace, nodeSelector={"nowhere": "at-all"}, schedulingGates=GATES[:1]))
    time.sleep(max(0.0, pod.created + 2.0 - time.time()))  # until its condition is older than its release
    release(client, pod)
    said = "--for=jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable"
    sandbox.kubectl("wait", said, f"--timeout={PATIENCE_S:g}s", "-n", namespace, f"pod/{pod.name}")
    return project_pod(client.get(PODS.path(namespace, pod.name)))


def test_a_released_pod_is_unschedulable_since_its_release_whatever_its_condition_says(client, sandbox, namespace):
    """Its lastTransitionTime is still that of the gate (docs/adr/0009)."""
    pod = unschedulable(client, sandbox, namespace)
    raw = json.loads(client.get(PODS.path(namespace, pod.name)))
    [scheduled] = [item for item in raw["status"]["conditions"] if item["type"] == "PodScheduled"]
    assert epoch(scheduled["lastTransitionTime"]) <= pod.created + 1
    assert pod.unschedulable_since == pod.released_at >= pod.created + 2


def test_a_pod_that_goes_for_nobody_goes_at_once_whatever_budgets_say_but_not_if_it_has_changed(
    client, sandbox, namespace, evictor
):
    evict, _ = evictor
    pod = unschedulable(client, sandbox, namespace)
    path = PODS.path(namespace, pod.name)
    client.merge_patch(path, {"metadata": {"labels": {"app": "kept"}}})
    sandbox.kubectl("create", "pdb", "kept", "-n", namespace, "--selector=app=kept", "--min-available=1")
    assert evict(pod, claimant="") == 0.0  # it might have been bound in between
    while evict(project_pod(client.get(path)), claimant="") == 0.0:
        pass
    with pytest.raises(NotFound):
        client.get(path)
