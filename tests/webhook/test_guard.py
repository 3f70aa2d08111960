"""What is ours on pods and namespaces: who may change it, and what is denied of a debugger or a late wish."""

import json

import pytest

from policies import names
from tests.builders import raw_pod
from tests.webhook.reviews import RECONCILER, SHARE, admitted, answer, review, written
from webhook.review import mutate, validate


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
