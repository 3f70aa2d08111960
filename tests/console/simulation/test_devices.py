"""Agents and kubelets of the simulation."""

import pytest
from msgspec.structs import replace

from console.simulation.devices import announce, carry_out, hold, let_go, obey, settle_in
from policies.annotations import Placement
from policies.view import view_node, view_pod
from tests.builders import make_node, make_pod

MIG = "nvidia.com/mig-"


def node(placements=None, **fields):
    return view_node(make_node("n1", placements=placements, **fields))


def pod(name, **slices):
    limits = {f"nvidia.com/{key}": str(count) for key, count in slices.items()}
    return view_pod(make_pod(f"a/{name}", limits=limits, node="n1"))


def mig(name, profile, count=1):
    return view_pod(make_pod(f"a/{name}", limits={f"{MIG}{profile}": str(count)}, node="n1"))


def slices(seen):
    """Return what is on the boards as (board, profile, start, pod), with a mark for what is withdrawn."""
    return [
        (board.index, item.profile, item.start, "withdrawn" if item.withdrawn else item.pod)
        for board in seen.boards
        for item in board.slices
    ]


def placed(profile, start=None, *, used=False):
    found = {"profile": profile, "used": used}
    return found if start is None else {**found, "start": start}


def test_used_slices_get_the_pods_that_are_bound_as_holders():
    seen = settle_in(
        node({"0": [placed("1g.5gb", 0, used=True), placed("1g.5gb", 1), placed("3g.20gb", 4, used=True)]}),
        [mig("train", "3g.20gb"), mig("web", "1g.5gb")],
    )
    assert slices(seen) == [(0, "1g.5gb", 0, "a/web"), (0, "1g.5gb", 1, None), (0, "3g.20gb", 4, "a/train")]


def test_slices_are_free_whose_holders_are_no_more():
    gone = {**placed("3g.20gb", 4, used=True), "pod": "a/gone"}
    seen = settle_in(node({"0": [placed("1g.5gb", 0, used=True), gone]}), [])
    assert [(item.profile, item.used) for item in seen.boards[0].slices] == [("1g.5gb", True), ("3g.20gb", False)]


def test_pods_bound_to_a_node_without_a_report_are_given_slices_by_the_planners_rule():
    seen = settle_in(node(), [mig("web", "1g.5gb"), mig("train", "3g.20gb")])
    assert sorted(slices(seen)) == [(0, "1g.5gb", 0, "a/web"), (0, "3g.20gb", 4, "a/train")]
    assert seen.allocatable[f"{MIG}3g.20gb"] == 1000


def test_what_is_announced_is_what_exists_and_is_not_withdrawn():
    seen = announce(node({"0": [placed("1g.5gb", 0), placed("1g.5gb", 1)]}, resources={f"{MIG}7g.40gb": "1"}))
    assert {name: amount for name, amount in seen.allocatable.items() if name.startswith(MIG)} == {f"{MIG}1g.5gb": 2000}
    foreign = view_node(make_node("f", mode="", resources={f"{MIG}1g.5gb": "7"}))
    assert announce(foreign).allocatable[f"{MIG}1g.5gb"] == 7000


@pytest.mark.parametrize(
    ("hints", "wanted", "held"),
    [
        pytest.param((), mig("p", "1g.5gb"), [(1, 0)], id="different pods are packed: the fullest board"),
        pytest.param(((0, Placement("1g.5gb", 5)),), mig("p", "1g.5gb"), [(0, 5)], id="where it was planned"),
        pytest.param((), mig("p", "1g.5gb", 2), [(0, 6), (1, 0)], id="one pod is spread over boards"),
        pytest.param((), mig("p", "2g.10gb"), [], id="what is not there is not given"),
    ],
)
def test_a_kubelet_gives_free_slices(hints, wanted, held):
    seen = settle_in(
        node(
            {
                "0": [placed("1g.5gb", 5), placed("1g.5gb", 6)],
                "1": [placed("1g.5gb", 0), placed("3g.20gb", 4, used=True)],
            },
            count=2,
        ),
        [mig("train", "3g.20gb")],
    )
    after = hold(seen, wanted, hints)
    assert [(board, start) for board, _, start, holder in slices(after) if holder == "a/p"] == held
    assert let_go(after, "a/p") == seen


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_who_is_named_as_holder_holds_no_more_and_the_order_of_the_files_says_nothing(names):
    board = [
        placed("1g.5gb", 0) | {"used": True, "pod": "a/second"},
        placed("1g.5gb", 1, used=True),
        placed("1g.5gb", 2),
    ]
    seen = settle_in(node({"0": board}), [mig(name, "1g.5gb") for name in names])
    assert slices(seen) == [(0, "1g.5gb", 0, "a/second"), (0, "1g.5gb", 1, "a/first"), (0, "1g.5gb", 2, None)]


def ordered(seen, target):
    return replace(seen, spec=target, spec_plan="17")


def test_an_order_that_would_take_what_is_in_use_is_refused():
    before = announce(node({"0": [placed("3g.20gb", 4, used=True)]}))
    after = obey(ordered(before, {0: (Placement("7g.40gb", 0),)}))
    assert (slices(after), after.in_flight) == ([(0, "3g.20gb", 4, None)], False)


def test_an_order_that_destroys_nothing_is_carried_out_at_once():
    before = node({"0": [placed("3g.20gb", 4, used=True)]})
    target = {0: (Placement("1g.5gb", 0), Placement("3g.20gb", 4))}
    after = obey(ordered(before, target))
    assert slices(after) == [(0, "1g.5gb", 0, None), (0, "3g.20gb", 4, None)]
    assert after.boards[0].slices[1].used
    assert not after.in_flight
    assert after.allocatable[f"{MIG}1g.5gb"] == 1000


def test_slices_that_go_are_withdrawn_until_the_leader_allows_the_cut():
    before = announce(node({"0": [placed("1g.5gb", 0), placed("1g.5gb", 1), placed("2g.10gb", 4)]}))
    target = {0: (Placement("1g.5gb", 0), Placement("3g.20gb", 4))}
    withdrawn = obey(ordered(before, target))
    assert slices(withdrawn) == [
        (0, "1g.5gb", 0, None),
        (0, "1g.5gb", 1, "withdrawn"),
        (0, "2g.10gb", 4, "withdrawn"),
    ]
    assert withdrawn.in_flight
    assert f"{MIG}2g.10gb" not in withdrawn.allocatable
    assert obey(withdrawn) == withdrawn
    after = obey(replace(withdrawn, cut="17"))
    assert slices(after) == [(0, "1g.5gb", 0, None), (0, "3g.20gb", 4, None)]
    assert not after.in_flight


def test_of_equal_mps_slices_the_used_ones_stay():
    before = announce(
        node(
            {"0": [placed("10gb"), placed("10gb", used=True), placed("10gb")]},
            mode="mps",
        )
    )
    target = {0: (Placement("10gb"), Placement("20gb"))}
    withdrawn = obey(ordered(before, target))
    assert sorted((item.used, item.withdrawn) for item in withdrawn.boards[0].slices) == [
        (False, True),
        (False, True),
        (True, False),
    ]
    assert [(item.profile, item.used) for item in carry_out(withdrawn).boards[0].slices] == [
        ("10gb", True),
        ("20gb", False),
    ]
