"""AdmissionReviews as the API server sends them, and the answers that it gets."""

import json

import jsonpatch
import pytest

from policies import names
from tests.builders import container, raw_pod
from tests.webhook.reviews import CLUSTER, RECONCILER, SHARE, admitted, answer, patch_of, review
from webhook.errors import MalformedReview
from webhook.review import mutate, validate


def test_a_share_is_answered_with_a_patch_and_a_warning():
    response = answer(mutate, review(SHARE))
    limits = jsonpatch.apply_patch(SHARE, patch_of(response))["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/mig-2g.12gb": "1"}
    assert response["warnings"] == [
        "nos.nebuly.com/gpu-fraction 0.5 -> nvidia.com/mig-2g.12gb (2/4 compute, 11.69 GiB of NVIDIA-A30); isolated in hardware"
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
    assert response["warnings"][-1] == "borrows 1 of idle's unused nvidia.com/gpu; may be evicted"
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
    assert "waits until its quota is put right" in held["warnings"][-1]
    assert patch_of(answer(mutate, review(pod, namespace="elsewhere"))) == []
