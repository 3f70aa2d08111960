"""Reviews as the API server sends them to a webhook that knows a small cluster, and the answers that it gets."""

import base64
import itertools
import json
from types import SimpleNamespace

import jsonpatch
import msgspec

from policies import names
from policies.estimate import Standings
from policies.governing import view_quota
from policies.gpupolicy import Policies, view_policy
from policies.inventory import Inventory
from policies.model import CompositeElasticQuota, ElasticQuota, GpuPolicy, ObjectMeta
from policies.settings import DEFAULTS
from policies.view import view_node
from tests.builders import A30, make_node, raw_pod
from webhook.review import mutate, validate
from webhook.tally import Tally

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


def forgetful():
    """Return a tally on whose clock a minute passes between reviews, so that none sees what another was answered."""
    return Tally(itertools.count(step=60.0).__next__)


CLUSTER = SimpleNamespace(
    tally=forgetful(),
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


def written(obj, old=None, *, user="alice", resource="elasticquotas", group=names.API_GROUP):
    where = {"group": group, "version": "v1alpha1", "resource": resource}
    namespace = obj["metadata"].get("namespace", "")
    operation = "UPDATE" if old else "CREATE"
    body = review(obj, old, operation=operation, namespace=namespace, user=user, resource=where)
    return answer(validate, body)


SHARE = raw_pod(annotations={names.FRACTION: "0.5"})
