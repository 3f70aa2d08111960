"""Which pods reach the webhook, asked of a real API server: the conditions are in CEL, which only it can judge."""

import contextlib
import json
from collections.abc import Iterator
from copy import deepcopy

import pytest
import trustme

from console.sandbox.kubectl import KubectlError
from kube.errors import ApiError, Invalid
from kube.resource import NAMESPACES
from policies import names
from tests.manifests.matching import NAMESPACE, Cluster, gpu, pod

pytestmark = pytest.mark.sandbox

OURS = ("--as=system:serviceaccount:apportion-system:apportion-reconciler", "--as-group=system:masters")
NODE = ("--as=system:node:n1", "--as-group=system:nodes", "--as-group=system:masters")

MIRROR = {"kubernetes.io/config.mirror": "1"}


def test_what_is_stored_is_what_was_applied(cluster, base):
    """C06: the API server has nothing to fill in."""
    for resource, kind in cluster._configurations():
        stored = json.loads(cluster.client.get(resource.path(name=f"test-{NAMESPACE}")))["webhooks"]
        rendered = deepcopy(base.one(kind)["webhooks"])
        for webhook in (*stored, *rendered):
            del webhook["clientConfig"], webhook["namespaceSelector"]
        assert stored == rendered


INIT = {"name": "init", "image": "registry.example/image:1"}
CREATED = [
    pytest.param(pod("plain"), False, id="W20-plain"),
    pytest.param(pod("cpu", resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), False, id="cpu-only"),
    pytest.param(pod("env", env=[{"name": "A", "value": "1"}]), False, id="other-env"),
    pytest.param(pod("notes", annotations={"example.com/gpu-fraction": "1"}), False, id="other-annotation"),
    pytest.param(pod("labelled", labels={"nos.nebuly.com/capacity": "in-quota"}), False, id="our-label-alone"),
    pytest.param(pod("init-plain", spec={"initContainers": [INIT]}), False, id="plain-init-container"),
    pytest.param(pod("other-scheduler", spec={"schedulerName": "mine"}), False, id="other-scheduler"),
    pytest.param(
        pod(
            "cni",
            spec={
                "hostNetwork": True,
                "priorityClassName": "system-node-critical",
                "tolerations": [{"operator": "Exists"}],
            },
        ),
        False,
        id="W22-CNI-of-a-vendor",
    ),
    pytest.param(pod("whole", resources=gpu()), True, id="whole-gpu"),
    pytest.param(pod("slice", resources=gpu("1", "nvidia.com/gpu-10gb")), True, id="slice"),
    pytest.param(pod("init", spec={"initContainers": [{**INIT, "resources": gpu()}]}), True, id="init-container"),
    pytest.param(
        pod("sidecar", spec={"initContainers": [{**INIT, "restartPolicy": "Always", "resources": gpu()}]}),
        True,
        id="sidecar",
    ),
    pytest.param(
        pod("second", spec={"containers": [INIT, {**INIT, "name": "b", "resources": gpu()}]}), True, id="second"
    ),
    pytest.param(pod("fraction", annotations={"nos.nebuly.com/gpu-fraction": "0.5"}), True, id="annotation"),
    pytest.param(pod("near", annotations={"nos.nebuly.com/gpu-fractoin": "0.5"}), True, id="near-miss-annotation"),
    pytest.param(pod("near-gpu", resources=gpu("1", "nvidia.com/gpu-10g")), True, id="near-miss-resource"),
    pytest.param(
        pod("quota-only", resources=gpu("10", "nos.nebuly.com/gpu-memory")), True, id="W39-resource-of-quotas"
    ),
    pytest.param(pod("kai", annotations={"gpu-fraction": "0.5"}), True, id="KAI"),
    pytest.param(pod("hami", resources=gpu("3000", "nvidia.com/gpumem")), True, id="HAMi-resource"),
    pytest.param(pod("hami-notes", annotations={"nvidia.com/vgpu-mode": "mig"}), True, id="HAMi-annotation"),
    pytest.param(pod("volcano", resources=gpu("1", "volcano.sh/vgpu-number")), True, id="Volcano"),
    pytest.param(pod("visible", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]), True, id="visible-devices"),
    pytest.param(pod("nos", spec={"schedulerName": "nos-scheduler"}), True, id="nos-scheduler"),
    pytest.param(
        pod("mirror", annotations=MIRROR, spec={"nodeName": "n1"}, resources=gpu()), True, id="mirror-of-a-user"
    ),
]


