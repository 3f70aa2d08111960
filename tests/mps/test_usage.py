"""Which pods use more of a board than their slices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.agent.mps.usage import Overuse, Use


def uses(*mib):
    """Return the uses of pods a, b, ... of one board, each with a slice of 100 MiB."""
    return [Use("GPU", pod, amount, 100) for pod, amount in zip("abc", mib, strict=False)]


def test_who_is_above_its_slice_for_half_a_minute_is_named_once():
    """A02."""
    overuse = Overuse()
    assert overuse.look(uses(101, 100), 0.0) == ()
    assert overuse.look(uses(101, 101), 29.9) == ()
    assert overuse.look(uses(150, 101), 30.0) == (Use("GPU", "a", 150, 100),)
    assert overuse.look(uses(150, 101), 59.9) == (Use("GPU", "b", 101, 100),)
    assert overuse.look(uses(150, 101), 900.0) == ()


@pytest.mark.parametrize("pause", [uses(100), []], ids=["below", "gone"])
def test_who_has_been_below_begins_anew(pause):
    overuse = Overuse()
    overuse.look(uses(101), 0.0)
    overuse.look(pause, 20.0)
    assert overuse.look(uses(101), 40.0) == ()
    assert overuse.look(uses(101), 70.0) == (Use("GPU", "a", 101, 100),)
    overuse.look(pause, 80.0)
    overuse.look(uses(101), 90.0)
    assert overuse.look(uses(101), 120.0) == (Use("GPU", "a", 101, 100),)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(90, 110)), max_size=30))
def test_nobody_is_named_who_was_not_above_all_the_time(steps):
    overuse, now, since = Overuse(), 0, None
    for passed, mib in steps:
        now += passed
        since = (now if since is None else since) if mib > 100 else None
        named = overuse.look(uses(mib), float(now))
        assert not named or (since is not None and now - since >= 30)
