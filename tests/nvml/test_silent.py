"""A board whose driver call hangs is known by its index, while others answer."""

import threading

import pytest

from reconciler.agent.nvml import NvmlDriver, discovery, session
from tests.apiserver.server import PATIENCE_S
from tests.builders import A100
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc


class Hang:
    """A function that waits when it is asked of one board."""

    def __init__(self, function, is_one):
        self._function, self._is_one = function, is_one
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, argument):
        if self._is_one(argument):
            self.reached.set()
            assert self.go_on.wait(PATIENCE_S)
        return self._function(argument)


def silent_while(driver, hang, call, now):
    """Return which boards are silent 0, 29 and 30 s after a call has begun to hang, and when it has ended."""
    thread = threading.Thread(target=call)
    thread.start()
    assert hang.reached.wait(PATIENCE_S)
    found = []
    for later_s in (0.0, 29.0, 30.0):
        now[0] = 1_000.0 + later_s
        found.append(driver.silent(30.0))
    hang.go_on.set()
    thread.join(PATIENCE_S)
    return [*found, driver.silent(30.0)]


@pytest.fixture
def now():
    return [1_000.0]


@pytest.fixture
def driver(now):
    driver = NvmlDriver(clock=lambda: now[0])
    yield driver
    driver.close()


def test_a_board_that_hangs_when_it_is_asked_is_named_and_others_answer(machine, driver, now, monkeypatch):
    first, second = machine(A100, A100).uuids
    driver.boards()
    hang = Hang(discovery.mig_mode, lambda handle: handle is driver._session.boards[second].handle)
    monkeypatch.setattr("reconciler.agent.nvml.driver.mig_mode", hang)

    def call():
        driver.slices(second)

    assert silent_while(driver, hang, call, now) == [(), (), (1,), ()]
    assert driver.slices(first) == ()


def test_a_board_that_hangs_when_it_is_first_described_is_named(machine, driver, now, monkeypatch):
    """So it is with each agent that comes after the first that was ended for it."""
    machine(A100, A100)
    hang = Hang(session.identify, lambda index: index == 1)
    monkeypatch.setattr(session, "identify", hang)
    assert silent_while(driver, hang, driver.boards, now) == [(), (), (1,), ()]
