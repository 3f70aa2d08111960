"""The thread that waits for what boards report by themselves."""

import queue
import threading

import pytest

from reconciler.agent.driver import DriverError, GpuIsLost
from reconciler.agent.nvml.events import BoardEvents
from tests.apiserver.server import PATIENCE_S


class Boards:
    """A driver's events: what `happens` is given to the next wait of the watch that is open, errors are raised by it."""

    def __init__(self, *faults):
        self.faults = list(faults)  # of the next attempts to watch
        self.faults_at_the_end = []  # of the next attempts to close
        self.opened, self.closed = threading.Semaphore(0), threading.Semaphore(0)
        self.news = queue.Queue()

    def watch(self):
        if self.faults:
            raise self.faults.pop(0)
        self.opened.release()
        return self

    def take(self, timeout_s=0.0):
        try:
            found = self.news.get(timeout=timeout_s)
        except queue.Empty:
            return ()
        if isinstance(found, Exception):
            raise found
        return (found,)

    def close(self):
        if self.faults_at_the_end:
            raise self.faults_at_the_end.pop(0)
        self.closed.release()


@pytest.fixture
def start():
    """Return a function that starts a thread over these boards; calls of `changed` release the semaphore that it returns."""
    running = []

    def start(boards):
        changed = threading.Semaphore(0)
        events = BoardEvents(boards.watch, wait_s=0.01, again_s=0.01)
        events.start(changed.release)
        running.append(events)
        return events, changed

    yield start
    for events in running:
        events.stop()
        assert not events.alive()


def test_a_pass_is_due_when_something_has_happened_and_not_before(start):
    boards = Boards()
    _, changed = start(boards)
    assert boards.opened.acquire(timeout=PATIENCE_S)
    boards.news.put("XID 79")
    assert changed.acquire(timeout=PATIENCE_S)
    assert not changed.acquire(blocking=False)


def test_a_lost_board_makes_a_pass_due_and_the_others_are_watched_again(start):
    boards = Boards()
    _, changed = start(boards)
    assert boards.opened.acquire(timeout=PATIENCE_S)
    boards.news.put(GpuIsLost("wait for XID events: GPU is lost"))
    assert changed.acquire(timeout=PATIENCE_S)
    assert boards.closed.acquire(timeout=PATIENCE_S)
    assert boards.opened.acquire(timeout=PATIENCE_S), "watched again"
    boards.news.put("XID 79")
    assert changed.acquire(timeout=PATIENCE_S)


def test_a_driver_that_is_not_there_is_tried_again_and_causes_no_passes(start):
    """A14: the pass itself looks for it."""
    boards = Boards(*[DriverError("no library")] * 3)
    events, changed = start(boards)
    assert boards.opened.acquire(timeout=PATIENCE_S)
    assert not changed.acquire(blocking=False)
    assert events.alive()


def test_boards_are_asked_for_anew_from_time_to_time_since_more_may_answer(start, monkeypatch):
    monkeypatch.setattr("reconciler.agent.nvml.events.WAITS", 2)
    boards = Boards()
    start(boards)
    for _ in range(3):
        assert boards.opened.acquire(timeout=PATIENCE_S)
        assert boards.closed.acquire(timeout=PATIENCE_S)


def test_a_watch_that_cannot_be_closed_does_not_end_the_thread(start, monkeypatch):
    monkeypatch.setattr("reconciler.agent.nvml.events.WAITS", 2)
    boards = Boards()
    boards.faults_at_the_end.append(DriverError("cannot be closed"))
    _, changed = start(boards)
    assert boards.closed.acquire(timeout=PATIENCE_S), "the next one can"
    assert boards.faults_at_the_end == []
    boards.news.put("XID 79")
    assert changed.acquire(timeout=PATIENCE_S)


def test_stopping_closes_the_watch():
    boards = Boards()
    events = BoardEvents(boards.watch, wait_s=0.01, again_s=60.0)
    events.start(lambda: None)
    assert boards.opened.acquire(timeout=PATIENCE_S)
    events.stop()
    assert not events.alive()
    assert boards.closed.acquire(blocking=False)
