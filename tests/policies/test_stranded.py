"""Pods that have been let through the gate, and for which the scheduler finds no node (design section 5, docs/adr/0009)."""

import pytest
from msgspec.structs import replace

from policies import names
from policies.annotations import Placement
from policies.settle import settle
from policies.view import UNSCHEDULABLE_S
from tests.builders import A30
from tests.policies.cluster import bound, carry_out, cluster, free, gated, node, node_of, released, used, with_node
from tests.policies.teams import machine, pod, quota, teams

GIVEN_UP = 1000.0


def stranded(view, *keys, **fields):
    """Return the view in which the scheduler has found no node for these pods for half a minute, since they were released."""
    fields = {"unschedulable_since": int(GIVEN_UP) - UNSCHEDULABLE_S, "released_at": 900} | fields
    pods = tuple(replace(one, **(fields if one.key in keys else {})) for one in view.pods)
    return replace(view, pods=pods, now=GIVEN_UP)


def released_keys(decision):
    return [release.pod for release in decision.ungate]


def messages(decision):
    return {waiting.pod: waiting.message for waiting in decision.waiting}


def full(*, owner):
    """Return a node whose only 4g is held by another pod, and a pod that had been let through for it."""
    board = [used("4g.24gb", 0)]
    pods = [bound("x/first", "n1", "4g.24gb"), released("ml/late", "4g.24gb", owner=owner)]
    return cluster([node("n1", A30, placements={"0": board})], pods)


def test_a_pod_whose_place_is_gone_goes_back_to_the_gate_if_a_controller_makes_it_again():
    (evict,) = settle(stranded(full(owner=True), "ml/late")).evict
    assert (evict.pod, evict.claimant, evict.reason) == ("ml/late", "", "PlaceLost")
    assert evict.message == (
        "the scheduler has found no node for it for 30 s, and what it was released for is gone; "
        "its controller is to make it again, to wait at the gate"
    )


@pytest.mark.parametrize(
    ("owner", "fields"),
    [
        pytest.param(False, {}, id="alone: nobody would make it again"),
        pytest.param(True, {"released_at": 0}, id="never at the gate: it would not come back to it"),
        pytest.param(True, {"refused_until": GIVEN_UP + 1}, id="refused until later"),
        pytest.param(True, {"unschedulable_since": int(GIVEN_UP) - UNSCHEDULABLE_S + 1}, id="not yet 30 s"),
    ],
)
def test_others_stay_where_they_are(owner, fields):
    assert settle(stranded(full(owner=owner), "ml/late", **fields)).evict == ()


def test_nobody_goes_back_for_whom_another_board_can_be_cut():
    """What narrowed it does not keep it from n2, so it need not be made again."""
    view = full(owner=True)
    view = replace(view, nodes=(*view.nodes, *cluster([node("n2", A30)], []).nodes))
    decision = settle(stranded(view, "ml/late"))
    assert decision.evict == ()
    assert [(layout.node, layout.target) for layout in decision.layouts] == [("n2", {0: (Placement("4g.24gb", 0),)})]


def with_free_slice(*pods):
    return cluster([node("n1", A30, placements={"0": [free("4g.24gb", 0)]})], pods)


def test_nobody_is_planned_elsewhere_whose_node_is_cut_this_very_second():
    """The scheduler may not have looked at it yet."""
    order = {names.SPEC_PLACEMENTS: '{"0": [{"profile": "4g.24gb", "start": 0}]}', names.SPEC_PLAN: "1000000"}
    done = order | {names.STATUS_PLAN: "1000000"}
    nodes = [
        node("n1", A30, placements={"0": [free("4g.24gb", 0)]}, annotations=done),
        node("n2", A30, placements={"0": [free("1g.6gb", 0)]}),
    ]
    assert settle(stranded(cluster(nodes, [released("ml/late", "4g.24gb")]), "ml/late")).layouts == ()


@pytest.mark.parametrize("owner", [True, False], ids=["of a controller", "alone"])
def test_who_has_a_place_that_the_scheduler_does_not_use_is_not_made_again_but_told(owner):
    """A volume in another zone, an affinity between pods: coming back would change nothing, and go on for ever."""
    decision = settle(stranded(with_free_slice(released("ml/odd", "4g.24gb", owner=owner)), "ml/odd"))
    assert (decision.evict, decision.layouts) == ((), ())
    assert [(item.reason, item.message) for item in decision.waiting] == [
        (
            "SchedulerFindsNoNode",
            "needs 4g.24gb; node n1 has that free, but the scheduler has found no node for 30 s: "
            "its own condition, PodScheduled, says what else the pod lacks",
        )
    ]


