"""The processes of a sandbox together: waited for, started again, and ended in order. The clock is the test's."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.sandbox.crew import Crew, Stopped
from console.sandbox.errors import SandboxError
from console.sandbox.processes import Command
from tests.sandbox.waiting import eventually


class Clock:
    """A clock that stands, and a pause that moves it on as far as was asked, and runs the test's next step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[float | None] = []
        self.steps: list = []

    def __call__(self) -> float:
        return self.now

    def pause(self, timeout_s: float | None) -> bool:
        self.asked.append(timeout_s)
        self.now += timeout_s or 0.0
        return bool(self.steps.pop(0)()) if self.steps else True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def crew(tmp_path: Path, clock: Clock, changes: list[str]) -> Iterator[Crew]:
    crew = Crew(
        tmp_path,
        {"PATH": os.environ["PATH"]},
        pause=clock.pause,
        on_change=lambda: changes.append("change"),
        clock=clock,
    )
    yield crew
    crew.end(last=())


def _sleep(name: str) -> Command:
    return Command(name=name, arguments=("sleep", "600"), port=20001)


def _kill(crew: Crew, name: str) -> bool:
    pid = next(state.pid for state in crew.states() if state.name == name)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return False


def test_a_process_that_had_worked_comes_back_after_a_tenth_of_a_second(crew: Crew, clock: Clock) -> None:
    crew.start([_sleep("a"), _sleep("b")])
    first = crew.states()
    clock.now = 60.0
    clock.steps = [lambda: _kill(crew, "a"), lambda: False]
    crew.look_after()
    assert clock.asked == [None, pytest.approx(0.1), None]
    a, b = crew.states()
    assert (a.name, a.port, a.restarts) == ("a", 20001, 1)
    assert a.pid not in (None, first[0].pid)
    assert b == first[1]


def test_a_process_that_cannot_stay_up_is_tried_once_a_second(crew: Crew, clock: Clock) -> None:
    crew.start([_sleep("a")])
    clock.steps = [lambda: _kill(crew, "a"), lambda: _kill(crew, "a") if crew.states()[0].pid else False, lambda: False]
    crew.look_after()
    assert clock.asked[:2] == [None, pytest.approx(1.0)]


def test_while_it_waits_to_be_started_again_it_is_known_to_be_missing(
    crew: Crew, clock: Clock, changes: list[str]
) -> None:
    crew.start([_sleep("a")])
    seen = []
    clock.steps = [lambda: _kill(crew, "a"), lambda: seen.append(crew.states()[0]), lambda: False]
    crew.look_after()
    assert (seen[0].pid, seen[0].restarts) == (None, 0)
    assert changes == ["change"] * 3  # Started, ended, started again.


def test_a_start_is_over_when_it_is_ready(crew: Crew, clock: Clock) -> None:
    answers = iter([False, False, True])
    clock.steps = [lambda: False] * 2
    crew.start([_sleep("a")])
    crew.wait_until(lambda: next(answers), "a")
    assert len(clock.asked) == 2


def test_a_process_that_ends_while_all_wait_for_it_fails_the_start_with_its_last_words(crew: Crew) -> None:
    crew.start([Command(name="a", arguments=("/bin/sh", "-c", "echo no such flag: --x; exit 4"))])
    os.waitid(os.P_PID, crew.states()[0].pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(SandboxError) as raised:
        crew.wait_until(lambda: False, "a")
    assert str(raised.value) == "a ended with status 4; the end of its log:\nno such flag: --x"


def test_a_start_that_takes_longer_than_two_minutes_fails(crew: Crew, clock: Clock) -> None:
    crew.start([_sleep("a")])
    clock.steps = [lambda: setattr(clock, "now", 121.0)]
    with pytest.raises(SandboxError) as raised:
        crew.wait_until(lambda: False, "a and b")
    assert str(raised.value) == "a and b: not ready after 120 s\na says; the end of its log:\n(empty)"


def test_a_start_can_be_stopped(crew: Crew) -> None:
    crew.start([_sleep("a")])
    with pytest.raises(Stopped):
        crew.wait_until(lambda: False, "a")


def test_a_program_that_cannot_be_executed_is_named(crew: Crew) -> None:
    with pytest.raises(SandboxError, match=r"^cannot start a: .*No such file"):
        crew.start([Command(name="a", arguments=("/no/such/program",))])


def test_those_that_others_need_to_end_are_ended_last(crew: Crew, tmp_path: Path) -> None:
    """Our processes still need the API server when they end, and that needs its etcd."""
    script = f"trap 'echo $0 >> {tmp_path}/order; exit 0' TERM; touch {tmp_path}/$0; while :; do sleep 0.01; done"
    names = ("etcd", "kube-apiserver", "kwok")
    crew.start(Command(name=name, arguments=("/bin/sh", "-c", script, name)) for name in names)
    eventually(lambda: all((tmp_path / name).exists() for name in names), "all run")
    crew.end(last=("kube-apiserver", "etcd"))
    assert (tmp_path / "order").read_text().split() == ["kwok", "kube-apiserver", "etcd"]
