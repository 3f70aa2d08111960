"""Instances on real NVML calls: which compute instance, what is asked how, who holds what, what a reboot leaves."""

import json
from concurrent.futures import ThreadPoolExecutor, wait

import pynvml
import pytest

from reconciler.agent.driver import (
    DriverError,
    GpuIsLost,
    InsufficientResources,
    InUse,
    InvalidArgument,
    NoPermission,
    NotSupported,
    Slice,
)
from reconciler.agent.mps.bins import Bins
from reconciler.agent.mps.usage import Client
from reconciler.agent.nvml import NvmlDriver
from reconciler.agent.nvml.mps import MpsBoards
from tests.mps.daemons import NoProcesses
from tests.nvml.library import needs_gcc
from tests.nvml.machine import IN_USE, INSUFFICIENT_RESOURCES, LOST, NO_PERMISSION, NOT_SUPPORTED, UNKNOWN

pytestmark = needs_gcc

A100, A30, H100, T4 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A30", "NVIDIA-H100-80GB-HBM3", "Tesla-T4"
CREATE, COMPLETE = "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"
REMOVE = "nvmlGpuInstanceDestroy"


def compute_profiles(board):
    """Return the compute profiles of what is on a board, by NVML itself."""
    device = pynvml.nvmlDeviceGetHandleByUUID(board)
    found = []
    for index in range(7):
        try:
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        except pynvml.NVMLError_NotFound:
            break
        instance = pynvml.nvmlDeviceGetGpuInstanceById(device, pynvml.nvmlDeviceGetGpuInstanceId(mig))
        buffer, count = (pynvml.c_nvmlComputeInstance_t * 8)(), pynvml.c_uint(8)
        for kind in (0, 1, 2, 3, 4):
            pynvml.nvmlGpuInstanceGetComputeInstances(instance, kind, buffer, pynvml.byref(count))
            found += [pynvml.nvmlComputeInstanceGetInfo(one).profileId for one in buffer[: count.value]]
    return found


@pytest.mark.parametrize(
    ("product", "item", "kind"),
    [
        pytest.param(
            A100, Slice("7g.40gb", 0), pynvml.NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE, id="7g-not-its-nvlink-twin"
        ),
        pytest.param(A100, Slice("3g.20gb", 4), pynvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, id="3g"),
        pytest.param(A100, Slice("1g.5gb", 6), pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, id="1g"),
        pytest.param(
            H100, Slice("1g.20gb", 2), pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1, id="all-26-processors-not-16"
        ),
    ],
)
def test_the_compute_instance_takes_all_of_its_gpu_instance(machine, driver, product, item, kind):
    (board,) = machine(product).uuids
    driver.create(board, item)
    assert driver.slices(board) == (item,)
    assert compute_profiles(board) == [kind]


def test_nothing_is_created_where_nvml_would_choose_and_no_count_is_asked_with_an_empty_buffer(machine, driver):
    """P18, A12. The mock answers an empty buffer with INVALID_ARGUMENT, as NVML does."""
    one = machine(A100)
    one.record()
    driver.create(one.uuids[0], Slice("4g.20gb", 0))
    assert driver.slices(one.uuids[0]) == (Slice("4g.20gb", 0),)
    assert CREATE in one.calls()
    assert "nvmlDeviceCreateGpuInstance" not in one.calls()


def test_a_compute_instance_goes_before_its_gpu_instance(machine, driver):
    one = machine(A100)
    driver.create(one.uuids[0], Slice("4g.20gb", 0))
    one.record()
    driver.destroy(one.uuids[0], Slice("4g.20gb", 0))
    assert [call for call in one.calls() if call.endswith("Destroy")] == ["nvmlComputeInstanceDestroy", REMOVE]