@pytest.mark.parametrize(("created", "reached"), CREATED)
def test_a_new_pod_reaches_us_only_if_it_names_a_gpu(cluster, recorder, created, reached):
    """W20: nothing else depends on us."""
    name = created["metadata"]["name"]
    cluster.create(created, dry_run=True)
    assert [what for what in recorder.about(name) if "mutate" in what] == (["/mutate CREATE"] if reached else [])


def answered_for(container):
    """Return a record as the webhook writes it."""
    return {
        "nos.nebuly.com/gpu-fraction": "0.5",
        "nos.nebuly.com/gpu-request": f'{{"v":1,"containers":{{"{container}":{{"asked":{{}},"given":{{}},"mode":"mig"}}}}}}',
    }


SLICE = gpu("1", "nvidia.com/mig-1g.5gb")
LATE = [
    pytest.param(pod("l-plain"), [], id="plain"),
    pytest.param(pod("l-whole", resources=gpu()), [], id="whole-gpu"),
    pytest.param(pod("l-answered", annotations=answered_for("main"), resources=SLICE), [], id="answered"),
    pytest.param(pod("l-slice", resources=SLICE), ["/validate CREATE"], id="slice-without-a-record"),
    pytest.param(pod("l-other", annotations=answered_for("other"), resources=SLICE), ["/validate CREATE"], id="record-of-another-container"),
    pytest.param(pod("l-init", spec={"initContainers": [{"name": "init", "image": "i", "resources": SLICE}]}), ["/validate CREATE"], id="init-container"),
    pytest.param(pod("l-note", annotations={"nos.nebuly.com/gpu-fraction": "0.5"}), ["/validate CREATE"], id="annotation-without-a-record"),
]  # fmt: skip


@pytest.mark.parametrize(("created", "asked"), LATE)
def test_the_last_look_is_only_at_what_no_record_speaks_of(cluster, recorder, created, asked):
    """W18."""
    cluster.create(created, dry_run=True)
    assert [what for what in recorder.about(created["metadata"]["name"]) if "validate" in what] == asked


# A pod that someone else still gates is nobody's to release: the sandbox's own reconciler leaves it alone.
GATED = {"schedulingGates": [{"name": "example.com/hold"}, {"name": "nos.nebuly.com/admission"}]}
LABEL = f"{names.QUOTA_LABEL}=quota"


@pytest.fixture
def governed(cluster, recorder) -> Iterator[Cluster]:
    """The namespace with the label that the reconciler gives it."""
    cluster.kubectl(*OURS, "label", "namespace", NAMESPACE, LABEL)

    def is_called() -> bool:
        cluster.create(pod("governed"), dry_run=True)
        return bool(recorder.about("governed"))

    cluster.reaches(is_called)
    yield cluster
    cluster.kubectl(*OURS, "label", "namespace", NAMESPACE, f"{names.QUOTA_LABEL}-")


def test_where_a_quota_governs_every_new_pod_is_shown_once(governed, recorder):
    """Design 3.6: `quota` takes what `slices` does not match."""
    recorder.asked.clear()
    for created in (case.values[0] for case in CREATED):
        governed.create({**created, "metadata": {**created["metadata"], "name": f"g-{created['metadata']['name']}"}}, dry_run=True)  # fmt: skip
    asked = [what for _, what in recorder.asked if "mutate" in what]
    assert asked == ["/mutate CREATE"] * len(CREATED)


