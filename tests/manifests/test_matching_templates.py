"""Which workloads reach the webhook, asked of a real API server (W08, W20): only those with a share in their template."""

import contextlib
import json

import pytest

from console.sandbox.kubectl import KubectlError
from policies import names
from policies.templates import KINDS
from tests.manifests.matching import gpu
from tests.manifests.test_matching import OURS

pytestmark = pytest.mark.sandbox

IMAGE = {"image": "registry.example/image:1"}
LABELS = {"app": "w"}
GPU = names.GPU


def workload(kind, name, resources=None, *, annotations=None, containers=(), **spec):
    """Return a workload that makes no pods, of which the first container has these resources."""
    main = {"name": "main", **IMAGE, **({"resources": resources} if resources else {})}
    metadata = {"labels": LABELS, **({"annotations": annotations} if annotations else {})}
    inner = {"metadata": metadata, "spec": {"containers": [main, *containers], **spec}}
    if kind.group == "batch":
        inner["spec"]["restartPolicy"] = "Never"
    for step in reversed(kind.template):
        inner = {step: inner}
    own = {
        "Deployment": {"selector": {"matchLabels": LABELS}, "replicas": 0},
        "ReplicaSet": {"selector": {"matchLabels": LABELS}, "replicas": 0},
        "StatefulSet": {"selector": {"matchLabels": LABELS}, "replicas": 0, "serviceName": "w"},
        "DaemonSet": {"selector": {"matchLabels": LABELS}},
        "ReplicationController": {"selector": LABELS, "replicas": 0},
        "Job": {"suspend": True},
        "CronJob": {"schedule": "0 0 1 1 *", "suspend": True},
    }[kind.name]
    inner["spec"] = {**own, **inner["spec"]}
    version = f"{kind.group}/v1" if kind.group else "v1"
    return {"apiVersion": version, "kind": kind.name, "metadata": {"name": name}, **inner}


def create(cluster, obj, *options):
    """Create an object, or see it refused for its share: the recorder allows everything and changes nothing."""
    try:
        cluster.kubectl("create", "-f", "-", *options, stdin=json.dumps(obj))
    except KubectlError as error:
        if not any(said in str(error) for said in ("must be an integer", "must be greater than or equal to 0")):
            raise


DEPLOYMENT = KINDS[0]
SHARED = {"name": "shared", **IMAGE, "resources": gpu("0.5")}

CREATED = [
    pytest.param({}, False, id="plain"),
    pytest.param({"resources": {"limits": {"cpu": "0.5"}}}, False, id="half-a-processor"),
    pytest.param({"resources": gpu("1")}, False, id="whole"),
    pytest.param({"resources": gpu("0")}, False, id="none"),
    pytest.param({"resources": gpu("2000m")}, False, id="whole-in-thousandths"),
    pytest.param({"resources": gpu("1k")}, False, id="a-thousand"),
    pytest.param({"resources": gpu("1", "nvidia.com/mig-1g.5gb")}, False, id="slice"),
    pytest.param({"annotations": {names.FRACTION: "0.5"}}, False, id="annotation"),
    pytest.param({"annotations": {names.FRACTION: "0.5"}, "containers": [{**SHARED, "resources": gpu("1")}]}, False, id="annotation-beside-a-whole-gpu"),
    pytest.param({"initContainers": [{"name": "init", **IMAGE}]}, False, id="plain-init-container"),
    pytest.param({"resources": gpu("0.5")}, True, id="share"),
    pytest.param({"resources": gpu(0.5)}, True, id="number"),
    pytest.param({"resources": gpu("500m")}, True, id="thousandths"),
    pytest.param({"resources": gpu("5e-1")}, True, id="exponent"),
    pytest.param({"resources": gpu("1.5")}, True, id="more-than-one"),
    pytest.param({"resources": gpu("-0.5")}, True, id="negative"),
    pytest.param({"resources": {"requests": {GPU: "0.5"}}}, True, id="requests"),
    pytest.param({"containers": [SHARED]}, True, id="second-container"),
    pytest.param({"initContainers": [SHARED]}, True, id="init-container"),
    pytest.param({"initContainers": [{**SHARED, "restartPolicy": "Always"}]}, True, id="sidecar"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "reached"), CREATED)
def test_a_new_workload_reaches_us_only_with_a_share_in_its_template(cluster, recorder, request, fields, reached):
    """W20: nothing else depends on us."""
    name = f"d-{request.node.callspec.id}"
    create(cluster, workload(DEPLOYMENT, name, **fields), "--dry-run=server")
    assert recorder.about(name) == (["/mutate CREATE"] if reached else [])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_template_is_found_in_every_kind(cluster, recorder, kind):
    for name, resources, asked in (
        ("share", gpu("0.5"), ["/mutate CREATE"]),
        ("whole", gpu("1"), []),
        ("plain", None, []),
    ):
        create(cluster, workload(kind, f"{name}-{kind.plural}", resources), "--dry-run=server")
        assert recorder.about(f"{name}-{kind.plural}") == asked


