"""Reviews of workloads: whatever the kind, the template is found and the answer is a patch, a denial or nothing."""

import base64
import json

import jsonpatch
import pytest

from policies import names
from policies.templates import KINDS
from tests.builders import container
from webhook.errors import MalformedReview
from webhook.review import mutate, validate

OURS = "system:serviceaccount:apportion-system:apportion-reconciler"


def workload(kind, amount="500m", annotations=None):
    inner = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [container(limits={names.GPU: amount} if amount else None)]},
    }
    for step in reversed(kind.template):
        inner = {step: inner}
    return {"kind": kind.name, "metadata": {"name": "w"}, **inner}


def reviewed(kind, new, old=None, *, user="alice", **fields):
    request = {
        "uid": "7b2e",
        "resource": {"group": kind.group, "version": "v1", "resource": kind.plural},
        "operation": "UPDATE" if old else "CREATE",
        "namespace": "team-a",
        "userInfo": {"username": user},
        "object": new,
        "oldObject": old,
        **fields,
    }
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    return json.loads(mutate(body.encode(), cluster=None))["response"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_share_in_a_template_is_moved_and_the_user_told(kind):
    answer = reviewed(kind, workload(kind))
    patched = jsonpatch.apply_patch(workload(kind), json.loads(base64.b64decode(answer["patch"])))
    want = workload(kind, None, {names.FRACTION: "0.5", names.CONTAINER: "main"})
    inner = want
    for step in kind.template:
        inner = inner[step]
    inner["spec"]["containers"][0]["resources"] = {"limits": {}}
    assert (answer["allowed"], answer["patchType"], patched) == (True, "JSONPatch", want)
    assert len(answer["warnings"]) == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_old_template_is_looked_at_when_a_workload_is_updated(kind):
    asked = {names.FRACTION: "0.25", names.CONTAINER: "main"}
    answer = reviewed(kind, workload(kind, annotations=asked), workload(kind, None, asked))
    assert {operation["op"] for operation in json.loads(base64.b64decode(answer["patch"]))} == {"add", "remove"}


def test_a_faulty_share_is_refused():
    kind = KINDS[0]
    answer = reviewed(kind, workload(kind, "1500m"))
    assert not answer["allowed"]
    assert answer["status"]["code"] == 422
    assert answer["status"]["message"].startswith(
        "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: 1500m: "
    )


def test_a_workload_that_cannot_be_read_is_refused_with_its_faults():
    kind = KINDS[-1]
    broken = workload(kind)
    broken["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"] = None
    answer = reviewed(kind, broken)
    assert "spec.jobTemplate.spec.template.spec.containers: null: must be a list" in answer["status"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"user": OURS}, id="ours"),
        pytest.param({"subResource": "scale"}, id="scale"),
        pytest.param({"operation": "DELETE"}, id="deletion"),
    ],
)
def test_what_is_none_of_our_business_passes_untouched(fields):
    assert reviewed(KINDS[0], workload(KINDS[0]), **fields) == {"uid": "7b2e", "allowed": True}


def test_workloads_are_not_validated():
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "1", "resource": {"group": "apps", "resource": "deployments"}, "operation": "CREATE"},
    }
    with pytest.raises(MalformedReview):
        validate(json.dumps(review).encode(), cluster=None)
