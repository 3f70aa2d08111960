"""Bodies of the leader's patches, word for word."""

import msgspec
import pytest

from policies.annotations import Placement
from policies.constraints import Constraints, constraints_of
from policies.decision import Cut, Evict, Layout, Relabel, Release
from policies.view import view_pod
from reconciler.observe import project_node
from reconciler.patches import (
    cut_patch,
    eviction,
    mark_patch,
    order_patch,
    relabel_patch,
    release_patch,
)
from tests.builders import make_pod, raw_node

ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
SPOT = {"key": "spot", "operator": "DoesNotExist"}
ON_N3 = {"key": "metadata.name", "operator": "In", "values": ["n3"]}
AT = 1772442000.9  # 2026-03-02T09:00:00Z and a bit
NOT_N1 = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
NOT_N2 = {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}


def required(*terms):
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}},
    }


def released(avoid=(), **spec):
    pod = view_pod(make_pod("team-a/train", gates=["nos.nebuly.com/admission"], version="7", **spec))
    return plain(release_patch(pod, Release(pod=pod.key, uid=pod.uid, version=pod.version, avoid=avoid), AT))


def plain(body):
    return msgspec.json.decode(msgspec.json.encode(body))


def node(version="12", **fields):
    raw = raw_node("n1", **fields)
    raw["metadata"]["resourceVersion"] = version
    return project_node(msgspec.json.encode(raw))


def test_a_release_takes_the_gate_away_says_when_and_nothing_else():
    assert released() == {
        "metadata": {"resourceVersion": "7", "annotations": {"nos.nebuly.com/released-at": "2026-03-02T09:00:00Z"}},
        "spec": {"schedulingGates": None},
    }


def test_the_label_goes_into_the_patch_that_releases():
    pod = view_pod(make_pod(version="7"))
    release = Release(pod=pod.key, uid=pod.uid, version="7", capacity="over-quota")
    assert plain(release_patch(pod, release, AT))["metadata"]["labels"] == {"nos.nebuly.com/capacity": "over-quota"}


@pytest.mark.parametrize(
    ("capacity", "written"), [("in-quota", "in-quota"), ("", None)], ids=["a label", "none any more"]
)
def test_a_label_alone_is_written_to_the_state_that_was_judged(capacity, written):
    relabel = Relabel(pod="team-a/train", uid="u", version="7", capacity=capacity)
    assert plain(relabel_patch(relabel)) == {
        "metadata": {"resourceVersion": "7", "labels": {"nos.nebuly.com/capacity": written}}
    }


@pytest.mark.parametrize("claimant", ["team-b/claims", None])
def test_a_mark_is_written_and_taken_back_on_this_pod_in_this_state(claimant):
    assert plain(mark_patch(view_pod(make_pod(uid="u", version="7")), claimant)) == {
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {"nos.nebuly.com/evicted-for": claimant}}
    }


def test_an_eviction_names_the_pod_by_its_uid_and_bounds_its_grace():
    evict = Evict(
        pod="team-a/train",
        uid="u",
        version="7",
        claimant="team-b/claims",
        claimant_uid="c",
        quota="team-b/quota",
        grace_s=600,
        reason="Reclaimed",
        message="",
    )
    assert plain(eviction(evict)) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "train", "namespace": "team-a"},
        "deleteOptions": {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 600},
    }


def test_an_eviction_for_nobody_names_the_state_in_which_the_pod_was_bound_nowhere():
    evict = Evict(pod="team-a/late", uid="u", version="7", quota="", grace_s=30, reason="PlaceLost", message="")
    assert plain(eviction(evict))["deleteOptions"]["preconditions"] == {"uid": "u", "resourceVersion": "7"}


@pytest.mark.parametrize(
    ("terms", "avoid", "narrowed"),
    [
        pytest.param(None, ("n1",), [{"matchFields": [NOT_N1]}], id="no affinity: a term of our own"),
        pytest.param(None, ("n1", "n2"), [{"matchFields": [NOT_N1, NOT_N2]}], id="one requirement for each node"),
        pytest.param(
            [{"matchExpressions": [ZONE, SPOT]}],
            ("n1",),
            [{"matchExpressions": [ZONE, SPOT], "matchFields": [NOT_N1]}],
            id="what is required stays",
        ),
        pytest.param(
            [{"matchExpressions": [ZONE]}, {"matchFields": [ON_N3]}],
            ("n1",),
            [{"matchExpressions": [ZONE], "matchFields": [NOT_N1]}, {"matchFields": [ON_N3, NOT_N1]}],
            id="every term gets it, for any one admits a node",
        ),
        pytest.param(
            [{}, {"matchExpressions": [ZONE]}],
            ("n1",),
            [{}, {"matchExpressions": [ZONE], "matchFields": [NOT_N1]}],
            id="a term that matches nothing is not made to match",
        ),
    ],
)
def test_nodes_promised_to_others_are_excluded_in_the_same_patch(terms, avoid, narrowed):
    affinity = {} if terms is None else {"affinity": required(*terms)}
    assert released(avoid, **affinity)["spec"] == {"schedulingGates": None, "affinity": required(*narrowed)}


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param({}, id="no affinity"),
        pytest.param(
            {"affinity": required({"matchExpressions": [ZONE]}, {"matchExpressions": [SPOT]})}, id="two terms"
        ),
    ],
)
def test_a_narrowed_pod_goes_where_it_went_before_but_not_to_the_nodes_to_avoid(affinity):
    patch = released(("n1", "n2"), **affinity)
    before = constraints_of(make_pod(**affinity).spec)
    after = constraints_of(make_pod(affinity=patch["spec"]["affinity"]).spec)
    labels = {"zone": "a", "spot": "yes"}
    assert [name for name in ("n1", "n2", "n3") if before.selects(name, labels)] == ["n1", "n2", "n3"]
    assert [name for name in ("n1", "n2", "n3") if after.selects(name, labels)] == ["n3"]
    assert isinstance(after, Constraints)


def test_an_order_names_plan_target_and_basis_and_takes_stale_counts_away():
    stale = {
        "nos.nebuly.com/spec-gpu-0-7g.40gb": "1",
        "nos.nebuly.com/spec-gpu-0-1g.5gb": "1",
        "nos.nebuly.com/status-gpu-0-7g.40gb-free": "1",
    }
    layout = Layout(
        node="n1",
        target={0: (Placement("1g.5gb", 0), Placement("1g.5gb+me", 6))},
        basis={0: (Placement("7g.40gb", 0),)},
        destroys=True,
    )
    assert plain(order_patch(node(annotations=stale), layout, "1772442000000")) == {
        "metadata": {
            "resourceVersion": "12",
            "annotations": {
                "nos.nebuly.com/spec-placements":
                    '{"0":[{"profile":"1g.5gb","start":0},{"profile":"1g.5gb+me","start":6}]}',
                "nos.nebuly.com/spec-basis": '{"0":[{"profile":"7g.40gb","start":0}]}',
                "nos.nebuly.com/spec-partitioning-plan": "1772442000000",
                "nos.nebuly.com/spec-gpu-0-1g.5gb": "1",
                "nos.nebuly.com/spec-gpu-0-1g.5gb.me": "1",
                "nos.nebuly.com/spec-gpu-0-7g.40gb": None,
            },
        }
    }  # fmt: skip


def test_a_cut_names_the_plan_whose_slices_may_go():
    assert plain(cut_patch(node(), Cut(node="n1", plan="17"))) == {
        "metadata": {"resourceVersion": "12", "annotations": {"nos.nebuly.com/spec-cut": "17"}}
    }