@pytest.mark.parametrize(
    ("obj", "complaint"),
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "bare"}, "spec": {}},
            "spec.template: Required value",
            id="no template",
        ),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "bare"}, "spec": {"jobTemplate": None}},
            "spec.schedule: Required value",
            id="null job template",
        ),
        pytest.param(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bare"}, "spec": {"template": {"spec": {"containers": None}}}},
            "spec.template.spec.containers: Required value",
            id="null containers",
        ),
        pytest.param({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bare"}}, "spec.selector: Required value", id="no specification"),
    ],
)  # fmt: skip
def test_a_workload_without_a_template_gets_the_api_servers_own_complaint(cluster, recorder, obj, complaint):
    """An error in the conditions would be the wrong one."""
    with pytest.raises(KubectlError, match=complaint):
        cluster.kubectl("create", "--dry-run=server", "--validate=false", "-f", "-", stdin=json.dumps(obj))
    assert recorder.about("bare") == []


def template(spec=None, annotations=None):
    return json.dumps({"spec": {"template": {"metadata": {"annotations": annotations or {}}, "spec": spec or {}}}})


def resources(limits):
    return {"containers": [{"name": "main", "resources": {"limits": limits}}]}


MOVED = {names.FRACTION: "0.5", names.CONTAINER: "main"}
UPDATED = [
    pytest.param(MOVED, ("patch", "deployment", "{name}", f"--patch={template(resources({GPU: '0.5'}))}"), True, id="share-again"),
    pytest.param(MOVED, ("patch", "deployment", "{name}", f"--patch={template(resources({GPU: '1'}))}"), True, id="whole-instead"),
    pytest.param(MOVED, ("patch", "deployment", "{name}", f"--patch={template(resources({'nvidia.com/mig-1g.5gb': '1'}))}"), True, id="slice-instead"),
    pytest.param(MOVED, ("patch", "deployment", "{name}", f"--patch={template(annotations={names.MEMORY: '10Gi'})}"), True, id="memory-instead"),
    pytest.param(MOVED, (*OURS, "patch", "deployment", "{name}", f"--patch={template(resources({GPU: '1'}))}"), False, id="by-us"),
    pytest.param(MOVED, ("set", "image", "deployment", "{name}", "main=registry.example/image:2"), False, id="set-image"),
    pytest.param(MOVED, ("scale", "deployment", "{name}", "--replicas=0"), False, id="scale"),
    pytest.param(MOVED, ("label", "deployment", "{name}", "a=b"), False, id="label"),
    pytest.param(MOVED, ("rollout", "restart", "deployment", "{name}"), False, id="restart"),
    pytest.param(MOVED, ("patch", "deployment", "{name}", f"--patch={template(resources({'cpu': '2'}))}"), False, id="processor"),
    pytest.param({"a": "b"}, ("patch", "deployment", "{name}", f"--patch={template(resources({GPU: '1'}))}"), False, id="whole-without-a-share"),
    pytest.param({"a": "b"}, ("patch", "deployment", "{name}", f"--patch={template(resources({GPU: '0.5'}))}"), True, id="first-share"),
]  # fmt: skip


@pytest.mark.parametrize(("annotations", "arguments", "reached"), UPDATED)
def test_an_updated_workload_reaches_us_only_with_a_share_or_what_takes_its_place(
    cluster, recorder, request, annotations, arguments, reached
):
    name = f"u-{request.node.callspec.id}"
    create(cluster, workload(DEPLOYMENT, name, annotations=annotations))
    recorder.asked.clear()
    with contextlib.suppress(KubectlError):  # a share is refused, since the recorder changes nothing
        cluster.kubectl(*(argument.replace("{name}", name) for argument in arguments))
    assert recorder.about(name) == (["/mutate UPDATE"] if reached else [])
    cluster.kubectl("delete", "deployment", name, "--wait=false")


def test_a_label_on_a_workload_that_has_a_whole_gpu_too_does_not_need_us(cluster, recorder):
    """W13: metadata and scale go on while the webhook is down."""
    beside = [{"name": "side", **IMAGE, "resources": gpu("1")}]
    create(cluster, workload(DEPLOYMENT, "beside", annotations=MOVED, containers=beside))
    recorder.asked.clear()
    cluster.kubectl("label", "deployment", "beside", "a=b")
    cluster.kubectl("delete", "deployment", "beside", "--wait=false")
    assert recorder.about("beside") == []
