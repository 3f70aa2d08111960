"""MPS slices that are kept in a file."""

import pytest

from reconciler.agent.driver import DriverError, Slice
from reconciler.agent.mps.bins import Bins

TEN, ANOTHER = Slice("10gb", None, 0), Slice("10gb", None, 1)


def test_what_is_kept_is_there_for_the_next_agent(tmp_path):
    bins = Bins(tmp_path / "bins.json")
    assert bins.of("GPU-0") == ()
    bins.add("GPU-0", TEN)
    bins.add("GPU-1", TEN)
    bins.add("GPU-0", ANOTHER)
    bins.remove("GPU-0", TEN)
    again = Bins(tmp_path / "bins.json")
    assert (again.of("GPU-0"), again.of("GPU-1"), again.of("GPU-2")) == ((ANOTHER,), (TEN,), ())


def test_a_crash_while_writing_leaves_what_there_was(tmp_path):
    bins = Bins(tmp_path / "bins.json")
    bins.add("GPU-0", TEN)
    (tmp_path / "bins.new").write_text('{"GPU-0": [')
    assert bins.of("GPU-0") == (TEN,)
    bins.add("GPU-0", ANOTHER)
    assert bins.of("GPU-0") == (TEN, ANOTHER)


def test_a_file_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "bins.json").write_text('{"GPU-0": [{"profile": 10}]}')
    with pytest.raises(DriverError, match=r"cannot be read from .*bins\.json: Expected `str`, got `int`"):
        Bins(tmp_path / "bins.json").of("GPU-0")
    with pytest.raises(DriverError, match=r"cannot be kept in .*/nowhere/bins\.json: "):
        Bins(tmp_path / "nowhere" / "bins.json").add("GPU-0", TEN)
