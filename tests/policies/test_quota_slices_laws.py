"""Laws of quota over a thousand histories of boards that are cut, and what such histories have found."""

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from policies import names
from policies.annotations import Placement
from policies.settle import settle
from tests.builders import A30
from tests.policies.cluster import begin, bound, carry_out, cluster, free, gated, node, used
from tests.policies.history import HISTORIES
from tests.policies.history_boards import Boards
from tests.policies.teams import carried_out, quota, relabelled, victims


@given(Boards.strategy())
@settings(max_examples=HISTORIES)
def test_whatever_happens_to_boards_the_laws_of_quota_hold(history):
    """Q05, Q20, P14, P16: at every decision, after every happening, and when all has come to rest (laws.py)."""
    Boards.play(*history)


# What histories have found --------------------------------------------------------------------------------------------


def test_nobody_goes_for_a_board_on_which_others_are_about_to_land():
    """Of three free 1g the first claimant takes two, nobody knows which: the last may or may not make a 2g with b's."""
    slices = [used("1g.6gb", 0), free("1g.6gb", 1), free("1g.6gb", 2), free("1g.6gb", 3)]
    pods = [
        bound("b/x", "n1", "1g.6gb", created="2026-03-02T08:00:00Z"),
        gated("a/first", "1g.6gb", count=2, created="2026-03-02T09:00:00Z"),
        gated("a/second", "2g.12gb", created="2026-03-02T09:00:01Z"),
    ]
    memory = {names.GPU_MEMORY_QUOTA: 24_000}
    quotas = (replace(quota("a"), min=memory), replace(quota("b"), min={names.GPU_MEMORY_QUOTA: 0}))
    view = begin(replace(cluster([node("n1", A30, placements={"0": slices})], pods, now=1.8e9), quotas=quotas))
    decision = settle(view)
    assert [release.pod for release in decision.ungate] == ["a/first"]
    assert decision.evict == ()
    assert [(item.pod, item.reason) for item in decision.waiting] == [("a/second", names.PROMISED)]
    view = carried_out(view, decision)
    assert settle(view).evict == ()  # nor as long as it may land anywhere


def test_who_is_evicted_for_a_board_makes_room_on_it_wherever_others_have_landed():
    """The same when the first runs: at 2 and 3 it leaves b's 0 and the free 1 to a 2g, at 1 and 2 it does not."""
    for places, gone in (((2, 3), ["b/x"]), ((1, 2), [])):
        slices = [used("1g.6gb", place) if place in (0, *places) else free("1g.6gb", place) for place in range(4)]
        pods = [
            bound("b/x", "n1", "1g.6gb", created="2026-03-02T08:00:00Z"),
            bound("a/first", "n1", "1g.6gb", count=2, created="2026-03-02T07:00:00Z"),
            gated("a/second", "2g.12gb", created="2026-03-02T09:00:01Z"),
        ]
        holders = {0: "b/x"} | dict.fromkeys(places, "a/first")
        quotas = (
            replace(quota("a"), min={names.GPU_MEMORY_QUOTA: 24_000}),
            replace(quota("b"), min={names.GPU_MEMORY_QUOTA: 0}),
        )
        view = cluster([node("n1", A30, placements={"0": slices})], pods, now=1.8e9)
        (board,) = view.nodes[0].boards
        board = replace(board, slices=tuple(replace(item, pod=holders.get(item.start)) for item in board.slices))
        view = replace(view, nodes=(replace(view.nodes[0], boards=(board,)),), quotas=quotas)
        assert victims(settle(relabelled(view, settle(view)))) == gone


def test_who_comes_back_does_not_land_where_the_board_must_be_cut_for_its_claimant():
    """Q20: of two free 3g.20gb one must go for the 4g.20gb. The kubelet may give away just that one, and so for ever."""
    pods = [
        gated("a/claim", "4g.20gb", created="2026-03-02T09:00:00Z"),
        gated("b/back", "3g.20gb", created="2026-03-02T09:00:01Z"),
    ]
    view = begin(cluster([node("n1", placements={"0": [free("3g.20gb", 0), free("3g.20gb", 4)]})], pods, now=1.8e9))
    decision = settle(view)
    assert decision.ungate == ()
    (layout,) = decision.layouts
    assert layout.target == {0: (Placement("4g.20gb", 0), Placement("3g.20gb", 4))}
    done = carry_out(view, decision)
    assert [release.pod for release in settle(done).ungate] == ["a/claim", "b/back"]


def test_who_is_yet_to_come_makes_nobody_a_borrower():
    """b's own older pod waits for a board; until it is let in, b uses less than its min, and a may take nothing from it."""
    gpus, memory = names.GPU, names.GPU_MEMORY_QUOTA
    pods = [
        bound("b/runs", "n1", "8gb", created="2026-03-02T08:00:00Z"),
        gated("b/older", "8gb", created="2026-03-02T07:00:00Z"),
        gated("a/claim", "8gb", created="2026-03-02T09:00:00Z"),
    ]
    quotas = (
        replace(quota("a"), min={gpus: 500, memory: 0}),
        replace(quota("b"), min={gpus: 500, memory: 60_000}),
    )
    nodes = [node("n1", A30, mode="mps", placements={"0": [used("8gb")]})]
    view = begin(replace(cluster(nodes, pods, now=1.8e9), quotas=quotas))
    decision = settle(view)
    assert decision.evict == ()
    assert [item.pod for item in decision.waiting] == ["b/older", "a/claim"]


@pytest.mark.parametrize("shown", ["a/low", "a/ended"])
def test_nobody_goes_while_a_slice_seems_free_on_which_another_has_landed_a_moment_ago(shown):
    """The agent shows one 3g.20gb as another's, and not yet that c has the other: that one cannot make way for the 4g.20gb."""
    boards = {
        "0": [used("1g.5gb", 0), used("3g.20gb", 4) | {"pod": shown}],
        "1": [free("3g.20gb", 0), used("2g.10gb", 4)],
    }
    pods = [
        bound("a/low", "n1", *(["3g.20gb"] if shown == "a/low" else []), cpu="2"),
        bound("c/landed", "n1", "3g.20gb", priority=5),
        bound("c/one", "n1", "1g.5gb", priority=5),
        bound("c/two", "n1", "2g.10gb", priority=5),
        gated("a/claim", "4g.20gb", cpu="4", priority=5),
    ]
    memory = names.GPU_MEMORY_QUOTA
    quotas = (replace(quota("a"), min={memory: 40_000}), replace(quota("c"), min={memory: 40_000}))
    nodes = [node("n1", count=2, placements=boards, resources={"cpu": "4"})]
    view = replace(cluster(nodes, pods, now=1.8e9), quotas=quotas)
    decision = settle(view)
    assert (decision.evict, decision.layouts) == ((), ())
    assert [(item.pod, item.reason) for item in decision.waiting] == [("a/claim", names.NOTHING_TO_RECLAIM)]
