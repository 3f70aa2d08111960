"""Reviews where policies govern, and reviews of the policies themselves."""

from types import SimpleNamespace

import msgspec
import pytest

from policies import names
from policies.estimate import Standings
from policies.governing import QuotaView
from policies.gpupolicy import Policies, view_policy
from policies.inventory import Inventory
from policies.model import GpuPolicy
from policies.settings import DEFAULTS
from policies.view import view_node
from tests.builders import make_node, raw_pod
from tests.webhook.reviews import RECONCILER, answer, forgetful, patch_of, review
from webhook.review import mutate, validate

A100 = "NVIDIA-A100-SXM4-40GB"
SHARED = {names.FRACTION: "0.25"}
ALL_DEVICES = {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}


def policy(namespace, *rules, name="policy", **spec):
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "GpuPolicy",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
        "spec": {"rules": list(rules), **spec},
    }


POLICIES = (
    policy("shared", {"match": {"matchLabels": {"tier": "batch"}}, "modes": ["mig"]}, {"modes": ["mps"]}),
    policy("open", {"visibleDevices": "allow"}),
    policy("closed", {"match": {"matchLabels": {"debug": "yes"}}, "visibleDevices": "allow"}, {}),
    policy("broken", {"modes": ["mig"], "wholeGpu": {"memory": "much"}}),
    policy("labelled", quota={"admission": "label"}),
    policy("apportion-system", {"wholeGpu": "deny"}, name="default"),
)
QUOTAS = tuple(
    QuotaView(kind="ElasticQuota", namespace=space, name="quota", namespaces=(space,), min={names.GPU: 1000})
    for space in ("labelled", "gated")
)
CLUSTER = SimpleNamespace(
    tally=forgetful(),
    inventory=Inventory.of([view_node(make_node("a")), view_node(make_node("b", mode="mps"))]),
    policies=Policies([view_policy(msgspec.convert(one, GpuPolicy)) for one in POLICIES]),
    settings=DEFAULTS,
    labels_of=lambda _: {},
    quotas=QUOTAS,
    standings=Standings.of(QUOTAS, {}),
)


def created(namespace, **fields):
    return answer(mutate, review(raw_pod("/train", **fields), namespace=namespace), CLUSTER)


def given(namespace, **fields):
    """Return the one slice that a new pod gets."""
    response = created(namespace, **fields)
    assert response["allowed"], response["status"]["message"]
    (slices,) = (one["value"]["limits"] for one in patch_of(response) if one["path"].endswith("/resources"))
    return slices


# Pods -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "labels", "slices"),
    [
        pytest.param("shared", {}, {"nvidia.com/gpu-10gb": "1"}, id="W05-of-the-reviews-namespace"),
        pytest.param("shared", {"tier": "batch"}, {"nvidia.com/mig-1g.10gb": "1"}, id="the first rule that fits"),
        pytest.param("elsewhere", {}, {"nvidia.com/mig-1g.10gb": "1"}, id="the default one"),
    ],
)
def test_a_pod_is_judged_by_the_policy_of_its_namespace(namespace, labels, slices):
    assert given(namespace, annotations=SHARED, labels=labels, containers=[{"name": "main"}]) == slices


def test_the_default_policy_holds_where_there_is_no_own_one():
    """Whole GPUs are denied by default, and kept where a policy of one's own says nothing of them."""
    whole = {"limits": {names.GPU: "1"}}
    assert not created("elsewhere", **whole)["allowed"]
    assert created("open", **whole)["allowed"]


def test_a_broken_policy_stops_pods_of_its_namespace_that_ask_for_a_gpu_and_nobody_else():
    """Q37."""
    response = created("broken", annotations=SHARED)
    assert response["status"]["code"] == 422
    assert response["status"]["message"].startswith("GpuPolicy broken/policy: spec.rules[0].wholeGpu.memory: much: ")
    assert created("broken", limits={"cpu": "1"})["allowed"]
    assert created("shared", annotations=SHARED)["allowed"]
    assert created("elsewhere", annotations=SHARED)["allowed"]


