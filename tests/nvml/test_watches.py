"""What watches boards for XIDs lets go of one whose MIG mode is switched, and misses nothing of the others (pain A05)."""

import threading

import pynvml
import pytest

from reconciler.agent.driver import InUse
from reconciler.agent.nvml.events import BoardEvents
from reconciler.agent.nvml.xids import WatchEnded
from tests.apiserver.server import PATIENCE_S
from tests.nvml.library import needs_gcc
from tests.nvml.machine import IN_USE
from tests.sandbox.waiting import eventually

pytestmark = needs_gcc

H100 = "NVIDIA-H100-80GB-HBM3"


@pytest.fixture
def one(machine):
    """Return two boards that are not switched while anybody watches them."""
    one = machine(H100, H100, mig=False)
    one.switch_only_unwatched()
    return one


def failed(driver):
    """Return the boards at fault, by index."""
    return [board.index for board in driver.boards() if board.fault]


def test_no_event_set_holds_a_board_while_its_mode_is_switched(one, driver):
    driver.boards()
    watch = driver.watch()
    driver.enable_mig(one.uuids[0])
    assert [board.mig for board in driver.boards()] == [True, False]
    with pytest.raises(WatchEnded):
        watch.take()


@pytest.mark.parametrize("refused", [False, True], ids=["switched", "refused"])
def test_a_board_is_watched_again_once_it_has_been_switched_or_not(one, driver, refused):
    driver.boards()
    if refused:
        one.fail("nvmlDeviceSetMigMode", IN_USE)
        with pytest.raises(InUse):
            driver.enable_mig(one.uuids[0])
    else:
        driver.enable_mig(one.uuids[0])
    watch = driver.watch()
    one.xid(one.uuids[0], 79)
    assert watch.take() == ((one.uuids[0], 79),)
    assert failed(driver) == [0]


@pytest.mark.parametrize("board", [0, 1], ids=["that-is-to-be-switched", "another"])
def test_what_a_board_has_told_before_is_not_lost_with_the_event_set(one, driver, board):
    driver.boards()
    one.xid(one.uuids[board], 79)
    driver.enable_mig(one.uuids[0])
    assert failed(driver) == [board]


def test_the_other_boards_are_watched_while_one_is_switched(one, driver, monkeypatch):
    driver.boards()
    switch, seen = pynvml.nvmlDeviceSetMigMode, []

    def fail_meanwhile(handle, mode):
        watch = driver.watch()
        one.xid(one.uuids[1], 79)
        seen.append(watch.take())
        watch.close()
        return switch(handle, mode)

    monkeypatch.setattr(pynvml, "nvmlDeviceSetMigMode", fail_meanwhile)
    driver.enable_mig(one.uuids[0])
    assert seen == [((one.uuids[1], 79),)]
    assert failed(driver) == [1]


def test_a_thread_that_waits_for_events_lets_go_at_the_end_of_its_wait_and_waits_for_all_again(one, driver):
    """NVML does not say what becomes of a wait whose set is freed, so that is not tried; the mock refuses it."""
    changed, opened = threading.Event(), threading.Semaphore(0)

    def watch():
        found = driver.watch()
        opened.release()
        return found

    driver.boards()
    events = BoardEvents(watch, wait_s=0.1, again_s=600.0)
    events.start(changed.set)
    try:
        assert opened.acquire(timeout=PATIENCE_S)
        driver.enable_mig(one.uuids[0])
        assert opened.acquire(timeout=PATIENCE_S), "it watches again, and at once"
        assert not changed.is_set(), "nothing has happened"
        # An event that comes between two of its watches makes no pass due.
        eventually(lambda: one.xid(one.uuids[0], 79) or changed.wait(0.1), "it watches all again")
    finally:
        events.stop()
    assert failed(driver) == [0]


def test_boards_that_answer_only_later_are_watched_by_threads_as_well(machine, driver):
    one = machine(H100, H100)
    one.fail("nvmlDeviceGetName", 999, one.uuids[1])
    driver.boards()
    watch = driver.watch()
    one.mend()
    driver.boards()
    with pytest.raises(WatchEnded):
        watch.take()
    watch = driver.watch()
    one.xid(one.uuids[1], 79)
    assert watch.take() == ((one.uuids[1], 79),)
