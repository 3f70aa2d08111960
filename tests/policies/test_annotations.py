"""The annotations between leader and agent keep the exact form that the design fixes."""

import json

import pytest

from policies import names
from policies.annotations import (
    PlacedSlice,
    Placement,
    read_counts,
    read_inventory,
    read_layouts,
    read_status,
    stale_counts,
    write_inventory,
    write_spec,
    write_status,
)

# design.md section 1, as it stands there but for the shortened uuid.
INVENTORY = """[{"index": 0, "uuid": "GPU-7c1f", "model": "NVIDIA-A100-SXM4-40GB", "memoryMiB": 40536, "migCapable": true,
 "mig": true, "switch": "admin", "mode": "mig", "computeSlices": 7, "memoryUnits": 8,
 "profiles": [{"name": "1g.5gb", "id": 19, "compute": 1, "memoryUnits": 1, "memoryMiB": 4864,
               "starts": [0,1,2,3,4,5,6], "max": 7}]}]"""
STATUS = '{"0": [{"profile": "3g.20gb", "start": 4, "used": true}], "1": [{"profile": "10gb", "used": false}]}'


def test_the_inventory_of_the_design_is_read_and_written_back():
    faults = []
    boards = read_inventory({names.INVENTORY: INVENTORY}, faults)
    assert not faults
    assert (boards[0].memory_mib, boards[0].mig, boards[0].mode) == (40536, True, "mig")
    assert boards[0].profiles[0].starts == (0, 1, 2, 3, 4, 5, 6)
    assert json.loads(write_inventory(boards)[names.INVENTORY]) == json.loads(INVENTORY)


@pytest.mark.parametrize(
    ("written", "nonsense", "path"),
    [
        pytest.param('"memoryMiB": 40536', '"memoryMiB": 0', "$[0].memoryMiB", id="no-memory"),
        pytest.param('"memoryUnits": 1', '"memoryUnits": 0', "$[0].profiles[0].memoryUnits", id="slice-of-nothing"),
        pytest.param('"memoryUnits": 8', '"memoryUnits": 99999999', "$[0].memoryUnits", id="endless-board"),
        pytest.param('"starts": [0,', '"starts": [-1,', "$[0].profiles[0].starts[0]", id="before-the-board"),
        pytest.param('"name": "1g.5gb"', '"name": "weird"', "$[0].profiles[0].name", id="no-profile"),
        pytest.param('"mode": "mig"', '"mode": "mgi"', "$[0].mode", id="no-mode"),
    ],
)
def test_an_inventory_with_nonsense_is_a_fault_of_its_node_alone(written, nonsense, path):
    """These numbers are divided by and shifted by in every decision: one node's must not end those of all."""
    assert written in INVENTORY
    faults = []
    assert read_inventory({names.INVENTORY: INVENTORY.replace(written, nonsense, 1)}, faults) is None
    assert [path in each for each in faults] == [True]


@pytest.mark.parametrize("count", ["999999999999", "-3", "x"])
def test_a_count_that_no_board_has_is_a_fault_and_counts_for_nothing(count):
    key, faults = f"{names.STATUS_GPU}0-1g.5gb-free", []
    assert read_counts({key: "7"}, faults)[0][False] == {"1g.5gb": 7}
    assert read_counts({key: count}, faults) == {}
    assert faults == [f"annotation {key}: {count}: is no count from 0 to 999"]


def test_the_placements_of_the_design_are_read_and_written_back_with_their_counts():
    faults = []
    placed = read_status({names.STATUS_PLACEMENTS: STATUS}, faults)
    assert placed == {
        0: (PlacedSlice(profile="3g.20gb", start=4, used=True),),
        1: (PlacedSlice(profile="10gb", used=False),),
    }
    report = write_status(placed, "17")
    assert json.loads(report.pop(names.STATUS_PLACEMENTS)) == json.loads(STATUS)
    assert report == {
        "nos.nebuly.com/status-partitioning-plan": "17",
        "nos.nebuly.com/status-gpu-0-3g.20gb-used": "1",
        "nos.nebuly.com/status-gpu-1-10gb-free": "1",
    }


def test_an_order_names_layout_basis_plan_and_counts():
    target = {0: (Placement("1g.5gb+me", 0), Placement("1g.5gb", 5), Placement("1g.5gb", 6))}
    assert write_spec(target, {0: (Placement("7g.40gb", 0),)}, "18") == {
        "nos.nebuly.com/spec-placements": (
            '{"0":[{"profile":"1g.5gb+me","start":0},{"profile":"1g.5gb","start":5},{"profile":"1g.5gb","start":6}]}'
        ),
        "nos.nebuly.com/spec-basis": '{"0":[{"profile":"7g.40gb","start":0}]}',
        "nos.nebuly.com/spec-partitioning-plan": "18",
        "nos.nebuly.com/spec-gpu-0-1g.5gb.me": "1",
        "nos.nebuly.com/spec-gpu-0-1g.5gb": "2",
    }


def test_layouts_are_read_in_the_order_of_their_places():
    text = '{"0":[{"profile":"1g.5gb","start":6},{"profile":"3g.20gb","start":0}]}'
    layouts = read_layouts(names.SPEC_PLACEMENTS, {names.SPEC_PLACEMENTS: text}, [])
    assert layouts == {0: (Placement("3g.20gb", 0), Placement("1g.5gb", 6))}


def test_counts_of_nos_are_read_by_board_use_and_profile():
    counts = read_counts(
        {
            "nos.nebuly.com/status-gpu-0-1g.5gb.me-used": "1",
            "nos.nebuly.com/status-gpu-0-1g.5gb-free": "2",
            "nos.nebuly.com/status-partitioning-plan": "1",
        },
        [],
    )
    assert counts == {0: {True: {"1g.5gb+me": 1}, False: {"1g.5gb": 2}}}


def test_an_annotation_that_cannot_be_read_is_a_fault_that_names_it():
    faults = []
    assert read_status({names.STATUS_PLACEMENTS: '{"0": [{"profile": 3}]}'}, faults) is None
    assert faults == [
        "annotation nos.nebuly.com/status-placements: Expected `str`, got `int` - at `$[...][0].profile`",
    ]


def test_counts_that_are_no_longer_true_are_removed():
    present = {
        "nos.nebuly.com/status-gpu-0-1g.5gb-free": "2",
        "nos.nebuly.com/status-gpu-0-1g.5gb-used": "1",
        "other": "",
    }
    written = {"nos.nebuly.com/status-gpu-0-1g.5gb-used": "3"}
    assert stale_counts(names.STATUS_GPU, present, written) == {"nos.nebuly.com/status-gpu-0-1g.5gb-free": None}
