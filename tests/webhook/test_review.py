"""AdmissionReviews as the API server sends them, and the answers that it gets."""

import base64
import json
from types import SimpleNamespace

import jsonpatch
import msgspec
import pytest

from policies import names
from policies.estimate import Standings
from policies.governing import view_quota
from policies.gpupolicy import Policies, view_policy
from policies.inventory import Inventory
from policies.model import CompositeElasticQuota, ElasticQuota, GpuPolicy, ObjectMeta
from policies.settings import DEFAULTS
from policies.view import view_node
from tests.builders import A30, container, make_node, raw_pod
from webhook.errors import MalformedReview
from webhook.review import mutate, validate

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def quota(namespace="lent", kind=ElasticQuota, name="quota", **spec):
    return {
        "kind": kind.__name__,
        "metadata": {"name": name, "namespace": namespace, "uid": "q"},
        "spec": spec or {"min": {names.GPU: 2, "cpu": 4}},
    }


def viewed(kind=ElasticQuota, **fields):
    return view_quota(msgspec.convert(quota(kind=kind, **fields), kind))


QUOTAS = (
    viewed(),
    viewed(namespace="idle", min={names.GPU: 3}),
    viewed(namespace="broken", min={names.GPU: 3}, max={names.GPU: 1}),
    viewed(CompositeElasticQuota, namespace="default", namespaces=["one", "two"]),
)
POLICIES = (
    view_policy(GpuPolicy(metadata=ObjectMeta(name="policy", namespace=namespace), spec={"rules": [rule]}))
    for namespace, rule in (
        ("ruled", {"wholeGpu": {"fraction": "0.5"}, "modes": ["mps", "mig"], "mps": {"threads": "proportional"}}),
        ("faulty", {"rounding": "down"}),
    )
)
CLUSTER = SimpleNamespace(
    inventory=Inventory.of(
        view_node(node) for node in (make_node("a"), make_node("b", mode="mps"), make_node("c", A30))
    ),
    policies=Policies(POLICIES),
    settings=DEFAULTS,
    knows=lambda namespace: namespace != "absent",
    labels_of=lambda namespace: RESTRICTED if namespace == "strict" else {},
    quotas=QUOTAS,
    standings=Standings.of(QUOTAS, {"ElasticQuota lent/quota": {names.GPU: 2000, "cpu": 0}}),
)
RECONCILER = "system:serviceaccount:apportion-system:apportion-reconciler"


