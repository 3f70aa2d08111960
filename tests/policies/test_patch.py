"""Hand-built JSON patches: escaping, parents that are absent or null, nothing overwritten."""

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.patch import Operation, changed, pointer, put


def applied(document, operations):
    return jsonpatch.apply_patch(document, msgspec.to_builtins(tuple(operations)))


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        (("metadata", "annotations", "kubernetes.io/role"), "/metadata/annotations/kubernetes.io~1role"),
        (("limits", "nvidia.com/gpu-10gb"), "/limits/nvidia.com~1gpu-10gb"),
        (("a~1b",), "/a~01b"),
        (("spec", "containers", 1), "/spec/containers/1"),
        ((), ""),
    ],
)
def test_keys_are_escaped(steps, path):
    """W10."""
    assert pointer(*steps) == path


def test_an_operation_that_removes_has_no_value():
    assert msgspec.json.encode(Operation("remove", "/a")) == b'{"op":"remove","path":"/a"}'
    assert msgspec.json.encode(Operation("add", "/a", None)) == b'{"op":"add","path":"/a","value":null}'


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({}, "/a"), ({"a": None}, "/a"), ({"a": {}}, "/a/b"), ({"a": {"b": None}}, "/a/b"), ({"a": {"b": {}}}, "/a/b/k"),
        ({"a": {"b": {"other": 2}}, "z": 1}, "/a/b/k"),
    ],
)  # fmt: skip
def test_missing_parents_are_made_and_present_ones_kept(document, path):
    """W11: for each subset of absent and null parents."""
    outer = document.get("a")
    inner = outer.get("b") if outer else None
    operation = put((), [("a", outer), ("b", inner)], "k", 1)
    assert operation.path == path
    assert applied(document, [operation]) == {**document, "a": {**(outer or {}), "b": {**(inner or {}), "k": 1}}}


_maps = st.dictionaries(st.sampled_from(["a", "b/c", "d~e", "nvidia.com/gpu"]), st.integers(0, 3))
_changes = st.dictionaries(st.sampled_from(["a", "b/c", "d~e", "new/key"]), st.none() | st.integers(0, 3))


@given(st.none() | _maps, _changes)
def test_a_changed_mapping_has_the_changes_and_keeps_the_rest(present, changes):
    """W10, W11."""
    operations = tuple(changed(("m",), present, changes))
    expected = {**(present or {}), **changes}
    expected = {key: value for key, value in expected.items() if value is not None}
    after = applied({"m": present, "other": 1}, operations)
    assert after == {"m": expected if present is not None or expected else None, "other": 1}
    assert tuple(changed(("m",), after["m"], changes)) == ()
