"""What is decided: who is released, what is cut, who waits and why."""

import random

import pytest
from msgspec.structs import replace

from policies import names
from policies.annotations import BoardInventory, Placement, write_inventory
from policies.catalogue import by_product
from policies.decision import Cut, Decision, Layout, Planned, Release, Waiting
from policies.ledger import Ledger
from policies.settings import DEFAULTS
from policies.settle import settle
from policies.view import UNSCHEDULABLE_S, View, view_pod
from tests.builders import A30, A100, T4, make_node, make_pod
from tests.policies.cluster import (
    agent_step,
    begin,
    bind,
    bound,
    carry_out,
    cluster,
    free,
    gated,
    node,
    node_of,
    places,
    play,
    pod_of,
    released,
    slices,
    used,
    with_node,
    write,
)


def released_keys(decision):
    return [release.pod for release in decision.ungate]


def reasons(decision):
    return {waiting.pod: waiting.reason for waiting in decision.waiting}


def messages(decision):
    return {waiting.pod: waiting.message for waiting in decision.waiting}


# The way of a pod -----------------------------------------------------------------------------------------------------


def test_a_board_is_cut_for_a_pod_which_is_released_once_its_slice_is_announced():
    view = cluster([make_node()], [gated("ml/a", "3g.20gb", uid="u1", version="7")])
    ordered = settle(view)
    assert ordered == Decision(
        layouts=(Layout(node="n1", target={0: (Placement("3g.20gb", 4),)}, basis={0: ()}, destroys=False),),
        waiting=(Waiting(pod="ml/a", reason="SliceBeingCut", message="needs 3g.20gb; node n1 is being cut for it"),),
        planned={"ml/a": Planned(node="n1", slices=((0, Placement("3g.20gb", 4)),))},
    )
    # While the agent is at it, nothing is ordered twice.
    under_way = write(view, ordered, "1")
    assert settle(under_way) == replace(ordered, layouts=())
    done = agent_step(under_way, "n1")
    assert settle(done) == Decision(ungate=(Release(pod="ml/a", uid="u1", version="7"),))
    running = bind(write(done, settle(done), "2"), "ml/a", "n1")
    assert settle(running) == Decision()
    assert slices(running) == ["0:3g.20gb@4 used"]


def test_a_slice_that_the_kubelet_does_not_list_yet_releases_nobody():
    """P16."""
    made = make_node(placements={"0": [free("1g.5gb", 6)]})
    decision = settle(cluster([made], [gated("ml/a", "1g.5gb")]))
    assert (decision.ungate, decision.layouts) == ((), ())
    assert messages(decision) == {"ml/a": "needs 1g.5gb; node n1 has it, but does not announce it yet"}


def test_a_waiting_pod_is_served_when_another_ends():
    """P17: seven 1g run, the eighth waits, one ends."""
    placements = {"0": [used("1g.5gb", start) for start in range(7)]}
    running = [bound(f"ml/{number}", "n1", "1g.5gb") for number in range(7)]
    view = cluster([node(placements=placements)], [*running, gated("ml/eighth", "1g.5gb")])
    assert settle(view).ungate == ()
    ended = replace(view, pods=tuple(replace(p, finished=p.key == "ml/3") for p in view.pods))
    one = node_of(ended, "n1")
    (board,) = one.boards
    freed = (replace(board.slices[0], used=False), *board.slices[1:])
    ended = with_node(ended, replace(one, boards=(replace(board, slices=freed),)))
    assert released_keys(settle(ended)) == ["ml/eighth"]


def test_a_gated_pod_that_needs_no_slice_is_let_go():
    assert released_keys(settle(cluster([], [make_pod("ml/plain", gates=(names.GATE,))]))) == ["ml/plain"]


