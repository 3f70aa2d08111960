"""NVML is opened anew when its driver has been unloaded or replaced beneath it, and when there are more boards than it knew."""

import pynvml
import pytest

from reconciler.agent.driver import DriverError, NotOpen, Slice
from reconciler.agent.nvml import NvmlDriver
from reconciler.agent.nvml.xids import WatchEnded
from tests.builders import A100
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc

LOST_DRIVER = [
    pytest.param(pynvml.NVML_ERROR_UNINITIALIZED, id="uninitialized"),
    pytest.param(pynvml.NVML_ERROR_DRIVER_NOT_LOADED, id="driver-not-loaded"),
    pytest.param(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, id="other-version"),
]
ONE = Slice("1g.5gb", 0)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def driver(clock):
    driver = NvmlDriver(clock=clock)
    yield driver
    driver.close()


def openings(one):
    return one.calls().count("nvmlInitWithFlags")


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetGpuInstances"])
@pytest.mark.parametrize("code", LOST_DRIVER)
def test_it_is_opened_anew_once_any_call_has_found_the_driver_lost(machine, driver, clock, function, code):
    one = machine(A100)
    (uuid,) = one.uuids
    driver.create(uuid, ONE)
    one.record()
    one.fail(function, code)
    driver.boards()
    if function == "nvmlDeviceGetGpuInstances":
        with pytest.raises(NotOpen):
            driver.slices(uuid)
    one.mend()
    clock.now += 1.0
    assert [board.fault for board in driver.boards()] == [None]
    assert driver.slices(uuid) == (ONE,)
    assert openings(one) == 1
    clock.now += 100.0
    driver.boards()
    assert openings(one) == 1


def test_as_long_as_that_does_not_help_it_is_tried_less_and_less_often(machine, driver, clock):
    one = machine(A100)
    driver.boards()
    one.record()
    one.fail("nvmlDeviceGetMigMode", pynvml.NVML_ERROR_UNINITIALIZED)
    opened = []
    for _ in range(200):
        clock.now += 1.0
        driver.boards()
        if openings(one) > len(opened):
            opened.append(clock.now - 101.0)
    assert opened == [1, 2, 4, 8, 16, 32, 64, 124, 184]


def test_boards_of_a_driver_that_has_been_unloaded_stay_and_it_is_asked_for_again(machine, driver, clock):
    one = machine(A100)
    driver.boards()
    one.fail("nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    one.fail("nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    (board,) = driver.boards()
    assert (board.uuid, board.fault) == (one.uuids[0], "open NVML: Driver Not Loaded; load NVIDIA's kernel modules"), (
        "it has not gone"
    )
    with pytest.raises(DriverError, match="open NVML: Driver Not Loaded"):
        driver.slices(one.uuids[0])
    one.mend()
    clock.now += 1.0
    assert [board.fault for board in driver.boards()] == [None]


def test_a_board_that_appears_later_is_seen(machine, driver, monkeypatch):
    one = machine(A100, A100)
    with monkeypatch.context() as early:
        early.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
        assert [board.uuid for board in driver.boards()] == one.uuids[:1]
    assert [board.uuid for board in driver.boards()] == one.uuids


def test_a_board_with_an_xid_stays_at_fault(machine, driver, clock):
    """Nothing in NVML says that it is well again (docs/adr/0022)."""
    one = machine(A100)
    driver.boards()
    one.xid(one.uuids[0], 79)
    assert [board.fault[:12] for board in driver.boards()] == ["XID error 79"]
    one.fail("nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_UNINITIALIZED)
    one.record()
    driver.boards()
    one.mend()
    clock.now += 1.0
    assert [board.fault[:12] for board in driver.boards()] == ["XID error 79"]
    assert openings(one) == 2


def test_a_watch_of_before_is_of_no_more_use_and_harms_nothing(machine, driver):
    one = machine(A100)
    driver.boards()
    watch = driver.watch()
    driver.close()
    driver.boards()
    with pytest.raises(WatchEnded):
        watch.take()
    one.record()
    watch.close()
    assert one.calls() == []