@pytest.mark.parametrize(
    ("namespace", "fields", "denied"),
    [
        pytest.param("closed", {}, True, id="W06-a-policy-of-its-own"),
        pytest.param("closed", {"labels": {"debug": "yes"}}, False, id="a rule of it that allows them"),
        pytest.param("open", {}, False, id="W06-allowed"),
        pytest.param("broken", {}, True, id="a broken one allows nothing"),
        pytest.param("elsewhere", {}, False, id="the default one is not its own"),
        pytest.param("elsewhere", {"annotations": SHARED}, True, id="W06-the default one, beside a slice"),
    ],
)
def test_pods_show_themselves_devices_only_where_the_policy_lets_them(namespace, fields, denied):
    container = {"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    response = created(namespace, containers=[container], **fields)
    assert response["allowed"] is not denied
    if denied:
        assert "spec.containers[0].env[0]: NVIDIA_VISIBLE_DEVICES=all: " in response["status"]["message"]


def test_where_the_policy_only_labels_a_pod_is_held_for_its_slice_alone():
    """Design 2 and 3.2: `quota.admission: label`. What a node makes it waits for all the same."""
    gates = {"path": "/spec/schedulingGates", "op": "add", "value": [{"name": names.GATE}]}
    whole, sliced = {"limits": {names.GPU: "1"}}, {"annotations": SHARED}
    assert [gates in patch_of(created(space, **sliced)) for space in ("labelled", "gated")] == [True, True]
    (label,) = patch_of(created("labelled", **whole))
    assert label == {"op": "add", "path": "/metadata/labels", "value": {names.CAPACITY_LABEL: "in-quota"}}
    far_too_many = created("labelled", limits={names.GPU: "9"})
    assert far_too_many["warnings"][-1] == "is 8 nvidia.com/gpu above the min of labelled/quota; may be evicted"


@pytest.mark.parametrize(
    ("namespace", "fields", "places"),
    [
        ("gated", {"annotations": {names.FRACTION: "2"}}, [f"metadata.annotations[{names.FRACTION}]", "spec.nodeName"]),
        ("gated", {"limits": {names.GPU: "1500m"}}, [f"spec.containers[0].resources.limits[{names.GPU}]", "spec.nodeName"]),
        ("labelled", {"annotations": {names.FRACTION: "2"}}, [f"metadata.annotations[{names.FRACTION}]"]),
        ("free", {"annotations": {names.FRACTION: "2"}}, [f"metadata.annotations[{names.FRACTION}]"]),
    ],
    ids=["gated", "gated, by a resource", "only labelled", "not governed"],
)  # fmt: skip
def test_a_node_that_is_named_where_a_quota_holds_pods_is_told_beside_a_wish_that_cannot_be_understood(
    namespace, fields, places
):
    """All faults at once: with a wish that can be, the pod would be denied for its node."""
    told = created(namespace, node="n1", **fields)["status"]["message"]
    assert [line.partition(": ")[0] for line in told.splitlines()] == places


# The guard ------------------------------------------------------------------------------------------------------------


def debugged(namespace, variable, *, sliced, labels=None):
    """Return the answer to an ephemeral container with a variable in a pod that runs."""
    old = raw_pod("/train", annotations={names.RECORD: "{}"} if sliced else {}, labels=labels or {})
    debugger = {"name": "debugger", "image": "i", "env": [{"name": variable, "value": "all"}]}
    new = {**old, "spec": {**old["spec"], "ephemeralContainers": [debugger]}}
    body = review(new, old, operation="UPDATE", namespace=namespace, subResource="ephemeralcontainers")
    return answer(validate, body, CLUSTER)


VISIBLE, PIPES = "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"


@pytest.mark.parametrize(
    ("namespace", "variable", "sliced", "allowed"),
    [
        pytest.param("elsewhere", VISIBLE, True, False, id="beside a slice"),
        pytest.param("elsewhere", PIPES, True, False, id="beside a slice, pipes"),
        pytest.param("elsewhere", VISIBLE, False, True, id="no slice, no policy of its own"),
        pytest.param("closed", VISIBLE, False, False, id="no slice, a policy of its own"),
        pytest.param("closed", PIPES, False, True, id="no slice, pipes"),
        pytest.param("open", VISIBLE, True, True, id="the policy allows it"),
        pytest.param("open", PIPES, True, True, id="the policy allows it, pipes"),
        pytest.param("broken", VISIBLE, True, False, id="a broken one allows nothing"),
    ],
)
def test_a_debugger_sees_what_the_policy_lets_it(namespace, variable, sliced, allowed):
    """W06, W15."""
    response = debugged(namespace, variable, sliced=sliced)
    assert response["allowed"] is allowed
    if not allowed:
        assert response["status"]["code"] == 403
        assert response["status"]["message"].startswith(f"spec.ephemeralContainers[0].env[0]: {variable}=all: ")


def test_a_debugger_is_judged_by_the_rule_of_its_pod():
    assert debugged("closed", VISIBLE, sliced=True, labels={"debug": "yes"})["allowed"]


def test_what_comes_late_is_read_by_the_rule_of_the_pod():
    """W18: where whole GPUs are denied, one that another webhook adds beside its slice is too."""
    asks = ({names.GPU: "1"}, {"nvidia.com/mig-1g.5gb": "1"})
    containers = [{"name": f"c{index}", "resources": {"limits": one}} for index, one in enumerate(asks)]
    late = raw_pod("/train", containers=containers)
    said = answer(validate, review(late, namespace="elsewhere"), CLUSTER)["status"]["message"]
    assert "spec.containers[0].resources.limits[nvidia.com/gpu]: 1: " in said


# Policies themselves --------------------------------------------------------------------------------------------------


def written(obj, old=None, user="alice"):
    where = {"group": names.API_GROUP, "version": "v1alpha1", "resource": "gpupolicies"}
    operation = "UPDATE" if old else "CREATE"
    body = review(obj, old, operation=operation, namespace=obj["metadata"]["namespace"], user=user, resource=where)
    return answer(validate, body, CLUSTER)


BAD = {"wholeGpu": {"memory": "much"}}, {"limits": {"minFraction": "1/2", "maxFraction": "1/7"}}


def test_a_policy_is_refused_with_every_fault():
    response = written(policy("new", *BAD))
    assert response["status"]["code"] == 422
    assert [line.partition(": ")[0] for line in response["status"]["message"].splitlines()] == [
        "spec.rules[0].wholeGpu.memory",
        "spec.rules[1].limits.minFraction",
    ]


def test_a_policy_that_cannot_even_be_read_is_refused_with_its_path():
    """Nor is that an error of ours, whatever stands in its specification."""
    response = written({**policy("new", {"modes": 1}), "metadata": {"namespace": "new", "name": 7}})
    assert response["status"]["message"] == "metadata.name: 7: must be text, not a number: quote it"


def test_a_policy_that_is_odd_but_legal_is_answered_with_warnings():
    response = written(policy("shared", {"gpuModels": [A100]}, {"gpuModels": ["NVIDIA-B100"]}, name="second"))
    assert response["allowed"]
    assert [text.partition(":")[0] for text in response["warnings"]] == [
        "has no effect",
        "spec.rules[1] is never reached",
        "spec.rules[1].gpuModels[0]",
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"finalizers": []}, id="its metadata alone"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, id="its deletion"),
    ],
)
def test_a_faulty_policy_that_stands_there_can_be_cleared_away(change):
    """W37."""
    old = policy("broken", *BAD)
    assert written({**old, "metadata": {**old["metadata"], **change}}, old)["allowed"]
    assert not written({**old, "spec": {"rules": [BAD[0]]}}, old)["allowed"]


def test_the_reconcilers_own_writes_are_not_judged():
    assert written(policy("new", *BAD), user=RECONCILER)["allowed"]
