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
HELD = PlacedSlice(profile="3g.20gb", start=4, used=True)
STATUS = '{"0": [{"profile": "3g.20gb", "start": 4, "used": true}], "1": [{"profile": "10gb", "used": false}]}'


def test_the_inventory_of_the_design_is_read_and_written_back():
    faults = []
    boards = read_inventory({names.INVENTORY: INVENTORY}, faults)
    assert not faults
    assert (boards[0].memory_mib, boards[0].mig, boards[0].mode) == (40536, True, "mig")
    assert boards[0].profiles[0].starts == (0, 1, 2, 3, 4, 5, 6)
    assert json.loads(write_inventory(boards)[names.INVENTORY]) == json.loads(INVENTORY)


BOARD = "annotation nos.nebuly.com/gpu-inventory: board 0"


@pytest.mark.parametrize(
    ("written", "nonsense", "faults"),
    [
        pytest.param('"memoryMiB": 40536', '"memoryMiB": 0', ["memoryMiB: 0: must be from 1 to 16777216"], id="no-memory"),
        pytest.param('"memoryUnits": 1', '"memoryUnits": 0',
                     ["profiles[0].memoryUnits: 0: must be from 1 to 64"], id="slice-of-nothing"),
        pytest.param('"memoryUnits": 8', '"memoryUnits": 99999999',
                     ["memoryUnits: 99999999: must be from 0 to 64"], id="endless-board"),
        pytest.param('"starts": [0,', '"starts": [-1,',
                     ["profiles[0].starts[0]: -1: must be from 0 to 63"], id="before-the-board"),
        pytest.param('"name": "1g.5gb"', '"name": "weird"',
                     [r"profiles[0].name: weird: must match ^[1-9]\d?g\.[1-9]\d{0,4}gb([+-].+)?$"], id="no-profile"),
        pytest.param('"mode": "mig"', '"mode": "mgi"', ["mode: mgi: must match ^(mig|mps|timeslicing)$"], id="no-mode"),
        pytest.param('"max": 7', '"max": -7', ["profiles[0].max: -7: must be at least 0"], id="less-than-none"),
        pytest.param('"uuid": "GPU-7c1f", "model": "NVIDIA-A100-SXM4-40GB", "memoryMiB": 40536', '"model": 7, "memoryMiB": "x"',
                     ["uuid: missing: text is needed", "model: 7: must be text, not a number: quote it",
                      "memoryMiB: x: must be a whole number, not text"], id="every-fault-at-once"),
    ],
)  # fmt: skip
def test_of_an_entry_that_cannot_be_read_every_fault_is_told_and_the_others_count(written, nonsense, faults):
    """These numbers are divided by and shifted by in every decision: one board's must not end those of all."""
    assert written in INVENTORY
    beside = INVENTORY.replace('"index": 0', '"index": 1')
    both, doubts = f"{INVENTORY.replace(written, nonsense, 1)[:-1]},{beside[1:]}", []
    assert [board.index for board in read_inventory({names.INVENTORY: both}, doubts)] == [1]
    assert doubts == [(0, f"{BOARD}: {fault}") for fault in faults]


@pytest.mark.parametrize(
    ("written", "doubt"),
    [
        pytest.param('[{"uuid": "GPU-7c1f", "model": "M", "memoryMiB": 1}]',
                     ": [0]: index: missing: a whole number is needed", id="no-index"),
        pytest.param('[{"index": -1, "uuid": "GPU-7c1f", "model": "M", "memoryMiB": 1}]',
                     ": [0]: index: -1: must be at least 0", id="negative-index"),
        pytest.param("[7]", ": [0]: 7: must be an object, not a number", id="no-entry"),
        pytest.param('{"0": {}}', ': {"0":{}}: must be a list of boards', id="no-list"),
        pytest.param("[{]", ": [{]: is no JSON: JSON is malformed: object keys must be strings (byte 2)", id="no-json"),
        pytest.param('[{"index": 0, "x": ' + "[" * 5000,
                     f': [{{"index": 0, "x": {"[" * 58}...: is no JSON: maximum recursion depth exceeded while '
                     "deserializing an object", id="no-end"),
    ],
)  # fmt: skip
def test_what_is_told_of_no_board_is_a_doubt_about_none(written, doubt):
    doubts = []
    assert read_inventory({names.INVENTORY: written}, doubts) == ()
    assert doubts == [(None, f"annotation nos.nebuly.com/gpu-inventory{doubt}")]