@pytest.mark.parametrize(
    ("function", "code", "error", "text"),
    [
        pytest.param(CREATE, IN_USE, InUse, "create 3g.20gb at 4: In use by another client", id="in-use"),
        pytest.param(CREATE, INSUFFICIENT_RESOURCES, InsufficientResources, "Insufficient Resources", id="no-room"),
        pytest.param(CREATE, NOT_SUPPORTED, NotSupported, "create 3g.20gb at 4: Not Supported", id="not-supported"),
        pytest.param(CREATE, LOST, GpuIsLost, "create 3g.20gb at 4: GPU is lost", id="lost"),
        pytest.param(CREATE, NO_PERMISSION, NoPermission, "the agent must run as root", id="no-permission"),
        pytest.param(CREATE, 13, DriverError, "Function Not Found; this driver is too old for it", id="old-driver"),
        pytest.param(CREATE, UNKNOWN, DriverError, "create 3g.20gb at 4: Unknown Error", id="unknown"),
        pytest.param(
            COMPLETE,
            NOT_SUPPORTED,
            NotSupported,
            "create the compute instance of 3g.20gb at 4",
            id="no-compute-instance",
        ),
        pytest.param(
            "nvmlGpuInstanceGetComputeInstanceProfileInfo",
            3,
            DriverError,
            "the driver has no compute profile for 3g.20gb",
            id="no-profile",
        ),
    ],
)
def test_errors_are_nvmls_with_what_was_asked_and_nothing_is_left(machine, driver, function, code, error, text):
    one = machine(A100, A100)
    driver.boards()
    one.fail(function, code, one.uuids[0])
    with pytest.raises(error, match=text):
        driver.create(one.uuids[0], Slice("3g.20gb", 4))
    one.mend()
    assert driver.slices(one.uuids[0]) == driver.orphans(one.uuids[0]) == ()


@pytest.mark.parametrize("code", [2, 3], ids=["INVALID_ARGUMENT", "NOT_SUPPORTED"])
def test_an_instance_is_no_orphan_because_what_is_in_it_could_not_be_asked_for(machine, driver, code):
    """The first of a profile may go while it is asked what compute instances there can be: taken at its word, all would go."""
    one = machine(A100)
    (board,) = one.uuids
    driver.create(board, Slice("3g.20gb", 4))
    driver.close()
    one.fail("nvmlGpuInstanceGetComputeInstanceProfileInfo", code)
    for ask in (driver.orphans, driver.slices):
        with pytest.raises(DriverError, match=r"the driver has no compute profile for 3g\.20gb"):
            ask(board)
    one.mend()
    assert (driver.slices(board), driver.orphans(board)) == ((Slice("3g.20gb", 4),), ())


def test_an_instance_that_goes_while_it_is_asked_does_not_speak_for_the_others(machine, driver, monkeypatch):
    """It has told of 1 slice and not yet of 3: kept, that would make an orphan of the instance that stays."""
    one = machine(A100)
    (board,) = one.uuids
    goes, stays = Slice("3g.20gb", 0), Slice("3g.20gb", 4)
    for item in (goes, stays):
        driver.create(board, item)
    other = NvmlDriver()
    asked = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo

    def ask(instance, kind, *args, **options):
        if kind == 1:
            monkeypatch.undo()
            driver.destroy(board, goes)
        return asked(instance, kind, *args, **options)

    monkeypatch.setattr(pynvml, "nvmlGpuInstanceGetComputeInstanceProfileInfo", ask)
    with pytest.raises(DriverError, match="list the instances of GPU 0"):
        other.orphans(board)
    assert (other.slices(board), other.orphans(board)) == ((stays,), ())


def test_what_cannot_be_undone_is_an_orphan_and_both_failures_are_said(machine, driver):
    one = machine(A100)
    one.fail(COMPLETE, UNKNOWN)
    one.fail(REMOVE, IN_USE)
    with pytest.raises(DriverError, match="Unknown Error; and removing its GPU instance: In use by another client"):
        driver.create(one.uuids[0], Slice("3g.20gb", 4))
    assert (driver.slices(one.uuids[0]), driver.orphans(one.uuids[0])) == ((), (Slice("3g.20gb", 4),))
    one.mend()
    driver.destroy(one.uuids[0], Slice("3g.20gb", 4))
    assert driver.orphans(one.uuids[0]) == ()


def test_who_holds_a_slice_or_a_board_is_named(machine, driver):
    """A05."""
    one = machine(A100, H100, mig=[True, False])
    board, other = one.uuids
    driver.create(board, Slice("3g.20gb", 4))
    driver.create(board, Slice("1g.5gb", 0))
    numbers = one.numbers(board)
    one.hold(board, numbers[9, 4], 4711)
    one.hold(board, numbers[19, 0], 12)
    with pytest.raises(InUse, match=r"3g\.20gb at 4: In use by another client \(process 4711\)$"):
        driver.destroy(board, Slice("3g.20gb", 4))
    one.hold(other, -1, 99)
    with pytest.raises(InUse, match=r"switch MIG mode of GPU 1 on: In use by another client \(process 99\)$"):
        driver.enable_mig(other)