def test_pods_held_by_somebody_else_or_ending_are_not_planned_for():
    pods = [
        gated("ml/ours", "1g.5gb"),
        make_pod("ml/held", limits={"nvidia.com/mig-1g.5gb": "1"}, gates=(names.GATE, "example.com/licence")),
        make_pod("ml/theirs", limits={"nvidia.com/mig-1g.5gb": "1"}, gates=("example.com/licence",)),
    ]
    view = cluster([make_node()], pods)
    view = replace(view, pods=(*view.pods, replace(pod_of(view, "ml/ours"), name="going", terminating=True)))
    decision = settle(view)
    assert decision.layouts[0].target == {0: (Placement("1g.5gb", 6),)}
    assert reasons(decision) == {"ml/ours": "SliceBeingCut", "ml/held": "HeldByAnotherGate"}


def test_pods_stand_in_one_order():
    ordered = [
        make_pod("b/high", priority=10, created="2026-03-02T09:00:09Z", limits={"nvidia.com/mig-7g.40gb": "1"}),
        make_pod("b/old", created="2026-03-02T09:00:00Z", limits={"nvidia.com/mig-7g.40gb": "1"}),
        make_pod("b/small", created="2026-03-02T09:00:01Z", limits={"nvidia.com/mig-1g.5gb": "1"}),
        make_pod("b/pair", created="2026-03-02T09:00:01Z", limits={"nvidia.com/mig-1g.5gb": "2"}),
        make_pod("b/double", created="2026-03-02T09:00:01Z", limits={"nvidia.com/mig-2g.10gb": "1", "cpu": "1"}),
        make_pod("b/hungry", created="2026-03-02T09:00:01Z", limits={"nvidia.com/mig-2g.10gb": "1", "cpu": "2"}),
        make_pod("a/mps", created="2026-03-02T09:00:01Z", limits={"nvidia.com/gpu-12gb": "1"}),
        make_pod("b/mps", created="2026-03-02T09:00:01Z", limits={"nvidia.com/gpu-12gb": "1"}),
    ]
    shuffled = [view_pod(pod) for pod in ordered]
    random.Random(1).shuffle(shuffled)
    assert [pod.key for pod in sorted(shuffled, key=Ledger(View(), DEFAULTS.quota).queue_order)] == [
        view_pod(pod).key for pod in ordered
    ]


# What may be cut ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        pytest.param(make_node(mode=names.TIMESLICING), names.NO_BOARD, id="time-sliced"),
        pytest.param(make_node(mode=None), names.NO_BOARD, id="not-ours"),
        pytest.param(make_node(product="NVIDIA-Z900-96GB"), names.NO_BOARD, id="P12-unknown-model"),
        pytest.param(make_node(product=T4), names.NO_BOARD, id="no-mig"),
        pytest.param(make_node(cordoned=True), names.NODES_AWAY, id="cordoned"),
        pytest.param(make_node(ready=False), names.NODES_AWAY, id="not-ready"),
        pytest.param(make_node(taints=({"key": "dedicated", "effect": "NoSchedule"},)), names.NO_BOARD, id="tainted"),
    ],
)
def test_a_node_on_which_the_pod_cannot_run_is_not_cut(one, reason):
    decision = settle(cluster([one], [gated("ml/a", "1g.5gb")]))
    assert (decision.layouts, reasons(decision)) == ((), {"ml/a": reason})


def test_a_board_that_cannot_be_switched_now_serves_only_what_it_has():
    view = cluster([node(placements={"0": [free("1g.5gb", 0)]})], [gated("ml/a", "1g.5gb"), gated("ml/b", "1g.5gb")])
    one = node_of(view, "n1")
    off = with_node(view, replace(one, boards=(replace(one.boards[0], fault="MIG mode is off"),)))
    decision = settle(off)
    assert (released_keys(decision), decision.layouts) == (["ml/a"], ())
    assert messages(decision) == {
        "ml/b": "needs 1g.5gb; none is free, and 1 board cannot be cut now (node n1: MIG mode is off)"
    }


