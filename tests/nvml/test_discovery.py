"""Boards, profiles and placements by NVML alone, on drivers that name their profiles and on those that do not."""

import pytest

from reconciler.agent.driver import DriverError, NotSupported
from tests.nvml.library import needs_gcc
from tests.nvml.machine import HARDWARE, UNKNOWN
from tests.policies.facts import BOARDS, TABLES, name_of

pytestmark = needs_gcc

A100, A30, H200, B200, T4 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A30", "NVIDIA-H200", "NVIDIA-B200", "Tesla-T4"
WITH_MIG = sorted(HARDWARE.keys() & BOARDS.keys())


@pytest.mark.parametrize("named", [True, False], ids=["named-by-the-driver", "named-by-the-formula"])
@pytest.mark.parametrize("product", WITH_MIG)
def test_profiles_are_those_that_are_published(machine, driver, product, named):
    """P05, P12: the id to create with is not the enum asked by; names come out right (half up) without the driver's."""
    machine(product, named=named)
    (board,) = driver.boards()
    published = TABLES[BOARDS[product][0]]
    assert {p.name: (p.compute, p.memory_units, p.starts, p.max, p.id) for p in board.profiles} == {
        name_of(product, kind): row for kind, row in published.items()
    }
    assert (board.model, board.mig, board.fault) == (product, True, None)


