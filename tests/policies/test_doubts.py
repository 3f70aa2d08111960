"""What an agent, or somebody's hand, has written of boards, and cannot be true (breaks no plan, and is told)."""

import pytest
from msgspec.structs import replace

from policies.annotations import BoardInventory, write_inventory
from policies.catalogue import by_product
from policies.settle import settle
from policies.view import view_node
from tests.builders import A100, make_node
from tests.policies.cluster import cluster, gated, node

MODEL = by_product(A100)
BOARD = BoardInventory(
    index=0, uuid="GPU-0", model=A100, memory_mib=MODEL.memory_mib, profiles=MODEL.profiles, mig=True, memory_units=8
)
SMALL, *_, LARGEST = MODEL.profiles
COUNTS = "annotations nos.nebuly.com/status-gpu-"
INVENTORY, STATUS = "annotation nos.nebuly.com/gpu-inventory", "annotation nos.nebuly.com/status-placements"


def free(profile, start):
    return {"profile": profile, "start": start, "used": False}


def seen(*inventory, placements=None, notes=None):
    return view_node(make_node("n1", annotations=write_inventory(inventory) | (notes or {}), placements=placements))


@pytest.mark.parametrize(
    ("inventory", "fault"),
    [
        pytest.param(
            (BOARD, replace(BOARD, uuid="GPU-1")),
            f"{INVENTORY}: index: 0: 2 boards have it; the first counts",
            id="index",
        ),
        pytest.param(
            (replace(BOARD, profiles=(*MODEL.profiles, SMALL)),),
            f"{INVENTORY}: board 0: profile: {SMALL.name}: is there 2 times",
            id="profile",
        ),
        pytest.param(
            (replace(BOARD, profiles=(replace(SMALL, starts=(6, 9, 63)), LARGEST)),),
            f"{INVENTORY}: board 0: profile: {SMALL.name}: would end beyond the board's 8 memory units at start 9, 63",
            id="start",
        ),
        pytest.param(
            (replace(BOARD, profiles=(replace(SMALL, starts=(0, 4, 4)), LARGEST)),),
            f"{INVENTORY}: board 0: profile: {SMALL.name}: has start 4 more than once",
            id="start-twice",
        ),
        pytest.param(
            (replace(BOARD, profiles=(LARGEST,), compute_slices=4),),
            f"{INVENTORY}: board 0: profile: 7g.40gb: has 7 compute slices, more than the board's 4",
            id="compute",
        ),
    ],
)
def test_boards_that_cannot_be_are_told_of_and_not_cut(inventory, fault):
    (board,) = (found := seen(*inventory)).boards
    assert found.faults == (fault,)
    assert (board.uuid, board.cuttable) == ("GPU-0", False)


def test_a_board_whose_index_no_node_reaches_is_told_of_and_not_cut_and_its_neighbour_is():
    found = seen(BOARD, replace(BOARD, index=10**9, uuid="GPU-1"))
    assert found.faults == (f"{INVENTORY}: index: 1000000000: is above 999",)
    assert [board.cuttable for board in found.boards] == [True, False]


def test_boards_that_have_one_uuid_are_told_of_and_not_cut():
    """By the UUID their agent is told what to cut, and pods what is theirs."""
    found = seen(BOARD, replace(BOARD, index=1))
    path = f"{INVENTORY}: board"
    assert found.faults == (f"{path} 0: uuid: GPU-0: 2 boards have it", f"{path} 1: uuid: GPU-0: 2 boards have it")
    assert [board.cuttable for board in found.boards] == [False, False]


@pytest.mark.parametrize(
    ("placements", "fault"),
    [
        pytest.param(
            {"0": [free("3g.20gb", 4), free("2g.10gb", 4)]},
            f"{STATUS}: board 0: 2g.10gb at 4: overlaps with another slice",
            id="overlap",
        ),
        pytest.param(
            {"0": [free("1g.5gb", 6), free("1g.5gb", 6)]},
            f"{STATUS}: board 0: 1g.5gb at 6: overlaps with another slice",
            id="twice",
        ),
        pytest.param(
            {"0": [free("5g.25gb", 0)]},
            f"{STATUS}: board 0: 5g.25gb at 0: NVIDIA-A100-SXM4-40GB has no such profile",
            id="profile",
        ),
        pytest.param(
            {"0": [free("3g.20gb", 6)]},
            f"{STATUS}: board 0: 3g.20gb at 6: ends beyond the board's 8 memory units",
            id="beyond",
        ),
        pytest.param(
            {"0": [free("1g.5gb", start) for start in range(8)]},
            f"{STATUS}: board 0: its slices have 8 compute slices, more than the board's 7",
            id="compute",
        ),
        pytest.param(
            {"0": [{"profile": "3g.20gb", "used": False}]},
            f"{STATUS}: board 0: 3g.20gb: has no start, and is no slice of MPS",
            id="no-start",
        ),
        pytest.param(
            {"0": [{"profile": "10gb", "used": False}, {"profile": "40gb", "used": True}]},
            f"{STATUS}: board 0: its slices have 50 GB, more than the board's 40",
            id="gb",
        ),
        pytest.param(
            {"0": [{"profile": "0gb", "used": False}]},
            f"{STATUS}: board 0: 0gb: has no start, and is no slice of MPS",
            id="0gb",
        ),
    ],
)
def test_slices_that_cannot_be_are_told_of_and_their_board_is_not_cut(placements, fault):
    found = seen(BOARD, placements=placements)
    assert found.faults == (fault,)
    assert not found.boards[0].cuttable