def test_one_board_of_several_modes_and_models_is_cut_by_itself():
    """P07, P08: a plan for GPU 1 leaves GPU 0 as it is, whatever its mode."""
    inventory = """[
      {"index": 0, "uuid": "GPU-0", "model": "NVIDIA-A100-SXM4-40GB", "memoryMiB": 40536, "mode": "mps"},
      {"index": 1, "uuid": "GPU-1", "model": "NVIDIA-A30", "memoryMiB": 24576, "mig": true, "profiles": [
        {"name": "1g.6gb", "id": 14, "compute": 1, "memoryUnits": 1, "memoryMiB": 5952, "starts": [0, 1, 2, 3]},
        {"name": "4g.24gb", "id": 0, "compute": 4, "memoryUnits": 4, "memoryMiB": 24000, "starts": [0]}]}]"""
    mixed = node(annotations={names.INVENTORY: inventory}, placements={"0": [free("20gb")], "1": [free("4g.24gb", 0)]})
    decision = settle(cluster([mixed], [gated("ml/a", "1g.6gb"), gated("ml/b", "20gb")]))
    assert decision.layouts == (
        Layout(node="n1", target={1: (Placement("1g.6gb", 0),)}, basis={1: (Placement("4g.24gb", 0),)}, destroys=True),
    )
    assert released_keys(decision) == ["ml/b"]


def test_only_free_slices_go_and_the_busy_ones_stay():
    """P10: a 4g and a 1g are busy, the idle 2g between them becomes two 1g."""
    placements = {"0": [used("4g.20gb", 0), free("2g.10gb", 4), used("1g.5gb", 6)]}
    pods = [bound("x/big", "n1", "4g.20gb"), bound("x/small", "n1", "1g.5gb"), gated("ml/a", "1g.5gb", count=2)]
    view, _ = play(begin(cluster([node(placements=placements)], pods)), random.Random(1))
    assert slices(view) == ["0:4g.20gb@0 used", "0:1g.5gb@4 used", "0:1g.5gb@5 used", "0:1g.5gb@6 used"]


def test_slices_that_a_released_pod_could_land_on_are_not_cut():
    """The promise: while ml/on-its-way is unbound, neither free 1g may go; the 3g waits and says so."""
    nodes = [node(name, placements={"0": [used("4g.20gb", 0), free("1g.5gb", 4)]}) for name in ("n1", "n2")]
    busy = [bound(f"x/{name}", name, "4g.20gb") for name in ("n1", "n2")]
    view = begin(cluster(nodes, [*busy, released("ml/on-its-way", "1g.5gb"), gated("ml/late", "3g.20gb")]))
    decision = settle(view)
    assert (decision.layouts, decision.ungate) == ((), ())
    assert messages(decision) == {"ml/late": "needs 3g.20gb; no board has 20 GB free (the freest of 2 has 15 GB)"}
    (layout,) = settle(bind(view, "ml/on-its-way", "n1")).layouts
    assert (layout.node, layout.destroys) == ("n2", True)


def test_a_bound_pod_that_the_agent_does_not_show_yet_protects_the_slices_of_its_kind():
    view = cluster(
        [node(placements={"0": [free("1g.5gb", 0), free("1g.5gb", 4)]})],
        [released("ml/new", "1g.5gb", node="n1"), gated("ml/seven", "7g.40gb"), gated("ml/one", "1g.5gb")],
    )
    decision = settle(view)
    # One of the two is taken, nobody knows which: neither goes, one is given away.
    assert (released_keys(decision), decision.layouts) == (["ml/one"], ())
    assert reasons(decision) == {"ml/seven": "NoSliceFits"}


def test_bound_pods_without_any_report_are_laid_out_by_the_planners_rule():
    view = cluster([make_node()], [bound("x/busy", "n1", "3g.20gb"), gated("ml/a", "4g.20gb")])
    (layout,) = settle(view).layouts
    assert layout.target == {0: (Placement("4g.20gb", 0), Placement("3g.20gb", 4))}
    assert layout.basis == {0: (Placement("3g.20gb", 4),)}


def test_bound_pods_that_no_board_can_hold_are_left_out_of_account():
    """Neither slice of the second pod can exist beside the first; what fits is protected, and nothing breaks."""
    view = cluster(
        [make_node()], [bound("x/a", "n1", "7g.40gb"), bound("x/b", "n1", "3g.20gb"), gated("ml/a", "1g.5gb")]
    )
    assert reasons(settle(view)) == {"ml/a": "NoSliceFits"}


