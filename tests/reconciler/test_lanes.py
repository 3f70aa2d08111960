"""Several things at a time, and no more of them once it is told so."""

import threading

import pytest

from reconciler.lanes import Lanes
from tests.apiserver.server import PATIENCE_S


@pytest.fixture
def lanes():
    made = Lanes(3, "test")
    yield made
    made.close()


def test_as_many_as_there_are_lanes_are_done_at_a_time(lanes):
    together = threading.Barrier(3)
    assert sorted(lanes.map(lambda item: (together.wait(PATIENCE_S), item)[1], range(9))) == list(range(9))


def test_once_it_is_told_so_nothing_more_begins(lanes):
    begun = []
    assert lanes.map(lambda item: begun.append(item) or item, range(9), lambda: len(begun) < 1)
    assert len(begun) < 9
    assert begun == sorted(begun)


def test_nothing_is_nothing(lanes):
    assert lanes.map(str, []) == []


def test_a_fault_comes_out(lanes):
    with pytest.raises(ZeroDivisionError):
        lanes.map(lambda item: 1 // item, [1, 0])