def test_a_monitor_that_holds_a_gpu_instance_leaves_it_an_orphan_until_it_lets_go(machine, driver):
    one = machine(A100)
    driver.create(one.uuids[0], Slice("3g.20gb", 4))
    one.fail(REMOVE, IN_USE)
    with pytest.raises(InUse):
        driver.destroy(one.uuids[0], Slice("3g.20gb", 4))
    assert driver.orphans(one.uuids[0]) == (Slice("3g.20gb", 4),)
    one.mend()
    driver.destroy(one.uuids[0], Slice("3g.20gb", 4))
    assert driver.slices(one.uuids[0]) == driver.orphans(one.uuids[0]) == ()


def test_an_instance_that_a_person_has_divided_is_neither_offered_nor_removed(machine, driver):
    (board,) = machine(A100).uuids
    driver.boards()
    device = pynvml.nvmlDeviceGetHandleByUUID(board)
    instance = pynvml.nvmlDeviceCreateGpuInstance(device, 9)
    for _ in range(2):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE)
    assert driver.slices(board) == driver.orphans(board) == ()
    with pytest.raises(InvalidArgument):
        driver.destroy(board, Slice("3g.20gb", 0))
    with pytest.raises(InsufficientResources, match=r"2g\.10gb at 2 overlaps 3g\.20gb at 0"):
        driver.create(board, Slice("2g.10gb", 2))
    with pytest.raises(InvalidArgument) as caught:
        driver.create(board, Slice("3g.20gb", 0))
    number = pynvml.nvmlGpuInstanceGetInfo(instance).id
    assert str(caught.value) == (
        "3g.20gb at 0 cannot be made: somebody has divided the GPU instance at its place among 2 compute instances; remove them "
        f"and it: nvidia-smi mig -dci -i 0 -gi {number}; nvidia-smi mig -dgi -i 0 -gi {number}"
    )
    driver.create(board, Slice("3g.20gb", 4))


# MIG mode ---------------------------------------------------------------------------------------------------------------


def test_a_mode_that_is_only_pending_is_not_on_until_the_board_has_been_reset(machine, driver):
    one = machine(A30, mig=False)
    driver.boards()
    pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByUUID(one.uuids[0]), 1)
    assert driver.boards()[0].mig is False
    one.reboot()
    assert driver.boards()[0].mig is True


def test_one_board_is_switched_and_no_other(machine, driver):
    """A10."""
    one = machine(H100, H100, mig=False)
    one.record()
    driver.enable_mig(one.uuids[1])
    assert [board.mig for board in driver.boards()] == [False, True]
    assert one.calls().count("nvmlDeviceSetMigMode") == 1


# What containers get ----------------------------------------------------------------------------------------------------


def test_a_slice_has_the_uuid_of_its_mig_device_which_a_reboot_may_change(machine, driver):
    one = machine(A100, T4)
    board, plain = one.uuids
    items = [Slice("3g.20gb", 4), Slice("1g.5gb", 0), Slice("1g.5gb", 1)]
    for item in items:
        driver.create(board, item)
    before = [driver.device_uuid(board, item) for item in items]
    assert len(set(before)) == 3
    assert all(uuid.startswith("MIG-") for uuid in before)
    driver.destroy(board, items[1])
    assert driver.device_uuid(board, items[2]) == before[2], "by identity, never by position (P14)"
    with pytest.raises(InvalidArgument, match=r"there is no 1g\.5gb at 0"):
        driver.device_uuid(board, items[1])
    one.reboot()
    assert driver.slices(board) == ()
    assert driver.boards()[0].mig is True, "the mode is kept"
    driver.create(board, items[0])
    assert driver.device_uuid(board, items[0]) not in before
    assert driver.device_uuid(plain, Slice("10gb")) == plain


def test_a_device_is_named_while_another_is_removed(machine, driver, monkeypatch):
    """A17: an Allocate in the middle of a cut. What is removed is listed already, and must not be looked at then."""
    (board,) = machine(A100).uuids
    held, doomed = Slice("1g.5gb", 6), Slice("1g.5gb", 0)
    for item in (doomed, held):
        driver.create(board, item)
    named = driver.device_uuid(board, held)
    look = pynvml.nvmlGpuInstanceGetInfo
    with ThreadPoolExecutor(1) as pool:
        removals = []

        def remove_meanwhile(instance):
            if not removals:
                removals.append(pool.submit(driver.destroy, board, doomed))
                wait(removals, timeout=0.2)
            return look(instance)

        monkeypatch.setattr(pynvml, "nvmlGpuInstanceGetInfo", remove_meanwhile)
        assert driver.device_uuid(board, held) == named
        removals[0].result(timeout=5.0)
    assert driver.slices(board) == (held,)


# Health -----------------------------------------------------------------------------------------------------------------