def test_counts_of_nos_are_laid_out_and_what_no_layout_holds_is_left_alone():
    counted = {names.STATUS_GPU + "0-3g.20gb-used": "1", names.STATUS_GPU + "0-1g.5gb-free": "4"}
    announced = {"nvidia.com/mig-3g.20gb": "1", "nvidia.com/mig-1g.5gb": "4"}
    one = make_node(annotations=counted, resources=announced)
    waiting = [gated(f"ml/{number}", "1g.5gb") for number in range(5)]
    decision = settle(cluster([one], [bound("x/busy", "n1", "3g.20gb"), *waiting]))
    assert (released_keys(decision), decision.layouts) == ([f"ml/{number}" for number in range(4)], ())

    wrong = make_node(annotations={names.STATUS_GPU + "0-3g.20gb-free": "3"}, resources={"nvidia.com/mig-3g.20gb": "3"})
    decision = settle(cluster([wrong], [gated("ml/big", "7g.40gb"), gated("ml/three", "3g.20gb")]))
    assert (released_keys(decision), decision.layouts) == (["ml/three"], ())


def test_slices_on_nodes_of_another_plugin_serve_too():
    theirs = make_node("theirs", mode=None, resources={"nvidia.com/mig-1g.5gb": "2"})
    pods = [bound("x/busy", "theirs", "1g.5gb"), gated("ml/a", "1g.5gb"), gated("ml/b", "1g.5gb")]
    decision = settle(cluster([theirs], pods))
    assert (released_keys(decision), decision.layouts) == (["ml/a"], ())
    assert reasons(decision) == {"ml/b": "NoSliceFits"}


# Pods that the scheduler cannot place ---------------------------------------------------------------------------------


def unschedulable(view, key, since):
    return replace(
        view,
        pods=tuple(replace(pod, unschedulable_since=since if pod.key == key else None) for pod in view.pods),
    )


def test_after_thirty_seconds_without_a_node_a_released_pod_loses_its_promise_and_is_planned_for():
    view = cluster(
        [node(placements={"0": [free("1g.5gb", 4)]})], [released("ml/a", "2g.10gb"), gated("ml/b", "3g.20gb")]
    )
    view = unschedulable(view, "ml/a", 100)
    before = settle(replace(view, now=100 + UNSCHEDULABLE_S - 0.5))
    assert before.layouts[0].target == {0: (Placement("3g.20gb", 0), Placement("1g.5gb", 4))}
    after = settle(replace(view, now=100.0 + UNSCHEDULABLE_S))
    assert after.layouts[0].target == {0: (Placement("2g.10gb", 0), Placement("3g.20gb", 4))}
    assert reasons(after) == {"ml/a": "SliceBeingCut", "ml/b": "SliceBeingCut"}
    # Once its slice is there, there is nothing left for us to do.
    done = carry_out(view, after, "1")
    assert released_keys(settle(replace(done, now=140.0))) == ["ml/b"]


# Two steps ------------------------------------------------------------------------------------------------------------


def withdrawn_cluster(*pods):
    """Return a node whose agent has withdrawn two free 1g for a 4g, with these pods besides the one that waits for it."""
    view = cluster([node(placements={"0": [free("1g.5gb", 0), free("1g.5gb", 1)]})], [gated("ml/four", "4g.20gb")])
    view = agent_step(write(view, settle(view), "5"), "n1")
    return replace(view, pods=(*view.pods, *map(view_pod, pods)))


def test_withdrawn_slices_are_cut_when_no_pod_can_claim_them():
    view = withdrawn_cluster()
    decision = settle(view)
    assert decision.cuts == (Cut(node="n1", plan="5"),)
    allowed = write(view, decision, "6")
    assert settle(allowed).cuts == ()  # once is enough
    assert slices(agent_step(allowed, "n1")) == ["0:4g.20gb@0"]


