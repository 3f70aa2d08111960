"""Updates of pods: what was admitted stays, other wishes are refused, all else is left alone (design 3.5)."""

import json

import jsonpatch
import msgspec
import pytest

from policies import names
from policies.model import Pod
from policies.readmission import readmit
from tests.builders import container, raw_pod

MIG = {"nvidia.com/mig-3g.20gb": "1"}
MPS = {"nvidia.com/gpu-8gb": "1"}
BOTH_MIG = {"limits": MIG, "requests": MIG}
PRODUCTS = {"key": names.PRODUCT_LABEL, "operator": "In", "values": ["NVIDIA-A100-SXM4-40GB"]}


def record(asked, given, mode="mig", name="main"):
    entry = {"asked": asked, "given": given, "mode": mode}
    return {names.RECORD: json.dumps({"v": 1, "containers": {name: entry}})}


def kept_to(*requirements):
    term = {"matchExpressions": list(requirements)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


SHARE = {names.GPU: "500m"}
BY_SHARE = raw_pod(**BOTH_MIG, annotations=record(SHARE, MIG))
BY_NOTE = raw_pod(**BOTH_MIG, annotations={names.FRACTION: "0.5", **record({names.FRACTION: "0.5"}, MIG)})
BY_NAME = raw_pod(**BOTH_MIG, annotations=record(MIG, MIG))
GATED = {"schedulingGates": [{"name": names.GATE}]}
WAITING = raw_pod(
    limits={**MPS, "cpu": "1"},
    requests={**MPS, "cpu": "1"},
    annotations=record(SHARE, MPS, "mps"),
    labels={names.CAPACITY_LABEL: "over-quota", "a": "b"},
    gates=("example.com/hold", names.GATE),
    hostIPC=True,
    affinity=kept_to({"key": "zone", "operator": "Exists"}, PRODUCTS),
)
WAITING["spec"]["containers"][0] |= {
    "securityContext": {"runAsUser": 1000},
    "env": [{"name": names.THREAD_PERCENTAGE, "value": "50"}],
}


def answer(raw, old):
    return readmit(msgspec.convert(raw, Pod), msgspec.convert(old, Pod))


def update(raw, old):
    """Return the pod after the patch, which a second look leaves as it is."""
    found = answer(raw, old)
    assert found.faults == ()
    after = jsonpatch.apply_patch(json.loads(json.dumps(raw)), msgspec.json.decode(msgspec.json.encode(found.patch)))
    assert answer(after, old).patch == ()
    return after


def merged(old, **amounts):
    """Return a pod as the merge makes it: what the manifest says of resources, beside what is there."""
    pod = json.loads(json.dumps(old))
    for kind in ("limits", "requests"):
        amount = pod["spec"]["containers"][0]["resources"][kind]
        for name, value in {**SHARE, **amounts}.items():
            amount[name] = value
    return pod


def test_a_manifest_that_is_applied_again_changes_nothing():
    """W13, W16: the merge puts the share back beside the slice."""
    assert update(merged(BY_SHARE), BY_SHARE) == BY_SHARE


def test_a_whole_gpu_of_which_the_policy_has_made_a_slice_is_as_good_as_a_share():
    old = raw_pod(**BOTH_MIG, annotations=record({names.GPU: "1"}, MIG))
    assert update(merged(old, **{names.GPU: "1"}), old) == old


def test_a_manifest_that_is_applied_again_may_change_the_image():
    again = merged(BY_SHARE)
    again["spec"]["containers"][0]["image"] = "registry.example/image:2"
    want = json.loads(json.dumps(BY_SHARE))
    want["spec"]["containers"][0]["image"] = "registry.example/image:2"
    assert update(again, BY_SHARE) == want


def test_a_manifest_that_replaces_the_pod_gets_all_back_that_was_added_to_it():
    """`replace` comes without annotations: mind the absent map. Whoever waits at the gate goes on waiting."""
    manifest = raw_pod(
        limits={**SHARE, "cpu": "1"},
        labels={"a": "b"},
        gates=("example.com/hold",),
        affinity=kept_to({"key": "zone", "operator": "Exists"}),
    )
    after = update(manifest, WAITING)
    after["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"  # which the API server fills in
    assert after == WAITING


@pytest.mark.parametrize(
    ("manifest", "old"),
    [
        pytest.param(raw_pod(limits=SHARE, requests=SHARE), BY_SHARE, id="share"),
        pytest.param(raw_pod(annotations={names.FRACTION: "0.5"}), BY_NOTE, id="annotation"),
        pytest.param(raw_pod(**BOTH_MIG), {**BY_NAME, "spec": {**BY_NAME["spec"], **GATED}}, id="slice by its name"),
    ],
)
def test_a_replaced_pod_is_the_one_that_was_admitted(manifest, old):
    after = update(manifest, old)
    assert after == old


def test_what_another_webhook_had_done_to_the_scheduler_of_nos_is_done_again():
    """Applying a manifest of nos again: its scheduler comes back, and the field never changes."""
    old = raw_pod(schedulerName="default-scheduler")
    assert update(raw_pod(schedulerName="nos-scheduler"), old) == old
    older = raw_pod(schedulerName="nos-scheduler", image="1")
    again = raw_pod(schedulerName="nos-scheduler", image="2")
    assert update(again, older) == again


HOLDS = "what a pod holds never changes: delete the pod and create it anew"


@pytest.mark.parametrize(
    ("raw", "old", "fault"),
    [
        pytest.param(
            merged(BY_SHARE, **{names.GPU: "250m"}),
            BY_SHARE,
            "nvidia.com/gpu 250m: main was admitted with nvidia.com/gpu 500m and holds nvidia.com/mig-3g.20gb 1",
            id="another share",
        ),
        pytest.param(
            merged(BY_SHARE, **{names.GPU: "1"}),
            BY_SHARE,
            "nvidia.com/gpu 1: main was admitted with nvidia.com/gpu 500m and holds nvidia.com/mig-3g.20gb 1",
            id="a whole GPU",
        ),
        pytest.param(
            raw_pod(),
            BY_SHARE,
            "no GPU: main was admitted with nvidia.com/gpu 500m and holds nvidia.com/mig-3g.20gb 1",
            id="replaced by one without a GPU",
        ),
        pytest.param(
            raw_pod(limits={"nvidia.com/mig-3g.20gb": "2"}, annotations=record(MIG, MIG)),
            BY_NAME,
            "nvidia.com/mig-3g.20gb 2: main was admitted with nvidia.com/mig-3g.20gb 1 and holds nvidia.com/mig-3g.20gb 1",
            id="more slices",
        ),
        pytest.param(
            merged(BY_NOTE),
            BY_NOTE,
            "nvidia.com/gpu 500m: main was admitted with nos.nebuly.com/gpu-fraction 0.5 and holds nvidia.com/mig-3g.20gb 1",
            id="a resource beside the annotation",
        ),
    ],
)
def test_another_wish_is_refused_in_the_words_of_who_made_it(raw, old, fault):
    """The API server would say that pod updates may not change fields, and show slices that nobody has written."""
    found = answer(raw, old)
    assert found.patch == ()
    assert found.faults == (f"spec.containers[0].resources: {fault}: {HOLDS}",)


@pytest.mark.parametrize(
    ("notes", "warned"),
    [
        pytest.param({names.FRACTION: "0.25"}, (f"metadata.annotations[{names.FRACTION}]: 0.25 has no effect any more, for {HOLDS}",), id="share"),
        pytest.param({f"{names.MEMORY}.main": "1Gi"}, (f"metadata.annotations[{names.MEMORY}.main]: 1Gi has no effect any more, for {HOLDS}",), id="memory"),
        pytest.param({names.NON_PREEMPTIBLE: "true"}, (), id="what is no wish"),
        pytest.param({"a": "b"}, (), id="another annotation"),
    ],
)  # fmt: skip
def test_an_annotation_that_comes_too_late_is_warned_about(notes, warned):
    raw = json.loads(json.dumps(BY_NOTE))
    raw["metadata"]["annotations"] |= notes
    found = answer(raw, BY_NOTE)
    assert (found.faults, found.patch, found.warnings) == ((), (), warned)


@pytest.mark.parametrize(
    ("raw", "old"),
    [
        pytest.param(raw_pod(limits=SHARE, labels={"a": "b"}), raw_pod(limits=SHARE), id="made before us"),
        pytest.param(raw_pod(labels={"a": "b"}), raw_pod(annotations={names.RECORD: "{}"}), id="metadata only"),
        pytest.param(raw_pod(image="x", limits={names.GPU: "1"}), raw_pod(limits={names.GPU: "2"}), id="no record"),
        pytest.param(
            raw_pod(containers=[container("a")]),
            raw_pod(containers=[container("a"), container("b", limits=MIG)], annotations=record(SHARE, MIG, name="b")),
            id="a container that is gone is for the API server to complain about",
        ),
    ],
)
def test_other_updates_are_left_alone(raw, old):
    """W13."""
    found = answer(raw, old)
    assert (found.faults, found.warnings) == ((), ())
    assert [operation for operation in found.patch if operation.path != "/metadata/annotations"] == []


def test_an_update_of_metadata_alone_is_left_alone():
    """W13: taking the record away is for the validating webhook to refuse."""
    raw = {**BY_NAME, "metadata": raw_pod()["metadata"]}
    assert update(raw, BY_NAME) == raw


def test_a_pod_on_its_way_out_is_left_alone():
    """W13: its last update drops a finalizer."""
    old = json.loads(json.dumps(BY_SHARE))
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    raw = json.loads(json.dumps(old))
    raw["spec"]["containers"][0]["resources"] = {}
    assert update(raw, old) == raw
