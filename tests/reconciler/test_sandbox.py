"""What a real API server and scheduler make of the leader's patches."""

import json
import secrets

import pytest

from console.sandbox.lifecycle import Sandbox
from kube.client import Client
from kube.errors import Conflict, NotFound
from kube.informer import Informer
from kube.resource import NAMESPACES, NODES, PODS
from policies.decision import Release, Waiting
from reconciler.observe import TOLD, project_node, project_pod, told
from reconciler.patches import release_patch
from reconciler.status import StatusWriter
from tests.apiserver.server import PATIENCE_S

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
def namespace(client):
    name = f"reconciler-{secrets.token_hex(4)}"
    client.create(NAMESPACES.path(), {"metadata": {"name": name}})
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
    body = release_patch(pod, Release(pod=pod.key, uid=pod.uid, version=pod.version, avoid=avoid))
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
    status = StatusWriter(client, pods, Informer(client, NODES, project_node), held=lambda: True)
    status.say([Waiting(pod=pod.key, reason="NoSliceFits", message="needs 3g.20gb; none is free")])
    status.tick()
    status.tick()
    status.stop()
    pods.stop()
    conditions = json.loads(client.get(PODS.path(namespace, pod.name)))["status"]["conditions"]
    told_now = {item["type"]: (item["status"], item["reason"], item["message"]) for item in conditions}
    assert told_now["nos.nebuly.com/Admitted"] == ("False", "NoSliceFits", "needs 3g.20gb; none is free")
    assert told_now["PodScheduled"][:2] == ("False", "SchedulingGated")