def test_a_pod_bound_to_a_withdrawn_slice_makes_a_new_plan_that_keeps_it():
    view = withdrawn_cluster(released("ml/quick", "1g.5gb", node="n1"))
    decision = settle(view)
    kept = {0: (Placement("1g.5gb", 0), Placement("1g.5gb", 1))}
    assert decision.cuts == ()
    assert decision.layouts == (Layout(node="n1", target=kept, basis=kept, destroys=False),)
    again = agent_step(write(view, decision, "6"), "n1")
    assert not node_of(again, "n1").in_flight
    # The bound pod may hold either, so both stay, and the 4g has no place.
    assert reasons(settle(again)) == {"ml/four": "NoSliceFits"}


def test_while_a_released_pod_could_still_come_nothing_is_cut():
    decision = settle(withdrawn_cluster(released("ml/coming", "1g.5gb")))
    assert (decision.cuts, decision.layouts) == ((), ())
    elsewhere = settle(withdrawn_cluster(released("ml/other", "1g.5gb", nodeSelector={"zone": "b"})))
    assert elsewhere.cuts == (Cut(node="n1", plan="5"),)


def test_nobody_is_released_to_a_node_whose_free_slices_are_about_to_go():
    """n1 is to lose its 1g for a 4g; the younger pod that takes the 1g of n2 must not land on n1's."""
    nodes = [
        node("n1", placements={"0": [free("1g.5gb", 2)]}),
        node("n2", placements={"0": [used("4g.20gb", 0), free("1g.5gb", 4)]}),
    ]
    pods = [
        bound("x/busy", "n2", "4g.20gb"),
        gated("ml/big", "4g.20gb", created="2026-03-02T09:00:00Z"),
        gated("ml/small", "1g.5gb", created="2026-03-02T09:00:01Z"),
    ]
    view = begin(cluster(nodes, pods))
    decision = settle(view)
    assert [layout.node for layout in decision.layouts] == ["n1"]
    assert decision.ungate == (Release(pod="ml/small", uid="uid-small", version="1", avoid=("n1",)),)
    # The same while the order is under way.
    under_way = write(view, replace(decision, ungate=()), "1")
    assert settle(under_way).ungate == decision.ungate


def test_a_slice_that_is_about_to_go_is_given_to_nobody():
    """Of two free 1g one is to go, but is not withdrawn yet: a pod for the other could be given this one."""
    view = cluster([node(placements={"0": [free("1g.5gb", 2), free("1g.5gb", 6)]})], [gated("ml/four", "4g.20gb")])
    under_way = write(view, settle(view), "1")
    late = (gated("ml/late", "1g.5gb"), gated("ml/later", "1g.5gb"))
    decision = settle(replace(under_way, pods=(*under_way.pods, *map(view_pod, late))))
    assert (decision.ungate, decision.layouts) == ((), ())
    assert reasons(decision) == {"ml/four": "SliceBeingCut", "ml/late": "SliceBeingCut", "ml/later": "SliceBeingCut"}


def test_where_an_agent_has_refused_its_last_order_a_board_keeps_slices_on_which_a_pod_lands_that_is_released_now():
    """Of two free 1g one serves ml/one now; the other would go for the 4g, which waits until the first is bound."""
    placements = {"0": [free("1g.5gb", 0), free("1g.5gb", 4)], "1": [used("7g.40gb", 0)]}
    pods = [
        bound("x/busy", "n1", "7g.40gb"),
        gated("ml/one", "1g.5gb", created="2026-03-02T09:00:00Z"),
        gated("ml/four", "4g.20gb", created="2026-03-02T09:00:01Z"),
    ]
    refused = {names.SPEC_PLACEMENTS: '{"0":[]}', names.SPEC_PLAN: "1", names.STATUS_PLAN: "1"}
    view = begin(cluster([node(count=2, placements=placements, annotations=refused)], pods))
    decision = settle(view)
    assert (released_keys(decision), decision.layouts) == (["ml/one"], ())
    assert messages(decision) == {
        "ml/four": "needs 4g.20gb; node n1 is cut for it when the pods on their way there are bound"
    }


