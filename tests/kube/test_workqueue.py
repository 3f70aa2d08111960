"""The work queue, with a clock that stands still unless moved."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.backoff import Backoff
from kube.workqueue import WorkQueue
from tests.apiserver.server import PATIENCE_S


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(backoff=Backoff(base_s=1.0, cap_s=5.0), clock=clock, chance=lambda: 1.0)


def drain(work: WorkQueue[str]) -> list[str]:
    keys = []
    while (key := work.get(0)) is not None:
        keys.append(key)
        work.done(key)
    return keys


def test_a_key_in_line_is_handed_out_once_however_often_it_is_added(work: WorkQueue[str]) -> None:
    for key in "abab":
        work.add(key)
    assert len(work) == 2
    assert drain(work) == ["a", "b"]


def test_a_key_in_work_is_handed_to_nobody_else_and_comes_again_when_it_is_done(work: WorkQueue[str]) -> None:
    work.add("a")
    assert work.get(0) == "a"
    work.add("a")
    work.add("a")
    assert work.get(0) is None
    work.done("a")
    assert drain(work) == ["a"]


def test_a_delayed_key_comes_when_it_is_due_and_the_earliest_delay_counts(work: WorkQueue[str], clock: Clock) -> None:
    work.add_after("late", 9.0)
    work.add_after("a", 7.0)
    work.add_after("a", 3.0)
    work.add_after("a", 5.0)
    clock.now = 2.9
    assert drain(work) == []
    clock.now = 3.0
    assert drain(work) == ["a"]
    clock.now = 8.0
    assert drain(work) == [], "the later delays are over"
    clock.now = 9.0
    assert drain(work) == ["late"]


def test_pauses_of_a_failing_key_double_to_a_cap_and_begin_anew_when_forgotten(work: WorkQueue[str]) -> None:
    assert [work.retry("a") for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert work.retry("b") == 1.0
    work.forget("a")
    assert work.retry("a") == 1.0


def test_a_retry_during_work_comes_after_it(work: WorkQueue[str], clock: Clock) -> None:
    work.add("a")
    assert work.get(0) == "a"
    work.retry("a")
    work.done("a")
    assert drain(work) == []
    clock.now = 1.0
    assert drain(work) == ["a"]


def test_who_waits_is_woken_by_a_key_and_by_the_end() -> None:
    work: WorkQueue[str] = WorkQueue()
    got: list[str | None] = []
    taken = threading.Event()

    def worker() -> None:
        got.append(work.get())
        taken.set()
        got.append(work.get())

    thread = threading.Thread(target=worker)
    thread.start()
    work.add("a")
    assert taken.wait(PATIENCE_S)
    work.close()
    thread.join(PATIENCE_S)
    assert got == ["a", None]
    assert work.closed


def test_a_delay_wakes_who_waits_in_real_time() -> None:
    work: WorkQueue[str] = WorkQueue()
    work.add_after("later", 60.0)
    work.add_after("a", 0.01)
    assert work.get(timeout_s=PATIENCE_S) == "a"
    assert work.get(timeout_s=0.01) is None


@given(st.lists(st.tuples(st.sampled_from(["add", "get", "done"]), st.sampled_from("abc")), max_size=60))
def test_no_addition_is_lost_and_no_key_is_worked_on_twice_at_once(steps: list[tuple[str, str]]) -> None:
    """Whatever was added last is handed out after that moment, sooner or later."""
    work: WorkQueue[str] = WorkQueue(clock=lambda: 0.0)
    owed: set[str] = set()
    in_work: set[str] = set()
    for step, key in steps:
        if step == "add":
            work.add(key)
            owed.add(key)
        elif step == "done" and key in in_work:
            in_work.remove(key)
            work.done(key)
        elif step == "get" and (got := work.get(0)) is not None:
            assert got in owed
            assert got not in in_work
            owed.remove(got)
            in_work.add(got)
    for key in in_work:
        work.done(key)
    assert sorted(drain(work)) == sorted(owed)


@pytest.mark.parametrize(
    ("failures", "chance", "expected"),
    [(1, 0.0, 0.5), (1, 1.0, 1.0), (3, 0.0, 2.0), (4, 0.5, 3.75), (10_000, 1.0, 5.0)],
)
def test_a_pause_lies_between_half_and_all_of_what_doubling_gives(
    failures: int, chance: float, expected: float
) -> None:
    assert Backoff(base_s=1.0, cap_s=5.0).delay_s(failures, chance) == expected
