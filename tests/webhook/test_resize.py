"""Pods that are resized in place where a quota governs: no gate stands before them any more."""

import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from policies import names
from policies.estimate import Standings
from policies.gpupolicy import Policies
from policies.policy import PolicyView
from tests.builders import raw_pod
from tests.policies.teams import quota
from tests.webhook.reviews import RECONCILER, review
from webhook.review import validate

QUOTAS = (
    quota("a", cpu=4),
    replace(quota("capped", cpu=4), max={"cpu": 6000}),
    quota("broken", cpu=4, faults=("spec.min[x]: x: is no resource",)),
    quota("labelled", cpu=0),
)
# `a` and `capped` own 8 CPUs together, for what is at fault owns nothing; of these each uses 3.
CLUSTER = SimpleNamespace(
    standings=Standings.of(QUOTAS, {"ElasticQuota a/quota": {"cpu": 3000}, "ElasticQuota capped/quota": {"cpu": 3000}}),
    policies=Policies([PolicyView(namespace="labelled", name="policy", gates=False)]),
)
STAYS = {names.NON_PREEMPTIBLE: "true"}
GATED = {"node": None, "gates": [names.GATE]}


def resize(namespace, before, after, *, resource="cpu", user="alice", **fields):
    """Return the answer to a resize of a pod that runs, unless the fields say otherwise."""
    old, new = (
        raw_pod(f"{namespace}/x", **{"requests": {resource: amount}, "node": "n1", "phase": "Running", **fields})
        for amount in (before, after)
    )
    body = review(new, old, operation="UPDATE", namespace=namespace, subResource="resize", user=user)
    return json.loads(validate(body, CLUSTER))["response"]


def cannot(more, why):
    return f"cpu: {more} more: the pod cannot grow in place: {why}"


SUM = "all quotas together use 6 cpu, the pod asks for {}, and the mins of all quotas add up to 8"


@pytest.mark.parametrize(
    ("namespace", "before", "after", "fields", "faults"),
    [
        pytest.param("a", "1", "4", {}, [cannot("3", SUM.format(3))], id="beyond the sum of mins"),
        pytest.param("a", "1", "3001m", {}, [cannot("2001m", SUM.format("2001m"))], id="by a thousandth"),
        pytest.param("capped", "1", "5", {}, [cannot("4", "capped/quota uses 3 cpu, the pod asks for 4, and the max of capped/quota is 6"), cannot("4", SUM.format(4))], id="beyond max too"),
        pytest.param("a", "1", "3", {"annotations": STAYS}, [cannot("2", "a/quota uses 3 cpu, the pod asks for 2, and the min of a/quota is 4: a pod that may not be evicted may not borrow")], id="beyond min, never to be evicted"),
        pytest.param("broken", "1", "2", {}, [cannot("1", "its quota is not in force, ElasticQuota broken/quota: spec.min[x]: x: is no resource")], id="quota at fault"),
        pytest.param("a", "1", "9", GATED, ["cpu: 9: can never run: the mins of all quotas add up to 8"], id="at the gate, more than there is"),
    ],
)  # fmt: skip
def test_growth_beyond_quota_is_denied_with_the_arithmetic(namespace, before, after, fields, faults):
    """W35: a way past the gate, for those who found one."""
    response = resize(namespace, before, after, **fields)
    assert (response["allowed"], response["status"]["code"]) == (False, 403)
    assert response["status"]["message"].splitlines() == faults
    assert resize(namespace, before, after, user=RECONCILER, **fields)["allowed"]


@pytest.mark.parametrize(
    ("namespace", "before", "after", "fields"),
    [
        pytest.param("a", "1", "2", {}, id="within min"),
        pytest.param("a", "4", "1", {}, id="shrinks"),
        pytest.param("broken", "4", "1", {}, id="shrinks under a quota at fault"),
        pytest.param("a", "1", "1000m", {}, id="written otherwise"),
        pytest.param("a", "1Gi", "99Gi", {"resource": "memory"}, id="what the quota does not name"),
        pytest.param("free", "1", "99", {}, id="no quota"),
        pytest.param("a", "1", "3", GATED, id="at the gate"),
        pytest.param("a", "9", "8", GATED, id="at the gate, shrinks"),
        pytest.param("a", "1", "99", {"phase": "Succeeded"}, id="has ended"),
    ],
)
def test_everything_else_is_allowed(namespace, before, after, fields):
    assert resize(namespace, before, after, **fields)["allowed"]


def test_growth_that_borrows_is_allowed_and_said():
    assert resize("a", "1", "3") == {
        "uid": "7b2e",
        "allowed": True,
        "warnings": ["borrows 1 of capped's unused cpu; may be evicted"],
    }


def test_a_container_that_grows_while_another_shrinks_counts_by_the_sum():
    def body(*cpus):
        containers = [{"name": f"c{i}", "resources": {"requests": {"cpu": cpu}}} for i, cpu in enumerate(cpus)]
        return raw_pod("a/x", containers=containers, node="n1")

    update = review(body("4", "1"), body("1", "4"), operation="UPDATE", namespace="a", subResource="resize")
    assert json.loads(validate(update, CLUSTER))["response"]["allowed"]


@pytest.mark.parametrize(
    "fields", [pytest.param({}, id="it runs"), pytest.param(GATED, id="at the gate for its slice")]
)
def test_where_the_policy_only_labels_a_pod_may_grow_to_what_a_new_one_may_have(fields):
    """Design 3.2, quota.admission: what it has above min may be taken back, and that is all."""
    response = resize("labelled", "1", "9", **fields)
    more = "9" if fields else "8"
    assert (response["allowed"], response["warnings"]) == (
        True,
        [f"is {more} cpu above the min of labelled/quota; may be evicted"],
    )