# Whichever way they land ----------------------------------------------------------------------------------------------


def test_a_wider_pod_is_kept_off_the_node_promised_to_a_narrower_one():
    """Scenario nodes-selector-leaves-room, and the same while the narrower one's slice is still being cut."""
    done = [node(name, A30, placements={"0": [free("4g.24gb", 0)]}, labels={"zone": name}) for name in ("a", "b")]
    pods = [gated("ml/any", "4g.24gb"), gated("ml/a", "4g.24gb", nodeSelector={"zone": "a"})]
    decision = settle(cluster(done, pods))
    assert {release.pod: release.avoid for release in decision.ungate} == {"ml/a": (), "ml/any": ("a",)}

    empty = [node("a", A30, labels={"zone": "a"}), node("b", A30, labels={"zone": "b"})]
    view = cluster(empty, pods)
    first = agent_step(write(view, settle(view), "1"), "b")
    decision = settle(first)
    assert {release.pod: release.avoid for release in decision.ungate} == {"ml/any": ("a",)}


def test_slices_on_their_way_are_kept_for_all_for_whom_they_are_made():
    """Two are being made in zone a for two pods; the third pod, which has its slice in b, could take one of them."""
    nodes = [
        node("a", A30, labels={"zone": "a"}),
        node("b", A30, placements={"0": [free("2g.12gb", 0)]}, labels={"zone": "b"}),
    ]
    zoned = [gated(f"ml/a{number}", "2g.12gb", nodeSelector={"zone": "a"}) for number in (1, 2)]
    view = cluster(nodes, zoned)
    under_way = write(view, settle(view), "1")
    (release,) = settle(replace(under_way, pods=(*under_way.pods, view_pod(gated("ml/any", "2g.12gb"))))).ungate
    assert (release.pod, release.avoid) == ("ml/any", ("a",))


def test_pods_of_several_slices_are_released_together_only_where_they_cannot_meet():
    """Scenario mig-a30-multi-container-pods: 2 + 3 + 2 slices on two boards of four."""
    view = cluster(
        [node("n1", A30), node("n2", A30)],
        [gated(f"ml/{name}", "1g.6gb", count=count) for name, count in (("a", 2), ("b", 3), ("c", 2))],
    )
    decision = settle(carry_out(view, settle(view)))
    avoided = {release.pod: release.avoid for release in decision.ungate}
    assert avoided["ml/a"] == avoided["ml/c"] != avoided["ml/b"]
    assert all(avoided.values())


def test_equal_pods_are_released_together_without_narrowing():
    nodes = [node(f"n{number}", placements={"0": [free("1g.5gb", start) for start in range(7)]}) for number in range(3)]
    decision = settle(cluster(nodes, [gated(f"ml/{number:02}", "1g.5gb") for number in range(21)]))
    assert len(decision.ungate) == 21
    assert not any(release.avoid for release in decision.ungate)


def test_who_cannot_be_made_safe_waits_until_the_others_are_bound():
    """The released pod may land on either node; the pod with a selector has only one."""
    nodes = [node(name, A30, placements={"0": [free("4g.24gb", 0)]}, labels={"zone": name}) for name in ("a", "b")]
    narrow = gated("ml/a", "4g.24gb", nodeSelector={"zone": "a"})
    view = cluster(nodes, [released("ml/any", "4g.24gb"), narrow])
    decision = settle(view)
    assert decision.ungate == ()
    assert messages(decision) == {
        "ml/a": "needs 4g.24gb; what is free is promised to pods that the scheduler has not bound yet"
    }
    assert released_keys(settle(bind(view, "ml/any", "b"))) == ["ml/a"]


def test_others_do_not_wait_for_who_cannot_be_made_safe():
    nodes = [
        node(name, A30, placements={"0": [free("4g.24gb", 0)]}, labels={"zone": "x" if name == "a" else "y"})
        for name in ("a", "b", "c")
    ]
    pods = [
        released("ml/any", "4g.24gb"),
        gated("ml/narrow", "4g.24gb", nodeSelector={"zone": "x"}),
        gated("ml/wide", "4g.24gb", nodeSelector={"zone": "y"}),
    ]
    decision = settle(cluster(nodes, pods))
    assert released_keys(decision) == ["ml/wide"]
    assert reasons(decision) == {"ml/narrow": "SlicesPromised"}


