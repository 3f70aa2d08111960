"""Beside mutating webhooks of other parties, which run before ours or after it, by the names of their configurations.

Everything is created as a dry run: what the API server answers is the pod as it would be stored.
"""

import json
from collections.abc import Iterator
from copy import deepcopy

import pytest

from kube.client import Client
from kube.errors import ApiError
from kube.resource import NAMESPACES, PODS
from policies import names
from tests.e2e.injector import Injector
from tests.sandbox.waiting import eventually

pytestmark = pytest.mark.sandbox

NAMESPACE = "mesh"
BEFORE, AFTER = "aaa-mesh", "zzz-mesh"  # ours is called `apportion`
QUARTER = {"limits": {names.GPU: "250m"}, "requests": {names.GPU: "250m"}}
SLICE = {"limits": {"nvidia.com/mig-1g.5gb": "1"}, "requests": {"nvidia.com/mig-1g.5gb": "1"}}


@pytest.fixture(scope="module")
def client(cluster) -> Iterator[Client]:
    client = Client.load(str(cluster.kubeconfig))
    client.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    eventually(lambda: exists(client, accounts), "the namespace has its account")
    yield client
    client.close()


@pytest.fixture(scope="module")
def injector() -> Iterator[Injector]:
    injector = Injector()
    yield injector
    injector.close()


def exists(client, path):
    try:
        client.get(path)
    except ApiError:
        return False
    return True


def created(client, *, annotations=None, resources=None, **spec):
    """Return a pod as it would be stored."""
    pod = {
        "metadata": {"name": "x", "annotations": {"team": "a", **(annotations or {})}},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": resources or {}}], **spec},
    }
    return json.loads(
        client.request("POST", PODS.path(NAMESPACE), query={"dryRun": "All"}, body=json.dumps(pod).encode())
    )


def adds(container, field="containers"):
    """Return what adds a container, unless it is there, as injectors do."""

    def patch(pod):
        present = pod["spec"].get(field)
        if any(each["name"] == container["name"] for each in present or ()):
            return []
        path = f"/spec/{field}"
        return [{"op": "add", "path": f"{path}/0", "value": container} if present else {"op": "add", "path": path, "value": [container]}]  # fmt: skip

    return patch


def late(resources):
    return {"name": "late", "image": "i", "resources": resources}


def gpus(pod):
    """Return the GPU resources of every container."""
    return {
        each["name"]: {
            name: amount
            for name, amount in each["resources"].get("limits", {}).items()
            if name.startswith(names.NVIDIA_PREFIX)
        }
        for each in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
    }


def recorded(pod):
    return json.loads(pod["metadata"]["annotations"][names.RECORD])["containers"].keys()


@pytest.mark.parametrize("name", [BEFORE, AFTER])
@pytest.mark.parametrize("reinvoked", ["Never", "IfNeeded"])
def test_a_container_that_another_webhook_adds_to_a_pod_with_a_share_is_answered_too(client, injector, name, reinvoked):
    """W18: reinvocationPolicy IfNeeded of ours; nobody has to rename anything."""
    with injector.installed(client, name, NAMESPACE, reinvoked):
        injector.patch = adds(late(QUARTER))
        pod = created(client, annotations={f"{names.FRACTION}.main": "0.25"})
    assert gpus(pod) == {"late": {"nvidia.com/mig-1g.10gb": "1"}, "main": {"nvidia.com/mig-1g.10gb": "1"}}
    assert recorded(pod) == {"late", "main"}
    assert pod["spec"]["schedulingGates"] == [{"name": names.GATE}]