TURN = {"profile": "gpu", "used": False}


@pytest.mark.parametrize(
    ("how", "slices"),
    [
        pytest.param({"mode": "timeslicing"}, [{"profile": "gpu.shared", "used": True}] * 4, id="turns"),
        pytest.param({"mode": "timeslicing", "fixed": True}, [TURN] * 4, id="turns-called-gpu"),
        pytest.param({"mode": "timeslicing", "fixed": True}, [{"profile": "gpu-turn", "used": False}], id="renamed"),
        pytest.param({"mode": "mps", "fixed": True}, [TURN] * 4, id="mps-called-gpu"),
        pytest.param({"mode": "mig", "fixed": True}, [TURN] * 7, id="mig-of-strategy-single"),
        pytest.param({"mode": "mig", "fixed": True}, [free("1g.5gb", 6), free("1g.5gb", 6)], id="turns-on-a-mig-slice"),
    ],
)
def test_devices_that_are_listed_as_pods_ask_for_them_are_nothing_to_doubt(how, slices):
    """As docs/adr/0024 has them and docs/fixed-layouts.md promises; such boards are not cut for another reason."""
    found = seen(replace(BOARD, **how), placements={"0": slices})
    assert found.faults == ()
    assert not found.boards[0].cuttable
    assert len(found.boards[0].slices) == len(slices)


def test_turns_are_nothing_to_doubt_where_only_the_label_says_the_mode():
    """What the sandbox's node t4:timeslicing=1 reports, before its boards are known."""
    turns = {"0": [{"profile": "gpu.shared", "used": False}] * 4}
    told = view_node(make_node("t4", "Tesla-T4", mode="timeslicing", placements=turns))
    assert told.faults == ()


def test_slices_of_a_board_that_is_not_there_are_told_of():
    found = seen(BOARD, placements={"0": [], "99": [free("1g.5gb", 6)]})
    assert found.faults == (f"{STATUS}: board: 99: the node has no such board",)
    assert found.boards[0].cuttable


@pytest.mark.parametrize(
    ("counts", "faults"),
    [
        pytest.param(
            {"0-7g.40gb-used": "2"}, (f"{COUNTS}0-...: no layout of the board has 2 x 7g.40gb",), id="too-many"
        ),
        pytest.param(
            {"0-4g.20gb-used": "1", "0-4g.20gb-free": "1", "0-1g.5gb-free": "1"},
            (f"{COUNTS}0-...: no layout of the board has 1 x 1g.5gb and 2 x 4g.20gb",),
            id="used-and-free",
        ),
        pytest.param(
            {"0-10gb-used": "1"}, (f"{COUNTS}0-...: no layout of the board has 1 x 10gb",), id="of-another-mode"
        ),
        pytest.param({"7-1g.5gb-used": "1"}, (f"{COUNTS}7-...: the node has no such board",), id="no-board"),
        pytest.param({"7-1g.5gb-used": "0", "0-1g.5gb-used": "7"}, (), id="none-there-and-as-many-as-can-be"),
    ],
)
def test_counts_that_cannot_be_are_told_of_and_their_board_is_not_cut(counts, faults):
    found = seen(BOARD, notes={f"nos.nebuly.com/status-gpu-{key}": count for key, count in counts.items()})
    assert found.faults == faults
    assert found.boards[0].cuttable is not any(f"{COUNTS}0" in fault for fault in faults)


def test_more_slices_than_a_board_has_clients_are_told_of():
    large = replace(BOARD, model="NVIDIA-A100-SXM4-80GB", memory_mib=81920, mode="mps")
    found = seen(large, placements={"0": [{"profile": "1gb", "used": False}] * 49})
    assert found.faults == (f"{STATUS}: board 0: 49 slices are more than the 48 clients that a board serves",)


def test_one_order_does_not_serve_two_boards_of_one_index():
    """Two pods for whole boards: one is cut on the other node, and the other waits."""
    notes = write_inventory((BOARD, replace(BOARD, uuid="GPU-1")))
    odd = node("n1", placements={"0": []}, annotations=notes)
    decision = settle(
        cluster([odd, node("n2", placements={"0": []})], [gated("a/p", "7g.40gb"), gated("a/q", "7g.40gb")])
    )
    assert [layout.node for layout in decision.layouts] == ["n2"]


def test_what_is_in_use_on_them_counts_all_the_same():
    used = {"profile": "3g.20gb", "start": 4, "used": True, "pod": "a/p"}
    found = seen(BOARD, BOARD, placements={"0": [used]})
    assert [item.pod for item in found.boards[0].slices] == ["a/p"]