def test_where_many_would_have_to_be_kept_apart_the_largest_go_first():
    """Twenty pods of three slices and twenty of one on twenty A30 of four: two slices gone leave no place for a large one.

    Nineteen large ones leave one board for the last, which one small one does not spoil, but a second might: and what small
    ones spoil, they spoil for good, since nothing but large ones on all boards leaves room for all.
    """
    nodes = [
        node(f"n{number:02}", A30, placements={"0": [free("1g.6gb", i) for i in range(4)]}) for number in range(20)
    ]
    pods = [gated(f"ml/{number:02}", "1g.6gb", count=3) for number in range(20)]
    pods += [gated(f"ml/{number:02}", "1g.6gb") for number in range(20, 40)]
    view = cluster(nodes, pods)
    first = settle(view)
    assert sorted(released_keys(first)) == [f"ml/{number:02}" for number in range(21)]
    assert not any(release.avoid for release in first.ungate)
    finished, decision = play(view, random.Random(1))
    assert decision == Decision()
    assert all(pod.node for pod in finished.pods)


def test_who_would_be_safe_but_endangers_a_pod_released_before_waits():
    """x/two needs two of the three slices of a; x/one may land on a or b; ml/late would fit, and yet be one too many."""
    nodes = [
        node("a", A30, placements={"0": [free("1g.6gb", start) for start in range(3)]}, labels={"zone": "a"}),
        node(
            "b", A30, placements={"0": [used("1g.6gb", 0), used("2g.12gb", 2), free("1g.6gb", 1)]}, labels={"zone": "b"}
        ),
    ]
    pods = [
        bound("x/busy", "b", "1g.6gb", "2g.12gb"),
        released("x/two", "1g.6gb", count=2, nodeSelector={"zone": "a"}),
        released("x/one", "1g.6gb"),
        gated("ml/late", "1g.6gb"),
    ]
    view = begin(cluster(nodes, pods))
    assert reasons(settle(view)) == {"ml/late": "SlicesPromised"}
    assert released_keys(settle(bind(view, "x/one", "b"))) == ["ml/late"]


def test_nobody_is_released_who_could_take_the_last_place_of_a_pod_released_before():
    nodes = [node(name, A30, placements={"0": [free("4g.24gb", 0)]}, labels={"zone": name}) for name in ("a", "b")]
    view = cluster(nodes, [released("ml/a", "4g.24gb", nodeSelector={"zone": "a"}), gated("ml/any", "4g.24gb")])
    (release,) = settle(view).ungate
    assert (release.pod, release.avoid) == ("ml/any", ("a",))


def test_room_counts_when_pods_can_crowd_each_other_out():
    """The 4g may land on n1 and take the CPU that the 1g needs there; so it is kept off.

    And the 1g off n2, where it finds no slice now, but would as soon as one is cut there for somebody else.
    """
    nodes = [
        node(
            "n1", A30, count=2, placements={"0": [free("4g.24gb", 0)], "1": [free("1g.6gb", 0)]}, resources={"cpu": "4"}
        ),
        node("n2", A30, placements={"0": [free("4g.24gb", 0)]}, resources={"cpu": "4"}),
    ]
    view = cluster(nodes, [gated("ml/small", "1g.6gb", cpu="2"), gated("ml/big", "4g.24gb", cpu="4")])
    decision = settle(view)
    assert {release.pod: release.avoid for release in decision.ungate} == {"ml/small": ("n2",), "ml/big": ("n1",)}
    landed = carry_out(view, decision)
    assert places(landed, pod_of(landed, "ml/big")) == ["n2"]


# Boards ---------------------------------------------------------------------------------------------------------------