def test_pods_of_our_own_accounts_are_not_shown_for_quota(governed, recorder):
    ours = {"apiVersion": "v1", "kind": "Pod", **pod("by-us")}
    governed.kubectl(*OURS, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(ours))
    assert recorder.about("by-us") == []


SMALL = {"requests": {"cpu": "1"}}


def resized(cpu="1", **more):
    """Return the arguments by which kubectl resizes the pod `{name}`."""
    change = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}, **more}
    return "patch", "pod", "{name}", "--subresource=resize", f"--patch={json.dumps(change)}"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        pytest.param(resized("2"), ["/validate resize"], id="larger"),
        pytest.param((*OURS, *resized("2")), [], id="by us"),
        pytest.param(resized("1"), [], id="as it was"),
        pytest.param(resized(metadata={"labels": {names.CAPACITY_LABEL: "in-quota"}}), [], id="with a label on the way"),
    ],
)  # fmt: skip
def test_where_a_quota_governs_a_resize_is_shown(governed, recorder, request, arguments, asked):
    name = "resized-" + request.node.callspec.id.replace(" ", "-")
    governed.create(pod(name, spec=GATED, resources=SMALL))
    recorder.asked.clear()
    governed.kubectl(*(argument.replace("{name}", name) for argument in arguments))
    assert recorder.about(name) == asked
    assert "capacity" not in governed.kubectl("get", "pod", name, "--show-labels")


def test_elsewhere_a_resize_does_not_depend_on_us(cluster, recorder):
    cluster.create(pod("resized", spec=GATED, resources=SMALL))
    recorder.asked.clear()
    cluster.kubectl(*(argument.replace("{name}", "resized") for argument in resized("2")))
    assert recorder.about("resized") == []


def test_a_resize_of_a_gpu_is_refused_by_the_api_server(cluster):
    """So that quota need not look at it."""
    cluster.create(pod("gpu-resized", spec=GATED, resources=gpu()))
    change = {"spec": {"containers": [{"name": "main", "resources": gpu("2")}]}}
    with pytest.raises(KubectlError, match="only cpu and memory resources are mutable"):
        cluster.kubectl("patch", "pod", "gpu-resized", "--subresource=resize", f"--patch={json.dumps(change)}")


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        pytest.param((*OURS, LABEL), [], id="by us"),
        pytest.param((LABEL,), ["/validate UPDATE"], id="by a user"),
        pytest.param(("a=b",), [], id="another label"),
    ],
)
def test_the_quota_label_of_a_namespace_is_guarded(cluster, recorder, arguments, asked):
    recorder.asked.clear()
    cluster.kubectl("label", "namespace", NAMESPACE, "--overwrite", "--dry-run=server", *arguments)
    assert recorder.about(NAMESPACE) == asked


@pytest.mark.parametrize("subresource", ["status", "finalize"])
def test_the_ways_round_to_the_labels_of_a_namespace_are_guarded(cluster, recorder, subresource):
    """Both take labels as well, on 1.36."""
    path = NAMESPACES.path(name=NAMESPACE)
    namespace = json.loads(cluster.client.request("GET", path))
    for labels, asked in (({names.QUOTA_LABEL: "other"}, [f"/validate {subresource}"]), ({"a": "b"}, [])):
        recorder.asked.clear()
        namespace["metadata"]["labels"] |= labels
        body = json.dumps(namespace).encode()
        answer = cluster.client.request("PUT", f"{path}/{subresource}", query={"dryRun": "All"}, body=body)
        assert json.loads(answer)["metadata"]["labels"].items() >= labels.items()
        assert recorder.about(NAMESPACE) == asked
        del namespace["metadata"]["labels"][next(iter(labels))]