@pytest.mark.parametrize(
    ("product", "name"),
    [
        pytest.param(H200, "3g.71gb", id="H200-3g-is-not-70"),
        pytest.param(B200, "1g.23gb", id="B200-1g-is-not-22"),
        pytest.param("NVIDIA-H100-NVL", "1g.12gb+me", id="H100-NVL-with-media-engines"),
        pytest.param("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "1g.24gb-me", id="RTX-PRO-without-media-engines"),
    ],
)
def test_the_formula_rounds_half_up_and_spells_suffixes_by_enum(machine, driver, product, name):
    machine(product, named=False)
    assert name in [profile.name for profile in driver.boards()[0].profiles]


def test_what_the_driver_calls_a_profile_comes_before_the_formula(machine, driver):
    """The GB200 trap: early drivers call 1g.23gb 1g.24gb. Here a board says 1g.6gb where the formula says 1g.5gb."""
    boards = machine(A100).directory / "boards"
    boards.write_text(boards.read_text().replace(" 1g.5gb\n", " 1g.6gb\n"))
    assert [profile.name for profile in driver.boards()[0].profiles][:2] == ["1g.6gb", "1g.5gb+me"]


@pytest.mark.parametrize("said", ["MIG", "1g", "1g.5gb/oops"])
def test_a_name_that_is_none_is_not_taken_from_the_driver(machine, driver, said):
    boards = machine(A100).directory / "boards"
    boards.write_text(boards.read_text().replace(" 1g.5gb\n", f" {said}\n"))
    assert driver.boards()[0].profiles[0].name == "1g.5gb"


@pytest.mark.parametrize(
    ("identifier", "name"),
    [pytest.param(19, "1g.5gb+gfx", id="of-one-id"), pytest.param(99, "1g.5gb", id="of-one-name")],
)
def test_enums_that_answer_with_one_profile_count_once(machine, driver, identifier, name):
    boards = machine(A100).directory / "boards"
    boards.write_text(f"{boards.read_text()}profile 17 {identifier} 1 1 7 4864 14 1 0,1,2,3,4,5,6 {name}\n")
    found = [(profile.id, profile.name) for profile in driver.boards()[0].profiles]
    assert len(found) == 7
    assert found[0] == (19, "1g.5gb")


def test_models_are_mixed_and_indices_are_nvmls(machine, driver):
    uuids = machine(A30, T4, H200, mig=[True, False, False]).uuids
    found = [(b.index, b.uuid, b.model, b.mig_capable, b.mig, b.switch, b.memory_mib) for b in driver.boards()]
    assert found == [
        (0, uuids[0], "NVIDIA-A30", True, True, "admin", 24576),
        (1, uuids[1], "Tesla-T4", False, False, "admin", 15360),
        (2, uuids[2], "NVIDIA-H200", True, False, "live", 143771),
    ]
    assert [(b.compute_slices, b.memory_units) for b in driver.boards()] == [(4, 4), (0, 0), (7, 8)]


def test_generations_are_told_by_cudas_compute_capability(machine, driver):
    """Of a board before Volta no table has to know the name, for nobody to plan more clients on it than it serves."""
    machine("Tesla-P40", T4, B200, mig=False)
    assert [board.compute_capability for board in driver.boards()] == ["6.1", "7.5", "10.0"]


def test_what_a_driver_holds_back_for_itself_changes_no_name_and_no_total(machine, driver):
    """A15: used and free of version 2 leave out what is reserved; only the total counts here, which is one and the same."""
    one = machine(A100, named=False)
    one.fail("nvmlDeviceGetMemoryInfo_v2", 13)
    assert (driver.boards()[0].memory_mib, driver.boards()[0].profiles[0].name) == (40960, "1g.5gb")


@pytest.mark.parametrize(
    ("function", "model", "mode"),
    [
        pytest.param("nvmlDeviceGetName", "unknown", "timeslicing", id="no-name"),
        pytest.param("nvmlDeviceGetUUID", "unknown", "timeslicing", id="no-uuid"),
        pytest.param("nvmlDeviceGetMigMode", A100, None, id="no-mode"),
        pytest.param("nvmlDeviceGetCudaComputeCapability", A100, None, id="no-generation"),
        pytest.param("nvmlDeviceGetGpuInstanceProfileInfoV", A100, None, id="no-profiles"),
        pytest.param("nvmlDeviceGetGpuInstancePossiblePlacements_v2", A100, None, id="no-placements"),
    ],
)
def test_a_board_that_cannot_be_described_says_why_and_is_asked_again(machine, driver, function, model, mode):
    """What is not known of it is not made up: of no model, it serves nobody as a board of little memory."""
    one = machine(A100, A100, A100)
    one.fail(function, UNKNOWN, one.uuids[1])
    why = "describe GPU 1: Unknown Error"
    found = driver.boards()
    assert [(board.index, board.fault) for board in found] == [(0, None), (1, why), (2, None)]
    assert (found[1].model, found[1].mode, found[1].profiles) == (model, mode, ())
    with pytest.raises(DriverError, match=why):
        driver.slices(found[1].uuid)
    one.mend()
    assert [(board.uuid, board.fault) for board in driver.boards()] == [(uuid, None) for uuid in one.uuids]
    one.xid(one.uuids[1], 79)
    assert driver.boards()[1].fault, "it is watched like the others"


@pytest.mark.parametrize("code", [2, 3], ids=["INVALID_ARGUMENT", "NOT_SUPPORTED"])
def test_a_board_in_mig_mode_of_which_no_profile_is_told_is_asked_again(machine, driver, code):
    one = machine(A100)
    one.fail("nvmlDeviceGetGpuInstanceProfileInfoV", code)
    assert driver.boards()[0].fault == "describe GPU 0: MIG mode is on, but the driver names no profile"
    one.mend()
    assert [(board.fault, board.mig, len(board.profiles)) for board in driver.boards()] == [(None, True, 7)]


def test_a_board_that_is_in_mig_mode_after_all_is_asked_again(machine, driver):
    """Said once to know no MIG mode, it would be one that cannot be cut as long as the agent runs."""
    one = machine(A100)
    one.fail("nvmlDeviceGetMigMode", 3)
    assert [board.mig_capable for board in driver.boards()] == [False]
    one.mend()
    assert [(board.fault, board.mig, len(board.profiles)) for board in driver.boards()] == [(None, True, 7)]


def test_a_driver_from_before_mig_has_boards_without_it(machine, driver):
    one = machine(A100, mig=False)
    one.fail("nvmlDeviceGetMigMode", 13)
    assert [(board.mig_capable, board.mig, board.profiles, board.fault) for board in driver.boards()] == [
        (False, False, (), None)
    ]


def test_a_driver_that_is_too_old_to_tell_placements_says_so(machine, driver):
    machine(A100).fail("nvmlDeviceGetGpuInstancePossiblePlacements_v2", 13)
    assert driver.boards()[0].fault == "describe GPU 0: Function Not Found; this driver is too old for it"


@pytest.mark.parametrize("code", [13, 25], ids=["no-such-function", "another-version"])
def test_a_driver_that_knows_no_second_version_of_profiles_is_asked_for_the_first(machine, driver, code):
    """A15."""
    machine(A100).fail("nvmlDeviceGetGpuInstanceProfileInfoV", code)
    assert [profile.name for profile in driver.boards()[0].profiles][0::6] == ["1g.5gb", "7g.40gb"]


def test_an_agent_without_rights_says_what_it_lacks(machine, driver):
    one = machine(A100)
    one.forbid()
    (board,) = driver.boards()
    assert board.fault == (
        "describe GPU 0: Insufficient Permissions; the agent must run as root, with the MIG capabilities of the node"
    )
    one.mend()
    assert driver.boards()[0].fault is None


def test_nvml_is_let_go_of_where_it_knows_no_board_and_where_it_does_not_count(machine, driver):
    one = machine()
    with pytest.raises(NotSupported):
        driver.boards()
    assert one.closed()
    one.fail("nvmlDeviceGetCount_v2", UNKNOWN)
    with pytest.raises(DriverError):
        driver.boards()
    assert one.closed()