def test_a_board_with_an_xid_says_so_and_the_fault_of_a_program_is_passed_over(machine, driver):
    one = machine(A100, A100, T4)
    assert [board.fault for board in driver.boards()] == [None, None, None]
    one.xid(one.uuids[0], 31)
    one.xid(one.uuids[1], 13)
    one.xid(one.uuids[1], 48)
    one.xid(one.uuids[2], 79)
    why = "XID error {}: see the node's kernel log; mend it and restart the agent"
    assert [board.fault for board in driver.boards()] == [None, why.format(48), why.format(79)]
    assert [board.fault for board in driver.boards()] == [None, why.format(48), why.format(79)]
    driver.close()
    assert [board.fault for board in driver.boards()] == [None, None, None]


def test_a_thread_can_wait_for_an_event_without_taking_it_from_the_driver(machine, driver):
    one = machine(A100, A100)
    driver.boards()
    watch = driver.watch()
    assert watch.take(0.0) == ()
    one.xid(one.uuids[1], 79)
    assert watch.take(5.0) == ((one.uuids[1], 79),)
    watch.close()
    assert driver.boards()[1].fault


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
def test_boards_serve_without_events(machine, driver, function):
    one = machine(A100)
    one.fail(function, NOT_SUPPORTED)
    assert [board.fault for board in driver.boards()] == [None]


def test_a_lost_board_tells_of_nothing_and_the_others_go_on(machine, driver):
    """That is not that it has nothing: what it had is remembered above the driver."""
    one = machine(A100, A100)
    lost, well = one.uuids
    for board in one.uuids:
        driver.create(board, Slice("3g.20gb", 4))
    one.lose(lost)
    assert [board.fault for board in driver.boards()] == ["ask for the MIG mode of GPU 0: GPU is lost", None]
    assert driver.slices(well) == (Slice("3g.20gb", 4),)
    for call in (driver.slices, driver.orphans, lambda board: driver.destroy(board, Slice("3g.20gb", 4))):
        with pytest.raises(GpuIsLost):
            call(lost)
    driver.destroy(well, Slice("3g.20gb", 4))
    assert driver.slices(well) == ()


# MPS --------------------------------------------------------------------------------------------------------------------


def test_without_a_control_daemon_there_are_no_mps_slices(machine):
    (board,) = machine(T4).uuids
    driver = NvmlDriver()
    assert driver.slices(board) == ()
    with pytest.raises(NotSupported, match="has no MPS control daemon"):
        driver.create(board, Slice("10gb"))


def test_mps_slices_outlive_the_agent(machine, driver, tmp_path):
    (board,) = machine(T4).uuids
    driver.enable_mps(board)
    driver.create(board, Slice("10gb"))
    again = NvmlDriver(MpsBoards(Bins(tmp_path / "bins.json"), NoProcesses()))
    assert (again.slices(board), again.mps_enabled(board)) == ((Slice("10gb"),), None)
    (tmp_path / "bins.json").write_text("{")
    with pytest.raises(DriverError, match=r"cannot be read from .*bins\.json"):
        again.slices(board)


@pytest.mark.parametrize(
    ("bins", "why"),
    [
        pytest.param([("10gb", None), ("10gb", None)], "names a slice twice", id="twice"),
        pytest.param([("500gb", None)], "500gb beside 0 GB: Tesla-T4 has 16 GB", id="more-than-the-board-has"),
        pytest.param([("1g.5gb", 0)], "has MIG slices", id="a-MIG-slice"),
        pytest.param([("zz", None)], "zz is no MPS slice; write for example 10gb", id="no-slice-at-all"),
    ],
)
def test_mps_slices_that_cannot_be_are_the_fault_of_the_file_and_of_the_board(machine, driver, tmp_path, bins, why):
    """Whoever has changed it: nothing is announced that nobody can get."""
    one, other = machine(T4, T4).uuids
    items = [{"profile": profile, "start": start, "ordinal": 0} for profile, start in bins]
    (tmp_path / "bins.json").write_text(json.dumps({one: items}))
    with pytest.raises(DriverError) as raised:
        driver.slices(one)
    assert str(raised.value) == (
        f"{tmp_path}/bins.json: {one}: {why}; mend that by hand, or remove the file and its slices"
    )
    assert driver.slices(other) == ()