def test_quotas_are_shown_when_they_are_written_and_when_their_spec_changes(cluster, recorder, root):
    cluster.kubectl("apply", "--server-side", "-k", str(root / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    quota = {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "shown"},
        "spec": {"min": {"cpu": 1}},
    }
    recorder.asked.clear()
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(quota))
    cluster.kubectl("label", "eq", "shown", "a=b")
    cluster.kubectl("patch", "eq", "shown", "--type=merge", '--patch={"spec":{"min":{"cpu":2}}}')
    cluster.kubectl("delete", "eq", "shown")
    assert recorder.about("shown") == ["/validate CREATE", "/validate UPDATE"]


def test_a_share_is_seen_before_the_api_server_refuses_it(cluster, recorder):
    with pytest.raises(Invalid, match="must be an integer"):
        cluster.create(pod("share", resources=gpu("500m")), dry_run=True)
    assert recorder.about("share") == ["/mutate CREATE"]


def test_a_gpu_in_requests_alone_is_seen(cluster, recorder):
    with pytest.raises(Invalid, match="Limit must be set"):
        cluster.create(pod("requested", resources={"requests": {"nvidia.com/gpu": "1"}}), dry_run=True)
    assert recorder.about("requested") == ["/mutate CREATE"]


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        pytest.param({}, [], id="plain"),
        pytest.param({"nos.nebuly.com/gpu-fraction": "1"}, ["/mutate CREATE"], id="asking"),
    ],
)
def test_a_pod_without_containers_gets_the_api_servers_own_complaint(cluster, recorder, annotations, asked):
    """Its `containers` is null when the conditions see it; an error in them would be the wrong complaint."""
    name = f"empty-{len(asked)}"
    with pytest.raises(Invalid, match=r"spec.containers: Required value"):
        cluster.create({"metadata": {"name": name, "annotations": annotations}, "spec": {}}, dry_run=True)
    assert recorder.about(name) == asked


def test_the_mirror_of_a_static_pod_is_left_alone(cluster, recorder):
    mirror = pod("mirrored", annotations=MIRROR, spec={"nodeName": "n1"}, resources=gpu())
    mirror |= {"apiVersion": "v1", "kind": "Pod"}
    cluster.kubectl(*NODE, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(mirror))
    assert recorder.about("mirrored") == []


RECORD = {"nos.nebuly.com/gpu-request": '{"v":1}', "nos.nebuly.com/gpu-fraction": "0.5"}
IMAGE = '{"spec":{"containers":[{"name":"main","image":"registry.example/image:2"}]}}'
NO_GATE = '[{"op": "remove", "path": "/spec/schedulingGates/1"}]'


def patch(text, *options):
    return ("patch", "pod", "{name}", *options, f"--patch={text}")


