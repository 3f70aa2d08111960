"""Laws of admission, over the odd pods of `odd_pods`."""

import copy
import json
from fractions import Fraction

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import names
from policies.admission import admit
from policies.inventory import Inventory
from policies.model import Pod
from policies.quantity import parse
from policies.readmission import readmit
from policies.settings import DEFAULTS
from policies.view import view_node
from tests.builders import A30, A100_80, H100, T4, make_node
from tests.policies.odd_pods import crowded, heavy, pods
from tests.policies.owned import not_ours, unanswered

NODES = (
    make_node("a"), make_node("b", A100_80), make_node("c", A30), make_node("d", mode="mps"), make_node("e", T4, mode="timeslicing"),
    make_node("f", H100, cordoned=True), make_node("g", mode=None, resources={"nvidia.com/mig-9g.9gb": "1"}),
    make_node("h", count=64),  # enough for a pod of 200 containers
)  # fmt: skip
INVENTORY = Inventory.of(view_node(node) for node in NODES)


def review(raw):
    return admit(msgspec.convert(raw, Pod), namespace="team-a", labels={}, inventory=INVENTORY, settings=DEFAULTS)


def apply(raw, found):
    separate = json.loads(json.dumps(raw))  # the strategies reuse objects, and a patch of one would change them all
    return jsonpatch.apply_patch(separate, msgspec.to_builtins(found.patch))


def all_containers(pod):
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def is_gpu(resource):
    return resource.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))


@given(pods)
def test_a_patch_applies_and_changes_nothing_that_is_not_ours(raw):
    """W10, W11, W15: whatever is absent, null, or unknown to us."""
    before = copy.deepcopy(raw)
    found = review(raw)
    assert raw == before
    assert not (found.faults and found.patch)
    assert not_ours(raw, apply(raw, found)) == []


@pytest.mark.parametrize(
    "pod", [pytest.param(crowded(), id="200 containers"), pytest.param(heavy(), id="250 KiB of annotations")]
)
def test_the_largest_pods_are_reviewed_like_any_other(pod):
    """W10."""
    found = review(pod)
    after = apply(pod, found)
    assert found.faults == ()
    assert found.patch
    assert not_ours(pod, after) == []
    assert review(after).patch == ()


@given(pods)
def test_nothing_that_looks_like_a_wish_is_left_unanswered(raw):
    """W01, W03, W34."""
    found = review(raw)
    if not found.faults:
        assert list(unanswered(apply(raw, found), ("nvidia.com/mig-9g.9gb", "nvidia.com/gpu.shared"))) == []


@given(pods)
def test_a_second_review_changes_nothing(raw):
    """W16."""
    first = review(raw)
    if not first.faults:
        second = review(apply(raw, first))
        assert (second.faults, second.patch) == ((), ())


@given(pods)
def test_what_is_admitted_is_what_the_record_says(raw):
    """W01, W03, W08, W34, W35: no fraction is left, nothing that was asked is lost, nothing else is given."""
    found = review(raw)
    if found.faults:
        return
    pod = apply(raw, found)
    record = json.loads((pod["metadata"].get("annotations") or {}).get(names.RECORD, '{"containers": {}}'))[
        "containers"
    ]
    # gpu.shared is ours only where the pod may use a node that shares by time.
    foreign = {"nvidia.com/mig-9g.9gb", "nvidia.com/gpu.shared"}
    for each in all_containers(pod):
        limits, requests = (
            {k: v for k, v in ((each.get("resources") or {}).get(kind) or {}).items() if is_gpu(k) and parse(v)}
            for kind in ("limits", "requests")
        )
        if each["name"] in record:
            assert limits == requests == record[each["name"]]["given"]
        else:
            assert all(
                name in foreign or (name == "nvidia.com/gpu" and parse(amount).denominator == 1)
                for name, amount in (limits | requests).items()
            )
    asked = {
        key: value
        for key, value in (raw["metadata"].get("annotations") or {}).items()
        if key.startswith((names.FRACTION, names.MEMORY, names.COUNT))
    }
    recorded = {
        key: value for entry in record.values() for key, value in entry["asked"].items() if key.startswith(names.PREFIX)
    }
    assert recorded == asked
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]
    if any(entry["mode"] != "timeslicing" for entry in record.values()):
        assert gates.count(names.GATE) == 1
        assert not pod["spec"].get("nodeName")
    if any(entry["mode"] == "mps" for entry in record.values()):
        assert pod["spec"]["hostIPC"] is True


def asked_by_resource(pod, name):
    """Return what a container had asked for by resources, as the merge of its manifest brings it back."""
    record = json.loads((pod["metadata"].get("annotations") or {}).get(names.RECORD, '{"containers": {}}'))
    asked = record["containers"].get(name, {"asked": {}})["asked"]
    return {key: value for key, value in asked.items() if not key.startswith(names.PREFIX)}


@given(pods, st.data())
def test_an_update_never_changes_what_was_admitted(raw, data):
    """W13, design 3.5: whatever the user does to the GPU resources of an admitted pod."""
    found = review(raw)
    if found.faults:
        return
    old = apply(raw, found)
    new = copy.deepcopy(old)
    changes = set()
    for each in all_containers(new):
        changes.add(change := data.draw(st.sampled_from(["keep", "again", "drop", "add"])))
        if change == "again" and each.get("resources"):
            each["resources"]["limits"] = {
                **(each["resources"].get("limits") or {}),
                **asked_by_resource(old, each["name"]),
            }
        elif change == "drop":
            each.pop("resources", None)
        elif change == "add" and each.get("resources"):
            each["resources"]["limits"] = {**(each["resources"].get("limits") or {}), "nvidia.com/gpu": "500m"}
    answer = readmit(msgspec.convert(new, Pod), msgspec.convert(old, Pod))
    if answer.faults:
        assert changes & {"drop", "add"}
        return
    kept = apply(new, answer)
    record = json.loads((old["metadata"].get("annotations") or {}).get(names.RECORD, '{"containers": {}}'))[
        "containers"
    ]
    for now, before in zip(all_containers(kept), all_containers(old), strict=True):
        if now["name"] in record:
            for kind in ("limits", "requests"):
                assert {k: v for k, v in now["resources"][kind].items() if is_gpu(k)} == {
                    k: v for k, v in before["resources"][kind].items() if is_gpu(k)
                }


@given(st.fractions(Fraction(1, 1000), 1, max_denominator=10**6))
def test_a_slice_is_never_less_than_the_share_and_never_wasteful(fraction):
    """By ratio, so without rounding: the profile reaches the share, and no smaller one does."""
    text = f"{fraction.numerator}/{fraction.denominator}"
    raw = {
        "metadata": {"annotations": {names.FRACTION: text}},
        "spec": {"containers": [{"name": "c0"}], "nodeSelector": {"kubernetes.io/hostname": "a"}},
    }
    pod = apply(raw, review(raw))
    (resource,) = pod["spec"]["containers"][0]["resources"]["limits"]
    reach = {
        "1g.5gb": Fraction(1, 7),
        "1g.10gb": Fraction(1, 4),
        "2g.10gb": Fraction(2, 7),
        "3g.20gb": Fraction(1, 2),
        "4g.20gb": Fraction(4, 7),
        "7g.40gb": Fraction(1),
    }
    assert resource.removeprefix("nvidia.com/mig-") == next(name for name, share in reach.items() if share >= fraction)