def test_a_board_in_mig_mode_keeps_nothing_of_mps(machine, driver):
    """A person has switched it on for the reset: what was left there serves nobody any more."""
    one = machine(A100, mig=False)
    (board,) = one.uuids
    driver.enable_mps(board)
    driver.create(board, Slice("10gb"))
    pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByUUID(board), 1)
    one.reboot()
    assert (driver.slices(board), driver.mps_enabled(board)) == ((), None)
    driver.disable_mps(board)
    assert driver.mps_enabled(board) is False
    handle = pynvml.nvmlDeviceGetHandleByUUID(board)
    assert pynvml.nvmlDeviceGetComputeMode(handle) == pynvml.NVML_COMPUTEMODE_DEFAULT
    pynvml.nvmlDeviceSetMigMode(handle, 0)
    one.reboot()
    assert driver.slices(board) == ()


def test_a_driver_that_cannot_tell_who_holds_an_instance_leaves_that_out(machine, driver):
    """Old libraries do not have the function, which the bindings say in an error of another kind."""
    one = machine(A100)
    (board,) = one.uuids
    driver.create(board, Slice("3g.20gb", 4))
    one.hold(board, 1, 4711)
    one.fail("nvmlDeviceGetComputeRunningProcesses_v3", 13)
    with pytest.raises(InUse) as raised:
        driver.destroy(board, Slice("3g.20gb", 4))
    assert "4711" not in str(raised.value)


def test_a_board_for_mps_is_closed_to_all_but_its_daemon(machine, driver):
    (board,) = machine(T4).uuids
    driver.enable_mps(board)
    handle = pynvml.nvmlDeviceGetHandleByUUID(board)
    assert pynvml.nvmlDeviceGetComputeMode(handle) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    pynvml.nvmlDeviceSetComputeMode(handle, pynvml.NVML_COMPUTEMODE_DEFAULT)
    assert not driver.mps_enabled(board), "somebody has opened it: it is to be closed again"
    driver.enable_mps(board)
    assert driver.mps_enabled(board)
    driver.disable_mps(board)
    assert pynvml.nvmlDeviceGetComputeMode(handle) == pynvml.NVML_COMPUTEMODE_DEFAULT


def test_a_daemon_that_cannot_serve_is_its_boards_fault(machine, tmp_path):
    ill, well = machine(T4, T4).uuids
    daemons = NoProcesses()
    driver = NvmlDriver(MpsBoards(Bins(tmp_path / "bins.json"), daemons))
    for board in (ill, well):
        driver.enable_mps(board)
        driver.create(board, Slice("10gb"))
    daemons.faults[ill] = "its MPS control daemon has ended"
    assert [board.fault for board in driver.boards()] == ["its MPS control daemon has ended", None]
    with pytest.raises(DriverError, match="its MPS control daemon has ended"):
        driver.create(ill, Slice("1gb"))
    assert driver.slices(ill) == (Slice("10gb"),), "what was promised stays"
    driver.destroy(ill, Slice("10gb"))
    assert driver.slices(ill) == ()


def test_the_backstop_follows_the_largest_slice(machine, tmp_path):
    """A T4 has 15360 MiB and 16 GB: 960 MiB each."""
    (board,) = machine(T4).uuids
    daemons = NoProcesses()
    driver = NvmlDriver(MpsBoards(Bins(tmp_path / "bins.json"), daemons))
    driver.enable_mps(board)
    limits = [daemons.limits[board]]
    for change, item in (
        (driver.create, Slice("4gb")),
        (driver.create, Slice("10gb")),
        (driver.create, Slice("2gb")),
        (driver.destroy, Slice("10gb")),
        (driver.destroy, Slice("4gb")),
        (driver.destroy, Slice("2gb")),
    ):
        change(board, item)
        limits.append(daemons.limits[board])
    assert limits == [960, 3840, 9600, 9600, 3840, 1920, 960]


def test_a_board_before_volta_serves_16_clients_and_its_daemon_is_given_no_limit(machine, tmp_path):
    (board,) = machine("Tesla-P40").uuids
    daemons = NoProcesses()
    driver = NvmlDriver(MpsBoards(Bins(tmp_path / "bins.json"), daemons))
    driver.enable_mps(board)
    for ordinal in range(16):
        driver.create(board, Slice("1gb", None, ordinal))
    with pytest.raises(InsufficientResources, match="no more than 16 MPS clients on one board"):
        driver.create(board, Slice("1gb", None, 16))
    driver.destroy(board, Slice("1gb", None, 15))
    assert daemons.limits == {board: None}


def test_clients_are_those_of_mps(machine, driver):
    one = machine(T4, T4)
    one.use_by_mps(one.uuids[1], 4711, 300)
    one.hold(one.uuids[1], -1, 4712)
    assert driver.clients(one.uuids[0]) == ()
    assert driver.clients(one.uuids[1]) == (Client(4711, 300),)
