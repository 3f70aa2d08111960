"""What admission says of pods that a quota governs: label, gate, warning, denial."""

import msgspec
import pytest

from policies import names
from policies.admission import admit
from policies.estimate import UNGOVERNED, Standings
from policies.inventory import Inventory
from policies.settings import DEFAULTS
from policies.view import view_node
from tests.builders import make_node, make_pod
from tests.policies.teams import quota

GPU = names.GPU
TEAMS = (quota("a", 2, 6), quota("b", 2), quota("c", 3))


def standings(quotas=TEAMS, **used):
    return Standings.of(quotas, {f"ElasticQuota {space}/quota": {GPU: count * 1000} for space, count in used.items()})


def reviewed(pod, quotas, *, space="a"):
    inventory = Inventory.of(
        [view_node(make_node()), view_node(make_node("whole", mode=None, resources={"nvidia.com/gpu": "8"}))]
    )
    return admit(pod, namespace=space, labels={}, inventory=inventory, settings=DEFAULTS, standings=quotas)


def told(admission):
    """Return the label and whether there is a gate, from the patch."""
    patch = msgspec.to_builtins(admission.patch)
    text = msgspec.json.encode(patch).decode()
    label = next((each for each in (names.IN_QUOTA, names.OVER_QUOTA) if each in text), "")
    return label, names.GATE in text


@pytest.mark.parametrize(
    ("used", "asked", "label", "warnings"),
    [
        pytest.param({}, 2, "in-quota", [], id="within min"),
        pytest.param({"a": 1}, 2, "over-quota", ["borrows 1 of c's unused nvidia.com/gpu; may be evicted"], id="beyond it: of him who has most"),
        pytest.param({"a": 3, "c": 2}, 1, "over-quota", ["borrows 1 of b's unused nvidia.com/gpu; may be evicted"], id="who is above min already borrows all that he asks for"),
        pytest.param({"a": 2, "b": 2, "c": 3}, 1, "over-quota", ["is 1 nvidia.com/gpu above the min of a/quota, and nobody has any to lend: it waits, and may be evicted"], id="nobody lends"),
    ],
)  # fmt: skip
def test_a_governed_pod_gets_its_label_its_gate_and_a_warning_if_it_borrows(used, asked, label, warnings):
    admission = reviewed(make_pod("a/x", limits={GPU: str(asked)}), standings(**used))
    assert (told(admission), list(admission.warnings)) == ((label, True), warnings)


def test_what_can_never_run_is_denied_with_every_reason():
    admission = reviewed(make_pod("a/x", limits={GPU: "8"}), standings())
    assert list(admission.faults) == [
        "nvidia.com/gpu: 8: can never run: the max of a/quota is 6",
        "nvidia.com/gpu: 8: can never run: the mins of all quotas add up to 7",
    ]


def test_a_pod_that_asks_for_nothing_governed_is_labelled_and_not_held():
    """Q06: a quota restricts only those who ask for what it names."""
    assert told(reviewed(make_pod("a/x", requests={"cpu": "64"}), standings())) == ("in-quota", False)


def test_where_no_quota_governs_nothing_is_said():
    assert reviewed(make_pod("z/x", limits={GPU: "8"}), standings(), space="z").patch == ()
    assert reviewed(make_pod("a/x", limits={GPU: "8"}), UNGOVERNED).patch == ()


def test_a_slice_is_charged_as_it_will_be_given():
    """Q33: half an A100 of 40 GB is 3g.20gb, 20 GB."""
    quotas = Standings.of(
        [
            msgspec.structs.replace(quota("a"), min={names.GPU_MEMORY_QUOTA: 19_000}),
            msgspec.structs.replace(quota("b"), min={names.GPU_MEMORY_QUOTA: 19_000}),
        ],
        {},
    )
    admission = reviewed(make_pod("a/x", limits={GPU: "500m"}), quotas)
    assert "borrows 1 of b's unused nos.nebuly.com/gpu-memory; may be evicted" in admission.warnings


def test_a_pod_that_may_not_be_evicted_is_told_that_it_waits_for_its_own():
    pod = make_pod("a/x", limits={GPU: "2"}, annotations={names.NON_PREEMPTIBLE: "true"})
    assert list(reviewed(pod, standings(a=1)).warnings) == [
        "waits until a/quota has 1 nvidia.com/gpu of its own: it may not be evicted, so it may not borrow"
    ]


def test_a_pod_under_a_faulty_quota_is_held_with_its_fault():
    """Q37."""
    broken = (quota("a", 1, faults=("spec.min[cpu]: -1: must not be negative",)),)
    admission = reviewed(make_pod("a/x", limits={GPU: "1"}), standings(broken))
    assert told(admission) == ("", True)
    assert admission.warnings[0].endswith("ElasticQuota a/quota: spec.min[cpu]: -1: must not be negative")


def test_a_governed_pod_may_not_name_its_node():
    admission = reviewed(make_pod("a/x", limits={GPU: "1"}, node="n1"), standings())
    assert admission.faults[0].startswith("spec.nodeName: n1: a pod that names its node passes by the gate")
