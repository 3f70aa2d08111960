"""Reclaim of slices: who has to go so that a board can be cut for the claimant, and when it is cut."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.governing import QuotaView
from policies.settle import settle
from tests.builders import A30, A100
from tests.policies import takeback
from tests.policies.cluster import begin, bound, cluster, gated, node, node_of, used, with_node
from tests.policies.takeback import lent_boards, view_of
from tests.policies.teams import carried_out, relabelled, victims, without

MEMORY = names.GPU_MEMORY_QUOTA


def gigabytes(space, least):
    return QuotaView(
        kind=names.ELASTIC_QUOTA, namespace=space, name="q", namespaces=(space,), min={MEMORY: least * 1000}
    )


def lent(boards, least, *claims, product=None, holders="b", mode=names.MIG):
    """Return nodes whose boards are full of slices of b, which owns `least` GB; a owns 40 GB a board and claims."""
    nodes, pods = [], []
    for number, layout in enumerate(boards):
        name = f"n{number:02}"
        slices = [used(profile, start) for profile, start in layout]
        nodes.append(node(name, placements={"0": slices}, mode=mode))
        pods += [
            bound(
                f"{holders}/{holders}-{number:02}-{index}",
                name,
                profile,
                created=f"2026-03-02T08:{number:02}:{index:02}Z",
            )
            for index, (profile, _) in enumerate(layout)
        ]
    view = replace(
        cluster(nodes, [*pods, *claims], now=1.8e9), quotas=(gigabytes("a", 40 * len(boards)), gigabytes("b", least))
    )
    view = begin(view)
    return relabelled(view, settle(view))


SEVEN = [("1g.5gb", start) for start in range(7)]


def claim(key, profile, count=1, second=0):
    return gated(key, profile, count=count, created=f"2026-03-02T09:00:{second:02}Z")


def test_the_victims_are_those_whose_slices_make_room_together():
    """3g.20gb needs four units side by side at 0 or 4: the newest hold 4, 5 and 6."""
    view = lent([SEVEN], 0, claim("a/claim", "3g.20gb"))
    assert victims(settle(view)) == ["b/b-00-6", "b/b-00-5", "b/b-00-4"]


def test_a_slice_that_is_free_costs_nobody_his_place():
    view = lent([SEVEN[:6]], 0, claim("a/claim", "1g.5gb"))
    decision = settle(view)
    assert victims(decision) == []
    assert [layout.target[0][-1].profile for layout in decision.layouts] == ["1g.5gb"]


def test_a_board_is_cut_when_the_victims_have_ended_and_not_before():
    view = lent([SEVEN], 0, claim("a/claim", "3g.20gb"))
    view = carried_out(view, settle(view))
    assert settle(view).layouts == ()
    two = gone(view, "b/b-00-6", "b/b-00-5")
    assert (settle(two).layouts, settle(two).evict) == ((), ())
    three = gone(two, "b/b-00-4")
    (layout,) = settle(three).layouts
    assert [(item.profile, item.start) for item in layout.target[0]] == [*SEVEN[:4], ("3g.20gb", 4)]
    assert layout.destroys


def test_a_slice_whose_holder_has_ended_is_waited_for_and_nobody_else_evicted():
    """Q20: the API server tells of a pod's end before the agent tells that its slice is free."""
    view = lent([SEVEN], 0, claim("a/claim", "1g.5gb"))
    decision = settle(view)
    assert victims(decision) == ["b/b-00-6"]
    view = carried_out(view, decision)
    ended = without(view, {"b/b-00-6"})
    assert [item.pod for item in ended.nodes[0].boards[0].slices if item.used][-1] == "b/b-00-6"
    decision = settle(ended)
    assert (victims(decision), decision.ungate, decision.layouts) == ([], (), ())
    assert [item.pod for item in settle(gone(view, "b/b-00-6")).ungate] == ["a/claim"]


def test_a_board_is_not_cut_under_a_slice_that_is_still_reported_as_used():
    view = lent([SEVEN], 0, claim("a/claim", "3g.20gb"))
    view = carried_out(view, settle(view))
    decision = settle(without(view, {"b/b-00-6", "b/b-00-5", "b/b-00-4"}))
    assert (victims(decision), decision.layouts) == ([], ())


def test_what_can_be_had_is_cut_while_others_still_end():
    """A slow victim of a later claimant does not keep an earlier one waiting."""
    view = lent([SEVEN], 0, claim("a/first", "3g.20gb"), claim("a/second", "2g.10gb", second=1))
    decision = settle(view)
    assert victims(decision, "a/first") == ["b/b-00-6", "b/b-00-5", "b/b-00-4"]
    assert victims(decision, "a/second") == ["b/b-00-3", "b/b-00-2"]
    view = gone(carried_out(view, decision), "b/b-00-6", "b/b-00-5", "b/b-00-4")
    (layout,) = settle(view).layouts
    assert [(item.profile, item.start) for item in layout.target[0]] == [*SEVEN[:4], ("3g.20gb", 4)]


def test_an_mps_bin_makes_room_by_its_gigabytes():
    """Two bins of 10 GB for one of 15, on a board of 40; the newest go."""
    bins = [("10gb", None)] * 4
    view = lent([bins], 0, claim("a/claim", "15gb"), mode=names.MPS)
    assert victims(settle(view)) == ["b/b-00-3", "b/b-00-2"]