@pytest.mark.parametrize("count", ["999999999999", "-3", "x"])
def test_a_count_that_no_board_has_is_a_doubt_about_its_board_and_counts_for_nothing(count):
    key, doubts = f"{names.STATUS_GPU}3-1g.5gb-free", []
    assert read_counts({key: "7"}, doubts)[3][False] == {"1g.5gb": 7}
    assert read_counts({key: count}, doubts) == {}
    assert doubts == [(3, f"annotation {key}: {count}: is no count from 0 to 999")]


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


STATUS_OF = "annotation nos.nebuly.com/status-placements"


@pytest.mark.parametrize(
    ("entry", "slices", "faults"),
    [
        pytest.param('[{"profile": "3g.20gb", "start": 4, "used": "no"}]', (HELD,),
                     ["[0].used: no: must be true or false, not text"], id="use"),
        pytest.param('[{"profile": "3g.20gb", "start": 4, "used": false, "pod": 7}]', (HELD,),
                     ["[0].pod: 7: must be text, not a number: quote it"], id="holder"),
        pytest.param('[{"profile": "3g.20gb", "start": 64, "used": false}]', (PlacedSlice(profile="3g.20gb", used=True),),
                     ["[0].start: 64: must be from 0 to 63"], id="start"),
        pytest.param('[{"profile": 3, "used": false}, {"profile": "1g.5gb", "start": 0, "used": false}]',
                     (PlacedSlice(profile="1g.5gb", start=0, used=False),),
                     ["[0].profile: 3: must be text, not a number: quote it"], id="profile-beside-one-that-is-right"),
        pytest.param('{"profile": "3g.20gb"}', (), ["{'profile': '3g.20gb'}: must be a list, not an object"],
                     id="no-list"),
    ],
)  # fmt: skip
def test_a_slice_of_which_not_all_can_be_read_is_held_and_the_other_boards_are_as_they_say(entry, slices, faults):
    doubts = []
    text = f'{{"0": {entry}, "1": [{{"profile": "10gb", "used": false}}]}}'
    placed = read_status({names.STATUS_PLACEMENTS: text}, doubts)
    assert placed == {0: slices, 1: (PlacedSlice(profile="10gb", used=False),)}
    assert doubts == [(0, f"{STATUS_OF}: board 0: {fault}") for fault in faults]


@pytest.mark.parametrize(
    ("text", "placed", "doubt"),
    [
        pytest.param('{"x": [], "1": []}', {1: ()}, "board: x: is no index of a board", id="no-index"),
        pytest.param('{"-1": [], "1": []}', {1: ()}, "board: -1: is no index of a board", id="negative-index"),
        pytest.param("[]", None, "[]: must be an object with the indices of boards", id="no-object"),
        pytest.param("", None, '"": is no JSON: Input data was truncated', id="nothing"),
    ],
)
def test_what_is_told_of_slices_and_of_no_board_may_be_of_any(text, placed, doubt):
    doubts = []
    assert read_status({names.STATUS_PLACEMENTS: text}, doubts) == placed
    assert doubts == [(None, f"{STATUS_OF}: {doubt}")]


def test_of_an_order_the_boards_count_of_which_the_layout_can_be_read_as_a_whole():
    """Half a layout would destroy the other half."""
    text = '{"0": [{"profile": "1g.5gb", "start": 6}, {"profile": "1g.5gb", "start": 99}], "1": [{"profile": "10gb"}]}'
    doubts = []
    assert read_layouts(names.SPEC_PLACEMENTS, {names.SPEC_PLACEMENTS: text}, doubts) == {1: (Placement("10gb"),)}
    path = "annotation nos.nebuly.com/spec-placements: board 0"
    assert doubts == [(0, f"{path}: [1].start: 99: must be from 0 to 63")]


def test_counts_that_are_no_longer_true_are_removed():
    present = {
        "nos.nebuly.com/status-gpu-0-1g.5gb-free": "2",
        "nos.nebuly.com/status-gpu-0-1g.5gb-used": "1",
        "other": "",
    }
    written = {"nos.nebuly.com/status-gpu-0-1g.5gb-used": "3"}
    assert stale_counts(names.STATUS_GPU, present, written) == {"nos.nebuly.com/status-gpu-0-1g.5gb-free": None}