def review(
    pod=None,
    old=None,
    *,
    operation="CREATE",
    namespace="team-a",
    user="alice",
    groups=("system:authenticated",),
    **fields,
):
    request = {
        "uid": "7b2e", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": operation, "namespace": namespace, "userInfo": {"username": user, "groups": list(groups)}, "object": pod, "oldObject": old,
        "dryRun": False, "options": {"kind": "CreateOptions"}, **fields,
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def answer(call, body, cluster=CLUSTER):
    said = json.loads(call(body, cluster))
    assert (said["apiVersion"], said["kind"], said["response"]["uid"]) == (
        "admission.k8s.io/v1",
        "AdmissionReview",
        "7b2e",
    )
    return said["response"]


def patch_of(response):
    assert response["allowed"] is True
    assert response.get("patchType") == ("JSONPatch" if "patch" in response else None)
    return json.loads(base64.b64decode(response.get("patch", "W10=")))


def admitted(pod, **fields):
    return jsonpatch.apply_patch(pod, patch_of(answer(mutate, review(pod, **fields))))


SHARE = raw_pod(annotations={names.FRACTION: "0.5"})


def test_a_share_is_answered_with_a_patch_and_a_warning():
    response = answer(mutate, review(SHARE))
    limits = jsonpatch.apply_patch(SHARE, patch_of(response))["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/mig-2g.12gb": "1"}
    assert response["warnings"] == [
        "nos.nebuly.com/gpu-fraction 0.5 -> nvidia.com/mig-2g.12gb (2/4 compute, 11.69 GiB of NVIDIA-A30)"
    ]
    assert "status" not in response


def test_a_denial_has_every_fault_a_code_and_no_patch():
    response = answer(mutate, review(raw_pod(annotations={names.FRACTION: "2", names.COUNT: "x"})))
    assert (response["allowed"], response["status"]["code"], response["status"]["reason"]) == (False, 422, "Invalid")
    assert [line.split(":")[0] for line in response["status"]["message"].splitlines()] == [
        "metadata.annotations[nos.nebuly.com/gpu-fraction]", "metadata.annotations[nos.nebuly.com/gpu-count]",
    ]  # fmt: skip
    assert not {"patch", "patchType"} & set(response)


def test_a_pod_that_asks_for_nothing_is_allowed_without_a_patch():
    assert answer(mutate, review(raw_pod())) == {"uid": "7b2e", "allowed": True}


def test_the_namespace_is_that_of_the_request():
    """W05: the pod of a controller has no namespace, or might claim another."""
    pod = raw_pod(limits={"nvidia.com/gpu-10gb": "1"})
    del pod["metadata"]["namespace"]
    for metadata in ({}, {"namespace": "team-a"}):
        response = answer(mutate, review({**pod, "metadata": metadata}, namespace="strict"))
        assert "namespace strict" in response["status"]["message"]
    assert patch_of(answer(mutate, review({**pod, "metadata": {"namespace": "strict"}}, namespace="team-a")))


def test_the_answer_to_a_dry_run_is_the_same():
    assert answer(mutate, review(SHARE, dryRun=True)) == answer(mutate, review(SHARE))


def test_what_was_answered_once_is_allowed_unchanged():
    """W16."""
    assert patch_of(answer(mutate, review(admitted(SHARE)))) == []


# Skipped, each for one reason -----------------------------------------------------------------------------------------

MIRROR = raw_pod(annotations={names.FRACTION: "0.5", "kubernetes.io/config.mirror": "abc"}, node="n1")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(review(SHARE, user=RECONCILER), id="our own account"),
        pytest.param(review(MIRROR, user="system:node:n1", groups=["system:nodes"]), id="a mirror pod of a node"),
        pytest.param(review(None, SHARE, operation="DELETE"), id="a deletion"),
        pytest.param(review({"kind": "Binding"}, operation="CREATE", subResource="binding"), id="a binding"),
        pytest.param(review(SHARE, SHARE, operation="UPDATE", subResource="status"), id="a status"),
        pytest.param(review({"kind": "PodExecOptions"}, operation="CONNECT", subResource="exec"), id="a connection"),
    ],
)
def test_some_requests_are_never_changed(body):
    """W29: decided once, up front."""
    assert answer(mutate, body) == {"uid": "7b2e", "allowed": True}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            review(SHARE, user="system:serviceaccount:apportion-system-2:x"), id="an account of a namespace like ours"
        ),
        pytest.param(
            review(SHARE, user="system:serviceaccount:team-a:apportion-system"),
            id="an account named like our namespace",
        ),
        pytest.param(review(MIRROR, user="mallory"), id="a mirror pod that a user made up"),
    ],
)
def test_who_only_looks_like_one_of_them_is_reviewed(body):
    response = answer(mutate, body)
    assert "patch" in response or not response["allowed"]


# Updates --------------------------------------------------------------------------------------------------------------


def test_an_update_gets_back_what_was_admitted():
    manifest = raw_pod(limits={"nvidia.com/gpu": "500m"})
    old = admitted(manifest)
    merged = json.loads(json.dumps(old))
    merged["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "500m"
    assert jsonpatch.apply_patch(merged, patch_of(answer(mutate, review(merged, old, operation="UPDATE")))) == old


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        pytest.param({"finalizers": []}, {}, id="a finalizer is dropped"),
        pytest.param({"labels": {"a": "b"}}, {}, id="a label"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, id="on its way out"),
    ],
)
def test_metadata_of_pods_made_before_us_can_be_changed(change, fields):
    """W13."""
    old = raw_pod(limits={"nvidia.com/gpu": "1500m", "nvidia.com/gpu-10g": "1"}, **fields)
    new = {**old, "metadata": {**old["metadata"], **change}}
    for call in (mutate, validate):
        assert answer(call, review(new, old, operation="UPDATE")) == {"uid": "7b2e", "allowed": True}