def test_a_bin_of_a_pod_that_stays_is_not_taken_for_one_that_goes():
    """Bins have no place, so a board with two used ones of which one goes must keep both until it has gone."""
    view = lent([[("8gb", None), ("8gb", None), ("20gb", None)]], 28, claim("a/claim", "12gb"), mode=names.MPS)
    decision = settle(view)
    assert victims(decision) == ["b/b-00-2"]
    view = lent([[("20gb", None), ("8gb", None), ("8gb", None)]], 28, claim("a/claim", "12gb"), mode=names.MPS)
    decision = settle(view)
    assert victims(decision) == ["b/b-00-2"]
    assert settle(carried_out(view, decision)).layouts == ()


def test_who_is_within_his_min_keeps_his_slice_though_a_board_could_be_cut_then():
    view = lent([SEVEN], 35, claim("a/claim", "3g.20gb"))
    decision = settle(view)
    assert victims(decision) == []
    assert [item.reason for item in decision.waiting] == [names.NO_ROOM]


def test_sixty_four_slices_across_sixteen_nodes_come_back_from_the_newest():
    """112 slices of one size are lent; b owns 48. Every claim takes the newest that is left: brute force can do no other."""
    claims = [claim(f"a/claim-{number:02}", "1g.5gb", second=number % 60) for number in range(64)]
    view = lent([SEVEN] * 16, 48 * 5, *claims)
    newest = [f"b/b-{number:02}-{index}" for number in reversed(range(16)) for index in reversed(range(7))]
    assert victims(settle(view)) == newest[:64]


@pytest.mark.parametrize(("profile", "count"), [("1g.5gb", 8), ("2g.10gb", 3), ("3g.20gb", 2), ("4g.20gb", 1)])
@given(chance=st.randoms(use_true_random=True))
@settings(max_examples=40, deadline=None)
def test_the_victims_are_those_of_section_4_carried_out_step_by_step(profile, count, chance):
    """Q15, Q27: whatever holds the boards, claim after claim, in the order of section 4 and none too many."""
    case = lent_boards(chance, 3, profile, count)
    expected = takeback.victims(*case)
    assume(expected is not None)
    assert [(evict.claimant, evict.pod) for evict in settle(view_of(*case)).evict] == expected


def gone(view, *keys):
    """Return the view when pods have ended: their slices are free."""

    def free(item):
        return replace(item, used=False, pod=None) if item.pod in keys else item

    nodes = tuple(
        replace(each, boards=tuple(replace(b, slices=tuple(map(free, b.slices))) for b in each.boards))
        for each in view.nodes
    )
    return replace(without(view, set(keys)), nodes=nodes)


def test_who_needs_a_board_that_cannot_be_cut_holds_nothing():
    """Q18: its MIG mode is off, and only an administrator can switch it; until then others borrow what that pod would use."""
    pods = [claim("a/waits", "3g.20gb"), claim("b/borrows", "1g.6gb", second=1)]
    view = cluster([node("n1", A100, placements={"0": []}), node("n2", A30, placements={"0": []})], pods, now=1.8e9)
    view = replace(view, quotas=(gigabytes("a", 20), gigabytes("b", 0)))
    off = tuple(replace(board, fault="MIG mode is off") for board in node_of(view, "n1").boards)
    view = with_node(view, replace(node_of(view, "n1"), boards=off))
    decision = settle(view)
    assert [layout.node for layout in decision.layouts] == ["n2"]
    assert {item.pod: item.reason for item in decision.waiting} == {
        "a/waits": names.NO_ROOM,
        "b/borrows": names.BEING_CUT,
    }


def test_who_is_kept_from_a_board_that_could_be_cut_is_told_for_whom():
    """L01: of the 30 GB that are free, 20 are kept for the 4g that waits until the 1g at its start has ended."""
    view = lent([[("1g.5gb", 0)]], 5, claim("a/four", "4g.20gb"), claim("a/three", "1g.5gb", 3, second=1))
    assert {item.pod: (item.reason, item.message) for item in settle(view).waiting} == {
        "a/four": (
            names.NO_ROOM,
            "needs 4g.20gb; 1 board has 20 GB free, not contiguous; what is free on node n00 is kept for it",
        ),
        "a/three": (
            names.PLACE_HELD,
            "needs 3 x 1g.5gb on one node; node n00 has that free, but keeps it for a/four, which stands before this pod",
        ),
    }


@pytest.mark.parametrize("evicted_for", ["a/gone", "b/waits"], ids=["for who has gone", "for another"])
def test_a_slice_that_somebody_leaves_is_said_to_be_held_until_then(evicted_for):
    holders = [bound(f"b/{n}", "n1", "3g.20gb", created="2026-03-02T08:00:00Z") for n in ("ends", "stays")]
    nodes = [node("n1", placements={"0": [used("3g.20gb", 0), used("3g.20gb", 4)]})]
    view = replace(
        cluster(nodes, [*holders, gated("a/next", "3g.20gb")]), quotas=(gigabytes("a", 40), gigabytes("b", 20))
    )
    view = begin(view)
    going = tuple(replace(p, terminating=True, evicted_for=evicted_for) if p.key == "b/ends" else p for p in view.pods)
    decision = settle(replace(view, pods=going))
    assert (decision.evict, decision.ungate, decision.layouts) == ((), (), ())
    (waiting,) = decision.waiting
    assert (waiting.reason, waiting.message) == (
        names.PLACE_HELD, "needs 3g.20gb; node n1 has it when pods that are on their way out have ended",
    )  # fmt: skip