UPDATED = [
    pytest.param(RECORD, patch(IMAGE), ["/mutate UPDATE"], id="spec-changed"),
    pytest.param({"a": "b"}, patch(IMAGE), [], id="spec-changed-of-another-pod"),
    pytest.param(RECORD, (*OURS, *patch(IMAGE)), [], id="spec-changed-by-us"),
    pytest.param(RECORD, ("label", "pod", "{name}", "a=b"), [], id="label"),
    pytest.param(
        RECORD,
        ("annotate", "--overwrite", "pod", "{name}", "nos.nebuly.com/gpu-fraction=0.25"),
        ["/mutate UPDATE"],
        id="wish-changed-too-late",
    ),
    pytest.param(
        RECORD,
        ("annotate", "pod", "{name}", "nos.nebuly.com/gpu-mode=mig"),
        ["/mutate UPDATE"],
        id="wish-added-too-late",
    ),
    pytest.param(RECORD, ("annotate", "pod", "{name}", "a=b"), [], id="another-annotation"),
    pytest.param(
        {"a": "b"}, ("annotate", "pod", "{name}", "nos.nebuly.com/gpu-mode=mig"), [], id="wish-added-to-another-pod"
    ),
    pytest.param(RECORD, patch('{"status":{"message":"x"}}', "--subresource=status"), [], id="status"),
    pytest.param(
        RECORD,
        patch('{"metadata":{"annotations":{"nos.nebuly.com/evicted-for":"a/b"}}}', "--subresource=status"),
        ["/validate status"],
        id="marked-by-its-status",
    ),
    pytest.param(
        RECORD, patch(NO_GATE, "--type=json"), ["/mutate UPDATE", "/validate UPDATE"], id="gate-removed-by-a-user"
    ),
    pytest.param(RECORD, (*OURS, *patch(NO_GATE, "--type=json")), [], id="gate-removed-by-us"),
    pytest.param(
        RECORD,
        ("annotate", "--overwrite", "pod", "{name}", "nos.nebuly.com/gpu-request={}"),
        ["/validate UPDATE"],
        id="record-changed",
    ),
    pytest.param(
        {"a": "b"},
        ("annotate", "pod", "{name}", "nos.nebuly.com/evicted-for=x"),
        ["/validate UPDATE"],
        id="evicted-for-added",
    ),
    pytest.param(
        {"a": "b"},
        ("annotate", "pod", "{name}", "nos.nebuly.com/non-preemptible=true"),
        ["/validate UPDATE"],
        id="non-preemptible-added",
    ),
    pytest.param(
        {"nos.nebuly.com/non-preemptible": "true"},
        ("annotate", "pod", "{name}", "nos.nebuly.com/non-preemptible-"),
        [],
        id="non-preemptible-removed",
    ),
    pytest.param(
        {"a": "b"},
        ("label", "pod", "{name}", "nos.nebuly.com/capacity=in-quota"),
        ["/validate UPDATE"],
        id="capacity-label-added",
    ),
    pytest.param(
        RECORD, (*OURS, "label", "pod", "{name}", "nos.nebuly.com/capacity=in-quota"), [], id="capacity-label-by-us"
    ),
    pytest.param(
        RECORD,
        ("debug", "{name}", "--image=i", "--env=NVIDIA_VISIBLE_DEVICES=all"),
        ["/validate ephemeralcontainers"],
        id="debugged-with-all-devices",
    ),
    pytest.param(
        RECORD,
        ("debug", "{name}", "--image=i", "--env=CUDA_MPS_PIPE_DIRECTORY=/x"),
        ["/validate ephemeralcontainers"],
        id="debugged-with-mps",
    ),
    pytest.param(
        RECORD,
        ("debug", "{name}", "--image=i", "--profile=sysadmin"),
        ["/validate ephemeralcontainers"],
        id="debugged-with-privilege",
    ),
    pytest.param(RECORD, ("debug", "{name}", "--image=i", "--env=A=b"), [], id="debugged"),
    pytest.param(
        {"a": "b"},
        ("debug", "{name}", "--image=i", "--env=NVIDIA_VISIBLE_DEVICES=all"),
        ["/validate ephemeralcontainers"],
        id="another-pod-debugged-with-all-devices",
    ),
    pytest.param(
        {"a": "b"},
        ("debug", "{name}", "--image=i", "--env=CUDA_MPS_PIPE_DIRECTORY=/x"),
        [],
        id="another-pod-debugged-with-mps",
    ),
]


