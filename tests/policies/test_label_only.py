"""`quota.admission: label`: pods are counted and labelled, but neither wait for their quota nor are refused by it."""

import pytest
from msgspec.structs import replace

from policies import names
from policies.policy import PolicyView
from policies.settle import settle
from tests.policies.cluster import bound, cluster, gated, node
from tests.policies.teams import machine, pod, quota, teams, victims

LABEL = PolicyView(namespace="a", name="only-label", gates=False)
GATE = PolicyView(namespace="a", name="gate")


def decided(view, policy=LABEL):
    return settle(replace(view, policies=(policy,)))


def cut_board(*pods, quotas):
    """Return a cluster of one board, cut in two, with pods that want 3g.20gb."""
    halves = {"0": [{"profile": "3g.20gb", "start": start, "used": False} for start in (0, 4)]}
    return replace(cluster([node(placements=halves)], pods), quotas=tuple(quotas))


@pytest.mark.parametrize(
    ("policy", "released"),
    [pytest.param(LABEL, ["a/one", "a/two"], id="label"), pytest.param(GATE, ["a/one"], id="gate")],
)
def test_a_pod_waits_for_its_slice_but_not_for_its_quota(policy, released):
    """Half a GPU of quota, of which one slice is all."""
    view = cut_board(
        gated("a/one", "3g.20gb"), gated("a/two", "3g.20gb"), quotas=[replace(quota("a", 1, 1), max={names.GPU: 500})]
    )
    assert [release.pod for release in decided(view, policy).ungate] == released


def test_what_is_above_min_is_labelled_and_counted_all_the_same():
    view = cut_board(
        gated("a/one", "3g.20gb"), gated("a/two", "3g.20gb"), quotas=[replace(quota("a"), min={names.GPU: 500})]
    )
    decision = decided(view)
    assert {release.pod: release.capacity for release in decision.ungate} == {
        "a/one": "in-quota",
        "a/two": "over-quota",
    }
    assert [status.used for status in decision.quotas] == [{names.GPU: 1000}]


def test_a_quota_with_a_fault_holds_nobody_who_is_only_labelled():
    view = cut_board(gated("a/one", "3g.20gb"), quotas=[replace(quota("a", 1), faults=("spec.min: nonsense",))])
    assert [release.pod for release in decided(view).ungate] == ["a/one"]
    assert [waiting.reason for waiting in decided(view, GATE).waiting] == ["QuotaInvalid"]


def test_one_that_waits_for_whole_gpus_alone_is_let_go_when_the_policy_stops_holding():
    """Gated while the policy said gate: the scheduler finds its node, as if it had never been held."""
    view = teams([machine("n1", 1)], [quota("a", 1, 1)], [pod("a/one", node="n1"), pod("a/two")])
    assert decided(view, GATE).ungate == ()
    assert [release.pod for release in decided(view).ungate] == ["a/two"]


def test_what_a_labelled_pod_has_borrowed_is_taken_back_like_any_other():
    pods = [pod("a/one", node="n1"), pod("a/two", node="n1", created=2000), pod("b/claims")]
    view = teams([machine("n1", 2)], [quota("a", 1), quota("b", 1)], pods)
    assert victims(decided(view)) == ["a/two"]


def test_a_labelled_pod_takes_back_the_room_that_others_borrow_on_its_slices():
    halves = {"0": [{"profile": "3g.20gb", "start": start, "used": True} for start in (0, 4)]}
    pods = [bound("b/one", "n1", "3g.20gb"), bound("b/two", "n1", "3g.20gb", created="2026-01-01T00:00:00Z")]
    view = cluster([node(placements=halves)], [*pods, gated("a/claims", "3g.20gb")])
    halfs = [replace(quota(space), min={names.GPU: 500}) for space in ("a", "b")]
    assert victims(decided(replace(view, quotas=tuple(halfs)))) == ["b/two"]


def test_while_a_quota_takes_back_its_labelled_pods_may_still_borrow():
    """A gated one would wait until the claimant has what comes free for it; nothing holds a labelled one."""
    used = {"0": [{"profile": "3g.20gb", "start": start, "used": True} for start in (0, 4)]}
    spare = {"0": [{"profile": "3g.20gb", "start": 0, "used": False}]}
    here, there = ({"nodeSelector": {"kubernetes.io/hostname": name}} for name in ("n1", "n2"))
    pods = [bound("b/one", "n1", "3g.20gb"), bound("b/two", "n1", "3g.20gb", created="2026-01-01T00:00:00Z")]
    pods += [gated("a/claims", "3g.20gb", **here), gated("a/more", "3g.20gb", created="2026-01-02T00:00:00Z", **there)]
    view = cluster([node(placements=used), node("n2", placements=spare)], pods)
    view = replace(view, quotas=tuple(replace(quota(space), min={names.GPU: 500}) for space in ("a", "b")))
    decision = decided(view)
    assert victims(decision) == ["b/two"]
    assert [release.pod for release in decision.ungate] == ["a/more"]
    assert [release.pod for release in decided(view, GATE).ungate] == []


def test_one_that_alone_is_more_than_its_quota_holds_its_place_like_any_other():
    """It can run, unlike a gated one; so after five minutes nobody younger takes a part of its board."""
    half = {"0": [{"profile": "3g.20gb", "start": 4, "used": True}, {"profile": "3g.20gb", "start": 0, "used": False}]}
    pods = [
        bound("x/one", "n1", "3g.20gb"),
        gated("a/big", "7g.40gb"),
        gated("x/small", "3g.20gb", created="1970-01-01T00:10:00Z"),
    ]
    view = replace(
        cluster([node(placements=half)], pods, now=700.0), quotas=(replace(quota("a"), max={names.GPU: 500}),)
    )
    assert decided(view).ungate == ()
    assert [release.pod for release in decided(view, GATE).ungate] == ["x/small"]


def test_a_policy_of_another_namespace_holds_and_frees_nobody_here():
    other = replace(LABEL, namespace="b")
    view = cut_board(gated("a/one", "3g.20gb"), quotas=[replace(quota("a"), max={names.GPU: 100})])
    assert decided(view, other).ungate == ()


def test_the_default_policy_frees_the_namespaces_without_one():
    default = PolicyView(namespace="apportion-system", name="default", gates=False)
    view = cut_board(gated("a/one", "3g.20gb"), quotas=[replace(quota("a"), max={names.GPU: 100})])
    assert [release.pod for release in decided(view, default).ungate] == ["a/one"]
    both = replace(view, policies=(default, GATE))
    assert settle(both).ungate == ()
