"""Files that are YAML by their looks: whatever is wrong with one is a fault of the file, told at once, and ends nothing."""

import pytest

from policies.faults import UnsoundError
from reconciler.agent.fixed.reading import Part, read_file


class File(Part, frozen=True, kw_only=True):
    version: str
    flags: object = None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("flags: &a {plugin: *a}", "*a: no aliases: write out what it stands for", id="itself"),
        pytest.param("a: &a [x]\nflags: [*a]", "*a: no aliases: write out what it stands for", id="billion-laughs"),
        pytest.param("flags: " + "[" * 3000 + "]" * 3000, "more than 20 levels, one in another", id="deep"),
        pytest.param("flags: " + "9" * 5000, "a value of 5000 characters: at most 1000", id="number-that-cannot-be-told"),
        pytest.param("flags: 2020-99-99", "month must be in 1..12", id="date"),
        pytest.param("flags: !!int x", "invalid literal for int() with base 10: 'x'", id="number"),
        pytest.param("flags: !!int ''", "string index out of range", id="no-number"),
        pytest.param("flags: !!bool x", "'x'", id="truth-value"),
        pytest.param("flags: !!timestamp x", "'NoneType' object has no attribute 'groupdict'", id="time"),
        pytest.param("flags: !!binary x", "failed to decode base64 data", id="base64"),
        pytest.param('flags: "\\ud800"', "'utf-8' codec can't encode character", id="half-a-character"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_a_fault_of_the_file(text, why):
    with pytest.raises(UnsoundError) as caught:
        read_file(text, File)
    (fault,) = caught.value.faults
    assert fault.startswith(f"no YAML: {why}")


def test_a_refusal_says_where():
    with pytest.raises(UnsoundError) as caught:
        read_file("version: v1\nflags: &a {plugin: *a}", File)
    assert 'in "<unicode string>", line 2, column 20' in caught.value.faults[0]


def test_a_file_that_would_take_minutes_to_read_is_refused_by_its_length():
    with pytest.raises(UnsoundError) as caught:
        read_file("version: v1\n#" + "x" * 300_000, File)
    assert caught.value.faults == ("300013 characters: at most 262144 are read: leave out what no node uses",)


def test_what_is_read_may_be_as_deep_as_files_of_people_are():
    assert read_file("version: v1\nflags: {a: {b: {c: {d: {e: {f: [[1]]}}}}}}", File).version == "v1"