@pytest.mark.parametrize(("annotations", "arguments", "asked"), UPDATED)
def test_a_change_reaches_us_only_where_something_of_ours_differs(
    cluster, recorder, request, annotations, arguments, asked
):
    name = request.node.callspec.id
    cluster.create(pod(name, annotations=annotations, spec=GATED))
    recorder.asked.clear()
    cluster.kubectl(*(argument.replace("{name}", name) for argument in arguments))
    assert sorted(recorder.about(name)) == asked


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        pytest.param({}, [], id="bound-as-schedulers-do"),
        pytest.param({"a": "b"}, [], id="bound-with-another-annotation"),
        pytest.param({"nos.nebuly.com/evicted-for": "a/b"}, ["/validate binding"], id="marked-by-its-binding"),
    ],
)
def test_a_binding_reaches_us_only_where_it_marks_the_pod(cluster, recorder, request, annotations, asked):
    """W23: the annotations of a Binding become the pod's."""
    name = request.node.callspec.id
    cluster.create(pod(name))
    recorder.asked.clear()
    target = {"kind": "Node", "name": "none"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": annotations}}
    body = json.dumps({**binding, "target": target}).encode()
    cluster.client.request("POST", f"{cluster.pods}/{name}/binding", body=body)
    assert recorder.about(name) == asked


def test_a_replaced_pod_that_comes_without_annotations_is_recognised_by_the_old_one(cluster, recorder):
    cluster.create(pod("replaced", annotations=RECORD, spec=GATED))
    recorder.asked.clear()
    stored = json.loads(cluster.kubectl("get", "pod", "replaced", "-o", "json"))
    del stored["metadata"]["annotations"]
    stored["spec"]["containers"][0]["image"] = "registry.example/image:2"
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(stored))
    assert sorted(recorder.about("replaced")) == ["/mutate UPDATE", "/validate UPDATE"]


def test_a_manifest_of_nos_that_is_applied_again_is_seen(cluster, recorder):
    """Else the field, which cannot change, would be refused: at creation we have made it the default scheduler's."""
    cluster.create(pod("again", spec=GATED))
    recorder.asked.clear()
    with pytest.raises(KubectlError, match="pod updates may not change fields"):
        cluster.kubectl("patch", "pod", "again", '--patch={"spec":{"schedulerName":"nos-scheduler"}}')
    assert recorder.about("again") == ["/mutate UPDATE"]


def test_a_pod_on_its_way_out_is_left_alone_but_for_our_marks(cluster, recorder):
    leaving = pod("leaving", annotations=RECORD, spec=GATED)
    leaving["metadata"]["finalizers"] = ["example.com/kept"]
    cluster.create(leaving)
    cluster.kubectl("delete", "pod", "leaving", "--wait=false")
    recorder.asked.clear()
    cluster.kubectl("patch", "pod", "leaving", f"--patch={IMAGE}")
    cluster.kubectl("label", "pod", "leaving", "a=b")
    assert recorder.asked == []
    cluster.kubectl("annotate", "pod", "leaving", "nos.nebuly.com/evicted-for=a/b")
    assert recorder.about("leaving") == ["/validate UPDATE"], "it counts in quotas until it ends"
    cluster.kubectl("patch", "pod", "leaving", "--type=json", '--patch=[{"op":"remove","path":"/metadata/finalizers"}]')


def test_with_the_webhook_down_only_pods_that_name_a_gpu_are_refused(sandbox, base):
    """W20: and its twin, that the very same pod with a GPU is refused, so the configuration was in force."""
    cluster = Cluster(sandbox, base, "kube-system")
    cluster.direct_to("https://127.0.0.1:1", trustme.CA().cert_pem.bytes())
    try:

        def is_in_force() -> bool:
            try:
                cluster.create(pod("down", resources=gpu()), dry_run=True)
            except ApiError as refusal:
                return "failed calling webhook" in refusal.message
            return False

        cluster.reaches(is_in_force)
        cluster.create(pod("down"), dry_run=True)
        cluster.create(pod("down", annotations={"a": "b"}, spec={"initContainers": [INIT]}), dry_run=True)
        for resources, refused in (({}, False), (gpu(), False), (gpu("0.5"), True)):
            template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("down", resources=resources)["spec"]}
            deployment = {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "down"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
            }
            with pytest.raises(KubectlError, match="failed calling webhook") if refused else contextlib.nullcontext():
                cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(deployment))
    finally:
        cluster.undirect()