def debugged(pod, *ephemeral):
    return {**pod, "spec": {**pod["spec"], "ephemeralContainers": list(ephemeral)}}


def test_debug_containers_are_allowed_the_first_and_the_second_time():
    """W15."""
    pod = admitted(SHARE)
    one, two = (
        {"name": "debug-1", "targetContainerName": "main"},
        {"name": "debug-2", "env": [{"name": "A", "value": "b"}]},
    )
    for old, new in ((pod, debugged(pod, one)), (debugged(pod, one), debugged(pod, one, two))):
        for call in (mutate, validate):
            body = review(new, old, operation="UPDATE", subResource="ephemeralcontainers")
            assert answer(call, body) == {"uid": "7b2e", "allowed": True}


def test_a_debug_container_may_not_reach_beyond_the_slices_of_its_pod():
    """W06, also by an update that adds it."""
    pod = admitted(SHARE)
    sees_all = {"name": "debug", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    body = review(debugged(pod, sees_all), pod, operation="UPDATE", subResource="ephemeralcontainers")
    response = answer(validate, body)
    assert (response["allowed"], response["status"]["code"]) == (False, 403)
    assert response["status"]["message"].startswith(
        "spec.ephemeralContainers[0].env[0]: NVIDIA_VISIBLE_DEVICES=all: would reach beyond"
    )
    for old, new in ((debugged(pod, sees_all),) * 2, (raw_pod(), debugged(raw_pod(), sees_all))):
        body = review(new, old, operation="UPDATE", subResource="ephemeralcontainers")
        assert answer(validate, body)["allowed"], "it is there already, or the pod has no slice"


def test_a_privileged_debug_container_would_see_the_whole_board():
    """W06, as for containers that are created with their pod."""
    pod, debugger = admitted(SHARE), {"name": "debug", "securityContext": {"privileged": True}}
    body = review(debugged(pod, debugger), pod, operation="UPDATE", subResource="ephemeralcontainers")
    response = answer(validate, body)
    assert (response["allowed"], response["status"]["code"]) == (False, 403)
    assert response["status"]["message"].startswith("spec.ephemeralContainers[0].securityContext.privileged: true: ")


def test_a_debug_container_that_cannot_be_read_is_denied():
    pod = admitted(SHARE)
    body = review(debugged(pod, {"name": "a", "env": {}}), pod, operation="UPDATE", subResource="ephemeralcontainers")
    assert (
        answer(validate, body)["status"]["message"]
        == "spec.ephemeralContainers[0].env: {}: must be a list, not an object"
    )


# Validation -----------------------------------------------------------------------------------------------------------


def changed_admitted(change):
    old = admitted(SHARE)
    new = json.loads(json.dumps(old))
    change(new)
    return review(new, old, operation="UPDATE"), review(new, old, operation="UPDATE", user=RECONCILER)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        pytest.param(lambda pod: pod["spec"].pop("schedulingGates"), "spec.schedulingGates", id="gate"),
        pytest.param(lambda pod: pod["metadata"]["annotations"].pop(names.RECORD), f"metadata.annotations[{names.RECORD}]", id="record gone"),
        pytest.param(lambda pod: pod["metadata"].pop("annotations"), f"metadata.annotations[{names.RECORD}]", id="all annotations gone"),
        pytest.param(lambda pod: pod["metadata"]["annotations"].update({names.EVICTED_FOR: "a/b"}), f"metadata.annotations[{names.EVICTED_FOR}]",
                     id="victim's mark"),
        pytest.param(lambda pod: pod["metadata"]["annotations"].update({names.RELEASED_AT: "x"}), f"metadata.annotations[{names.RELEASED_AT}]",
                     id="time of release"),
        pytest.param(lambda pod: pod["metadata"].update(labels={names.CAPACITY_LABEL: "in-quota"}), f"metadata.labels[{names.CAPACITY_LABEL}]",
                     id="capacity label"),
    ],
)  # fmt: skip
def test_only_our_accounts_change_what_is_ours(change, path):
    """W35."""
    by_user, by_us = changed_admitted(change)
    response = answer(validate, by_user)
    assert (response["allowed"], response["status"]["code"], response["status"]["reason"]) == (False, 403, "Forbidden")
    assert response["status"]["message"].startswith(f"{path}: ")
    assert answer(validate, by_us) == {"uid": "7b2e", "allowed": True}


LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("sub_resource", ["", "status"], ids=["the pod", "its status"])
@pytest.mark.parametrize("metadata", [{}, LEAVING], ids=["there", "on its way out"])
def test_a_user_cannot_have_a_pod_counted_for_somebody_else(metadata, sub_resource):
    """W35: a pod that ends slowly and bears `evicted-for` would use up another quota in place of its own."""
    pod = admitted(SHARE)
    old = {**pod, "metadata": {**pod["metadata"], **metadata}}
    notes = {**old["metadata"]["annotations"], names.EVICTED_FOR: "team-b/train"}
    new = {**old, "metadata": {**old["metadata"], "annotations": notes}}
    body = review(new, old, operation="UPDATE", **({"subResource": sub_resource} if sub_resource else {}))
    response = answer(validate, body)
    assert (response["allowed"], response["status"]["code"]) == (False, 403)
    assert response["status"]["message"].startswith(f"metadata.annotations[{names.EVICTED_FOR}]: team-b/train: ")


@pytest.mark.parametrize("kind", [{"subResource": "binding"}, {"resource": {"version": "v1", "resource": "bindings"}}])
def test_a_binding_does_not_mark_its_pod(kind):
    """W35: the API server copies its annotations to the pod. Those of others are none of ours."""
    binding = {"metadata": {"name": "train", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n1"}}
    assert answer(validate, review(binding, **kind)) == {"uid": "7b2e", "allowed": True}
    binding["metadata"]["annotations"] |= {names.RECORD: "{}", names.NON_PREEMPTIBLE: "true"}
    response = answer(validate, review(binding, **kind))
    assert (response["allowed"], response["status"]["code"]) == (False, 403)
    assert response["status"]["message"].splitlines() == [
        f"metadata.annotations[{names.RECORD}]: {{}}: is not for a Binding to give: leave it out",
        f"metadata.annotations[{names.NON_PREEMPTIBLE}]: true: is not for a Binding to give: leave it out",
    ]


def test_foreign_gates_are_for_others_to_remove():
    old = raw_pod(gates=["other", names.GATE])
    assert answer(validate, review(raw_pod(gates=[names.GATE]), old, operation="UPDATE"))["allowed"]


@pytest.mark.parametrize(
    ("pod", "path"),
    [
        pytest.param(SHARE, f"metadata.annotations[{names.FRACTION}]: 0.5", id="annotation"),
        pytest.param(raw_pod(limits={"nvidia.com/mig-1g.6gb": "1"}), "spec.containers[0].resources.limits[nvidia.com/mig-1g.6gb]: 1", id="slice"),
        pytest.param(raw_pod(limits={"nvidia.com/gpu-10g": "1"}), "spec.containers[0].resources.limits[nvidia.com/gpu-10g]: 1", id="near miss"),
    ],
)  # fmt: skip
def test_a_wish_that_came_in_after_us_is_denied(pod, path):
    """W18, W27: the last look at a new pod finds what the mutating webhook was not asked about."""
    response = answer(validate, review(pod))
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert response["status"]["message"].startswith(path)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(raw_pod(), id="no wish"),
        pytest.param(raw_pod(limits={names.GPU: "1"}), id="a whole GPU"),
        pytest.param(raw_pod(limits={names.GPU_SHARED: "1"}), id="another plugin's"),
    ],
)
def test_what_needs_no_answer_passes_the_last_look(pod):
    assert answer(validate, review(pod)) == {"uid": "7b2e", "allowed": True}


