"""Boards are drawn as wide as what their slices take."""

import pytest

from console.boards import Change, draw, draw_changes
from policies.annotations import BoardInventory, write_inventory
from policies.catalogue import by_product
from policies.view import view_node
from tests.builders import A30, A100, T4, make_node


def test_mig_slices_stand_where_they_lie():
    placements = {
        "0": [
            {"profile": "1g.6gb", "start": 0, "used": True, "pod": "web/a"},
            {"profile": "2g.12gb", "start": 2, "used": False},
        ]
    }
    assert draw([view_node(make_node("gpu-1", A30, placements=placements))]).splitlines() == [
        "gpu-1  0 mig  |1g.6gb         |. . . . . . . .|2g.12gb                        |",
        "              |web/a          |               |-                              |",
    ]


def test_mps_slices_follow_each_other_and_the_rest_is_open():
    placements = {
        "0": [{"profile": "8gb", "used": True, "pod": "web/a"}, {"profile": "4gb", "used": False, "withdrawn": True}]
    }
    assert draw([view_node(make_node("t", T4, mode="mps", placements=placements))]).splitlines() == [
        "t  0 mps  |4gb            |8gb                            |. . . . . . . .|",
        "          |withdrawn      |web/a                          |               |",
    ]


def test_pods_that_take_turns_on_a_board_have_equal_parts_of_it():
    placements = {"0": [{"profile": "gpu", "used": True, "pod": "web/a"}, *[{"profile": "gpu", "used": False}] * 2]}
    assert draw([view_node(make_node("t", T4, mode="timeslicing", placements=placements))]).splitlines() == [
        "t  0 timeslicing |gpu                |gpu                |gpu                    |",
        "                 |-                  |-                  |web/a                  |",
    ]


@pytest.mark.parametrize(
    ("slices", "above", "below"),
    [
        pytest.param(
            [{"profile": "3g.20gb", "start": 4, "used": False}, {"profile": "3g.20gb", "start": 0, "used": True}],
            "|3g.20gb                        |3g.20gb                        |",
            "|used                           |-                              |",
            id="mig-parted",
        ),
        pytest.param(
            [{"profile": "3g.20gb", "start": 4, "used": used} for used in (True, False)],
            "|. . . . . . . . . . . . . . . .|3g.20gb        |3g.20gb        |",
            "|                               |-              |used           |",
            id="turns-on-a-slice",
        ),
        pytest.param(
            [{"profile": "3g.20gb", "start": 4, "used": False}, *({"profile": "gpu", "used": used} for used in (True, False))],
            "|gpu            |gpu            |3g.20gb                        |",
            "|-              |used           |-                              |",
            id="turns-on-a-slice-called-gpu",
        ),
    ],
)  # fmt: skip
def test_fixed_boards_are_marked_and_drawn_by_their_units(slices, above, below):
    entry = BoardInventory(
        index=0, uuid="GPU-0", model=A100, memory_mib=40536, profiles=by_product(A100).profiles, mig=True, fixed=True
    )
    drawn = draw([view_node(make_node("n1", annotations=write_inventory([entry]), placements={"0": slices}))])
    assert drawn.splitlines() == [f"n1  0 mig fixed {above}", f"                {below}"]


def test_nothing_is_drawn_where_there_is_no_board():
    assert draw([view_node(make_node(mode=None))]) == ""


def test_mig_slices_without_a_place_stand_one_after_another():
    """As they are where nos's counts tell of slices that no layout holds."""
    placements = {"0": [{"profile": "2g.12gb", "used": True}, {"profile": "2g.12gb", "used": False}]}
    assert draw([view_node(make_node("gpu-1", A30, placements=placements))]).splitlines() == [
        "gpu-1  0 mig  |2g.12gb                        |2g.12gb                        |",
        "              |-                              |used                           |",
    ]


def test_boards_are_as_narrow_as_the_terminal_asks_for():
    """At 80 columns no line of a node with a usual name is broken; eighths stay below each other."""
    placements = {"0": [{"profile": "1g.6gb", "start": 0, "used": True, "pod": "training/train-6d4f7-x2x9q"}]}
    node = view_node(make_node("a100-40-0", A30, placements=placements))
    assert draw([node], 80).splitlines() == [
        "a100-40-0  0 mig  |1g.6gb       |. . . . . . . . . . . . . . . . . . . . .|",
        "                  |trai~f7-x2x9q|                                         |",
    ]
    assert draw([node], 120) == draw([node])
    assert len(draw([node], 20).splitlines()[0]) == len("a100-40-0  0 mig  |") + 24


def test_of_equal_mps_slices_as_many_bear_a_mark_as_come_and_none_in_use():
    """MPS slices have no place by which they could be told apart."""

    def board(*states):
        slices = [{"profile": "4gb", "used": state == "used"} for state in states]
        return view_node(make_node("t", T4, mode="mps", placements={"0": slices})).boards[0]

    assert draw_changes([Change("t", board("used", "free"), board("used", "free", "free"))]).splitlines() == [
        "t  0 mps  |4gb            |4gb            |. . . . . . . . . . . . . . . .|",
        "          |-              |used           |                               |",
        "       -> |+4gb           |4gb            |4gb            |. . . . . . . .|",
        "          |-              |-              |used           |               |",
    ]


def test_slices_left_from_another_mode_are_as_wide_as_they_were():
    """The label says mig already, the bins of MPS are there still; 24 GB are 64 columns."""
    placements = {"0": [{"profile": "12gb", "used": True, "pod": "web/a"}]}
    assert draw([view_node(make_node("gpu-1", A30, placements=placements))]).splitlines() == [
        "gpu-1  0 mig  |12gb                           |. . . . . . . . . . . . . . . .|",
        "              |web/a                          |                               |",
    ]


def test_a_board_of_which_nobody_can_read_how_large_it_is_shows_what_is_on_it():
    slices = [
        {"profile": "1g.6gb", "start": 0, "used": True, "pod": "web/a"},
        {"profile": "2g.12gb", "start": 2, "used": False},
    ]
    node = view_node(
        make_node(
            "gpu-1",
            A30,
            annotations={"nos.nebuly.com/gpu-inventory": '[{"index": 0}, {"index": 1}]'},
            placements={"0": slices, "1": []},
        )
    )
    assert draw([node]).splitlines() == [
        "gpu-1  0 mig  |1g.6gb                         |2g.12gb                        |?|",
        "              |web/a                          |-                              | |",
        "gpu-1  1 mig  |?|",
        "              | |",
    ]