def test_what_the_scheduler_does_not_use_for_a_pod_serves_others():
    """Q18: it loses its promise, however high its priority; when the others have its place, it goes back to the gate."""
    odd = released("ml/odd", "4g.24gb", owner=True, priority=100)
    view = stranded(with_free_slice(odd, gated("ml/next", "4g.24gb")), "ml/odd")
    decision = settle(view)
    assert (released_keys(decision), decision.evict) == (["ml/next"], ())
    taken = cluster([node("n1", A30, placements={"0": [used("4g.24gb", 0)]})], [bound("ml/next", "n1", "4g.24gb"), odd])
    assert [evict.pod for evict in settle(stranded(taken, "ml/odd")).evict] == ["ml/odd"]


def test_it_is_planned_again_without_the_node_that_it_could_not_use():
    view = with_free_slice(released("ml/odd", "4g.24gb"))
    view = replace(view, nodes=(*view.nodes, *cluster([node("n2", A30), node("n3", A30)], []).nodes))
    view = stranded(view, "ml/odd")
    first = settle(view)
    assert [layout.node for layout in first.layouts] == ["n2"]
    assert messages(first) == {"ml/odd": "needs 4g.24gb; node n2 is being cut for it"}
    # Half a minute is what the scheduler has to use it; then the next one is tried.
    done = carry_out(view, first, plan="1000000")
    for now, cut in ((1029.9, []), (1030.0, ["n3"])):
        assert [layout.node for layout in settle(replace(done, now=now)).layouts] == cut
    # When all have been tried, nothing more is cut.
    everywhere = carry_out(replace(done, now=1030.0), settle(replace(done, now=1030.0)), plan="1030000")
    rest = settle(replace(everywhere, now=1100.0))
    assert (rest.layouts, rest.evict, [item.reason for item in rest.waiting]) == ((), (), ["SchedulerFindsNoNode"])


def test_a_given_up_pod_counts_in_its_quota_wherever_it_is_planned():
    view = with_free_slice(released("ml/odd", "4g.24gb"))
    view = replace(view, nodes=(*view.nodes, *cluster([node("n2", A30)], []).nodes), quotas=(quota("ml", 2),))
    decision = settle(stranded(view, "ml/odd"))
    assert decision.layouts
    assert [status.used for status in decision.quotas] == [{names.GPU: 1000}]
    assert [(label.pod, label.capacity) for label in decision.relabel] == [("ml/odd", "in-quota")]


def test_a_pod_that_comes_back_waits_until_there_is_a_place_and_is_not_sent_round():
    """Law: sent back only where nothing serves it, so at the gate it stays; and what it used is others' meanwhile."""
    lost = pod("a/lost", 2, gated=False, controlled=True)
    view = teams([machine("n1", 2)], [quota("a", 2), quota("b", 2)], [pod("b/b", node="n1"), lost])
    (evict,) = settle(stranded(view, "a/lost")).evict
    assert (evict.pod, evict.quota) == ("a/lost", "a/quota")
    again = pod("a/lost", 2, controlled=True, created=int(GIVEN_UP))
    back = settle(replace(view, pods=(view.pods[0], again), now=GIVEN_UP))
    assert (back.ungate, back.evict) == ((), ())


def test_an_old_pod_without_a_controller_holds_the_place_that_it_waits_for():
    """It was released for n1, which has been taken; nobody behind it takes the one GPU that is free there."""
    pods = [pod("x/x", node="n1"), pod("a/alone", 2, gated=False, created=100), pod("a/small", created=990)]
    view = stranded(teams([machine("n1", 2)], [quota("a", 4)], pods), "a/alone")
    assert settle(view).ungate == ()
    assert released_keys(settle(without_age(view))) == ["a/small"]


def without_age(view):
    return replace(
        view, pods=tuple(replace(one, created=990 if one.name == "alone" else one.created) for one in view.pods)
    )


def test_a_slice_that_has_just_been_cut_is_the_pods_until_the_scheduler_has_had_its_time():
    """Else the next pod would have it before the scheduler looks again."""
    view = with_free_slice(released("ml/odd", "4g.24gb"), gated("ml/other", "4g.24gb"))
    young = with_node(view, replace(node_of(view, "n1"), spec_plan="990000", status_plan="990000"))
    assert released_keys(settle(stranded(young, "ml/odd"))) == []
    assert released_keys(settle(stranded(view, "ml/odd"))) == ["ml/other"]