def test_what_was_answered_passes_the_last_look():
    assert answer(validate, review(admitted(SHARE)))["allowed"]


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [mutate, validate])
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b"\xff", b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":1}}',
        review(SHARE).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), review(SHARE).replace(b"AdmissionReview", b"ConversionReview"),
        review(SHARE, resource={"group": "apps", "version": "v1", "resource": "controllerrevisions"}), review(SHARE, resource=None),
    ],
)  # fmt: skip
def test_a_body_that_is_no_review_of_a_pod_is_malformed(call, body):
    with pytest.raises(MalformedReview):
        call(body, CLUSTER)


def test_a_pod_that_cannot_be_read_is_denied_with_every_fault_and_its_path():
    pod = {
        "metadata": {"annotations": {names.FRACTION: 0.5, "a": None}},
        "spec": {
            "containers": [container(limits={"nvidia.com/gpu": ["1"]}), {"name": 7, "env": "x"}],
            "hostIPC": "yes",
        },
    }
    response = answer(mutate, review(pod))
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert response["status"]["message"].splitlines() == [
        "metadata.annotations[nos.nebuly.com/gpu-fraction]: 0.5: must be text, not a number: quote it",
        "metadata.annotations[a]: null: must be text, not null",
        "spec.containers[0].resources.limits[nvidia.com/gpu]: ['1']: must be a quantity, not a list",
        "spec.containers[1].name: 7: must be text, not a number: quote it",
        "spec.containers[1].env: x: must be a list, not text",
        "spec.hostIPC: yes: must be true or false, not text",
    ]


@pytest.mark.parametrize("pod", [None, "text", [], {}])
def test_an_object_that_is_no_pod_is_denied(pod):
    assert answer(mutate, review(pod))["allowed"] is False


def test_an_update_without_the_old_object_is_denied():
    for call in (mutate, validate):
        assert answer(call, review(SHARE, None, operation="UPDATE"))["allowed"] is False


def test_a_pod_of_a_governed_namespace_gets_label_gate_and_a_word_about_whose_it_borrows():
    """Design 4, label: the estimate comes from the status of the quotas alone."""
    body = review(raw_pod("lent/train", limits={names.GPU: "1"}), namespace="lent")
    response = answer(mutate, body)
    assert response["warnings"] == ["borrows 1 of idle's unused nvidia.com/gpu; may be evicted"]
    assert patch_of(response) == [
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": names.GATE}]},
        {"op": "add", "path": "/metadata/labels", "value": {names.CAPACITY_LABEL: "over-quota"}},
    ]


def test_a_pod_that_asks_for_cpu_alone_waits_for_its_quota_too():
    pod = admitted(raw_pod("lent/web", limits={"cpu": "1"}), namespace="lent")
    assert pod["metadata"]["labels"] == {names.CAPACITY_LABEL: "in-quota"}
    assert pod["spec"]["schedulingGates"] == [{"name": names.GATE}]


def test_a_pod_that_alone_exceeds_all_mins_is_denied():
    """Q05: it could never run."""
    response = answer(mutate, review(raw_pod("lent/train", limits={names.GPU: "9"}), namespace="lent"))
    assert response["status"]["code"] == 422
    assert "can never run" in response["status"]["message"]


def test_a_quota_with_a_fault_holds_its_own_namespaces_pods_and_no_others():
    """Q37"""
    pod = raw_pod("x/train", limits={names.GPU: "1"})
    held = answer(mutate, review(pod, namespace="broken"))
    assert "waits until its quota is put right" in held["warnings"][0]
    assert patch_of(answer(mutate, review(pod, namespace="elsewhere"))) == []