def test_profiles_are_named_as_the_driver_names_them():
    """P22: what is planned is what the board's own table calls it."""
    decision = settle(cluster([make_node(product="NVIDIA-A100-SXM4-80GB")], [gated("ml/a", "7g.80gb")]))
    assert decision.layouts[0].target == {0: (Placement("7g.80gb", 0),)}


def test_an_agent_that_never_answers_holds_nobody_up():
    """A node is labelled, but no agent runs there: after a minute the pod is planned on another."""
    waiting = gated("a/waits", "3g.20gb")
    order = {names.SPEC_PLACEMENTS: '{"0":[{"profile":"3g.20gb","start":4}]}', names.SPEC_PLAN: "1000000"}
    silent = node("n1", annotations=order)
    other = node("n2", placements={"0": []})
    young = settle(cluster([silent, other], [waiting], now=1059.0))
    assert young.layouts == ()
    assert young.waiting[0].reason == names.BEING_CUT
    old = settle(cluster([silent, other], [waiting], now=1061.0))
    assert [layout.node for layout in old.layouts] == ["n2"]


@pytest.mark.parametrize("reason", [names.NO_BOARDS, names.AGENT_FAILED])
def test_a_node_whose_agent_says_that_it_can_do_nothing_is_not_cut(reason):
    """A14: the pod is planned on another at once; one that is free already is given away all the same."""
    off = node("n1", placements={"0": [free("2g.10gb", 4)]}, agent=(reason, "open NVML: Library Not Found"))
    waiting = [gated("a/first", "2g.10gb"), gated("a/second", "3g.20gb")]
    decision = settle(cluster([off, node("n2", placements={"0": []})], waiting))
    assert released_keys(decision) == ["a/first"]
    assert [layout.node for layout in decision.layouts] == ["n2"]


def test_a_node_one_board_of_which_has_failed_is_cut():
    one = node("n1", placements={"0": []}, agent=(names.BOARD_FAILED, "GPU 1 (GPU-1): MIG mode is off"))
    assert [layout.node for layout in settle(cluster([one], [gated("a/waits", "3g.20gb")])).layouts] == ["n1"]


def test_an_overdue_order_is_taken_back_before_what_it_destroys_is_given_away():
    """The agent may yet wake up: it would find the slice free and take it away."""
    order = {names.SPEC_PLACEMENTS: '{"0":[{"profile":"3g.20gb","start":4}]}', names.SPEC_PLAN: "1000000"}
    silent = node(
        "n1", placements={"0": [free("2g.10gb", 4)]}, annotations=order, resources={"nvidia.com/mig-2g.10gb": "1"}
    )
    view = cluster([silent], [gated("a/waits", "2g.10gb")], now=9999.0)
    decision, kept = settle(view), {0: (Placement("2g.10gb", 4),)}
    assert (decision.ungate, decision.layouts) == ((), (Layout(node="n1", target=kept, basis=kept, destroys=False),))
    assert released_keys(settle(write(view, decision, "9999000"))) == ["a/waits"]


def test_boards_that_an_agent_has_reported_are_cut_first():
    """Of two equal boards, one is known by its label only."""
    model = by_product(A100)
    board = BoardInventory(
        index=0, uuid="GPU-1", model=A100, memory_mib=model.memory_mib, profiles=model.profiles, mig=True
    )
    reported = node("n2", placements={"0": []}, annotations=write_inventory([board]))
    decision = settle(cluster([node("n1"), reported], [gated("a/waits", "3g.20gb")]))
    assert [layout.node for layout in decision.layouts] == ["n2"]


def test_slices_of_an_unknown_model_are_given_away_as_they_are_announced():
    """No board of it is known, so none is cut; what its node announces is free all the same."""
    unknown = node("n1", "NVIDIA-Unheard-Of", resources={"nvidia.com/mig-2g.11gb": "1"})
    first, second = gated("a/first", "2g.11gb"), gated("b/second", "2g.11gb")
    decision = settle(cluster([unknown], [first, second]))
    assert [release.pod for release in decision.ungate] == ["a/first"]
    assert [waiting.pod for waiting in decision.waiting] == ["b/second"]