def test_what_runs_before_us_may_add_the_only_wish(client, injector):
    """W18."""
    with injector.installed(client, BEFORE, NAMESPACE, "Never"):
        injector.patch = adds(late(QUARTER))
        pod = created(client)
    assert gpus(pod) == {"late": {"nvidia.com/mig-1g.10gb": "1"}, "main": {}}
    assert recorded(pod) == {"late"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(adds(late(SLICE)), "came into the pod after Apportion had looked at it", id="slice"),
        pytest.param(adds(late(QUARTER)), "must be an integer", id="share"),
        pytest.param(lambda _: [{"op": "add", "path": "/metadata/annotations", "value": {names.FRACTION: "0.5"}}], "came into the pod after Apportion had looked at it", id="annotation"),
    ],
)  # fmt: skip
def test_a_wish_that_comes_into_a_pod_without_one_after_us_is_never_let_through(client, injector, change, message):
    """W18, W27: the API server asks nobody a first time once others have changed the pod."""
    with injector.installed(client, AFTER, NAMESPACE, "Never"):
        injector.patch = change
        with pytest.raises(ApiError, match=message):
            created(client)


SIDECAR = {
    "name": "istio-proxy", "image": "proxy", "restartPolicy": "Always", "args": ["proxy", "sidecar"],
    "env": [{"name": "PROXY", "value": "{}\n"}, {"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
    "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
    "securityContext": {"runAsUser": 1337, "runAsNonRoot": True, "allowPrivilegeEscalation": False},
    "volumeMounts": [{"name": "istio-envoy", "mountPath": "/etc/istio/proxy"}],
}  # fmt: skip


def mesh(pod):
    """Return what a service mesh does to a pod: a sidecar at the front, a volume, an annotation."""
    if any(each["name"] == SIDECAR["name"] for each in pod["spec"].get("initContainers", ())):
        return []
    volume = {"name": "istio-envoy", "emptyDir": {"medium": "Memory"}}
    return [
        *adds(SIDECAR, "initContainers")(pod),
        {"op": "add", "path": "/spec/volumes/-", "value": volume} if pod["spec"].get("volumes") else {"op": "add", "path": "/spec/volumes", "value": [volume]},
        {"op": "add", "path": "/metadata/annotations/sidecar.istio.io~1status", "value": "{}"},
    ]  # fmt: skip


@pytest.mark.parametrize("name", [BEFORE, AFTER])
@pytest.mark.parametrize(
    ("mode", "given"),
    [pytest.param("mig", "nvidia.com/mig-1g.10gb", id="mig"), pytest.param("mps", "nvidia.com/gpu-4gb", id="mps")],
)
def test_a_mesh_and_we_leave_each_other_alone(client, injector, name, mode, given):
    """W01, W03: the sidecar moves every init container by one place, before our patch or after it."""
    warm = {"name": "warm", "image": "i", "resources": {}}
    with injector.installed(client, name, NAMESPACE, "IfNeeded"):
        injector.patch = mesh
        notes = {f"{names.FRACTION}.warm": "0.25", f"{names.FRACTION}.main": "0.25", names.MODE: mode}
        pod = created(client, annotations=notes, initContainers=[warm])
    assert gpus(pod) == {"istio-proxy": {}, "warm": {given: "1"}, "main": {given: "1"}}
    proxy, init = pod["spec"]["initContainers"]
    assert {key: proxy[key] for key in SIDECAR if key != "volumeMounts"} == {
        key: value for key, value in deepcopy(SIDECAR).items() if key != "volumeMounts"
    }
    clients = [each.get("securityContext", {}).get("runAsUser") for each in (init, pod["spec"]["containers"][0])]
    assert clients == ([1000, 1000] if mode == "mps" else [None, None])
    assert pod["spec"].get("hostIPC", False) is (mode == "mps")
    assert pod["metadata"]["annotations"]["sidecar.istio.io/status"] == "{}"
    assert recorded(pod) == {"warm", "main"}


def test_a_pod_without_a_wish_is_the_meshs_alone(client, injector):
    with injector.installed(client, AFTER, NAMESPACE, "IfNeeded"):
        injector.patch = mesh
        pod = created(client)
    assert gpus(pod) == {"istio-proxy": {}, "main": {}}
    assert not {names.RECORD} & pod["metadata"]["annotations"].keys()
    assert "schedulingGates" not in pod["spec"]