def written(obj, old=None, *, user="alice", resource="elasticquotas", group=names.API_GROUP):
    where = {"group": group, "version": "v1alpha1", "resource": resource}
    namespace = obj["metadata"].get("namespace", "")
    operation = "UPDATE" if old else "CREATE"
    body = review(obj, old, operation=operation, namespace=namespace, user=user, resource=where)
    return answer(validate, body)


def test_a_quota_is_refused_with_every_fault():
    """Q34: at apply time, all at once, with paths."""
    response = written(quota("new", min={"gpu": 1, names.GPU: 4}, max={names.GPU: 1}))
    assert response["status"]["code"] == 422
    assert response["status"]["message"].splitlines() == [
        "spec.min[gpu]: gpu: is no resource: write nvidia.com/gpu",
        "spec.min[nvidia.com/gpu]: 4: is more than spec.max[nvidia.com/gpu], 1: lower it, or raise that",
    ]


def test_a_quota_that_cannot_be_read_is_refused_with_its_path():
    response = written(quota("new", min=["cpu"]))
    assert response["status"]["message"].startswith("spec.min: ")


def test_a_quota_where_a_composite_governs_is_refused():
    assert "CompositeElasticQuota default/quota governs it already" in written(quota("one"))["status"]["message"]


def test_a_composite_over_quotas_that_are_there_is_allowed_with_a_warning():
    response = written(
        quota("default", CompositeElasticQuota, "new", namespaces=["lent", "absent"], min={names.GPU: 1}),
        resource="compositeelasticquotas",
    )
    assert response["allowed"]
    assert response["warnings"] == [
        "ElasticQuota lent/quota is no longer in force: this quota governs lent",
        "spec.namespaces: absent: is not there yet: it is governed once it is created",
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"finalizers": []}, id="its metadata alone"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, id="its deletion"),
    ],
)
def test_a_faulty_quota_that_stands_there_can_be_cleared_away(change):
    old = quota("broken", min={names.GPU: 3}, max={names.GPU: 1})
    assert written({**old, "metadata": {**old["metadata"], **change}}, old)["allowed"]


def labelled(**labels):
    return {"metadata": {"name": "lent", "labels": labels}}


@pytest.mark.parametrize(
    ("user", "now", "allowed"),
    [
        pytest.param("alice", {names.QUOTA_LABEL: "other"}, False, id="a user changes it"),
        pytest.param("alice", {}, False, id="a user removes it"),
        pytest.param(RECONCILER, {}, True, id="the reconciler"),
        pytest.param("alice", {names.QUOTA_LABEL: "quota", "a": "b"}, True, id="another label"),
    ],
)
def test_the_label_of_a_governed_namespace_is_ours(user, now, allowed):
    old = labelled(**{names.QUOTA_LABEL: "quota"})
    response = written(labelled(**now), old, user=user, resource="namespaces", group="")
    assert response["allowed"] is allowed
    if not allowed:
        assert response["status"]["code"] == 403
        assert response["status"]["message"].startswith(f"metadata.labels[{names.QUOTA_LABEL}]: ")


@pytest.mark.parametrize(
    ("before", "now", "allowed"),
    [
        pytest.param({}, {names.NON_PREEMPTIBLE: "true"}, False, id="added later"),
        pytest.param({names.NON_PREEMPTIBLE: "true"}, {}, True, id="taken away"),
        pytest.param({names.NON_PREEMPTIBLE: "true"}, {names.NON_PREEMPTIBLE: "true"}, True, id="kept"),
    ],
)
def test_a_pod_cannot_be_made_safe_from_eviction_after_it_was_admitted(before, now, allowed):
    """Else what is borrowed would be kept for ever."""
    body = review(raw_pod(annotations=now), raw_pod(annotations=before), operation="UPDATE")
    assert answer(validate, body)["allowed"] is allowed
