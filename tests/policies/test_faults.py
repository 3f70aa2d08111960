"""All misfits of a value at once, each with its path."""

from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.faults import fault, misfits
from policies.model import Node, Pod


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param({"metadata": {}, "spec": {"containers": []}}, [], id="fits"),
        pytest.param({"metadata": {"annotations": None}, "spec": {"containers": []}}, [], id="null where it may be"),
        pytest.param(
            {"spec": {"containers": None}},
            ["metadata: missing: an object is needed", "spec.containers: null: must be a list, not null"],
            id="missing and null",
        ),
        pytest.param(
            {"metadata": {"annotations": {"nos.nebuly.com/gpu-fraction": 0.5, "a": "b", "c": True}},
             "spec": {"containers": [{"name": "a"}, {"name": 7}, "b", {}]}},
            ["metadata.annotations[nos.nebuly.com/gpu-fraction]: 0.5: must be text, not a number: quote it",
             "metadata.annotations[c]: true: must be text, not true or false: quote it",
             "spec.containers[1].name: 7: must be text, not a number: quote it",
             "spec.containers[2]: b: must be an object, not text",
             "spec.containers[3].name: missing: text is needed"],
            id="every fault, of items beside each other",
        ),
        pytest.param(
            {"metadata": {}, "spec": {"containers": [
                {"name": "a", "resources": {"limits": {"nvidia.com/gpu": [1]}, "requests": []},
                 "securityContext": {"runAsUser": "1000", "privileged": 1}}]}},
            ["spec.containers[0].resources.limits[nvidia.com/gpu]: [1]: must be a quantity, not a list",
             "spec.containers[0].resources.requests: []: must be an object, not a list",
             "spec.containers[0].securityContext.runAsUser: 1000: must be a whole number, not text",
             "spec.containers[0].securityContext.privileged: 1: must be true or false, not a number"],
            id="deep in a container",
        ),
        pytest.param({"metadata": {"labels": {1: "x"}}, "spec": {"containers": []}},
                     ["metadata.labels[1]: 1: a key must be text: quote it"], id="a key that is no text"),
        pytest.param([], ["document: []: must be an object, not a list"], id="no object at all"),
    ],
)  # fmt: skip
def test_every_misfit_is_told_with_its_path(pod, found):
    assert misfits(pod, Pod) == found


@pytest.mark.parametrize(
    ("value", "shown"),
    [("0.5 ", '"0.5 "'), ("\t0.5", '" 0.5"'), ("0.5\n", '"0.5 "'), ("", '""'), (" ", '" "'), ("a  b", "a b"), (0, "0")],
)
def test_blanks_that_are_wrong_with_a_value_are_seen(value, shown):
    assert fault("spec.x", value, "no") == f"spec.x: {shown}: no"


def test_a_long_value_is_cut_and_kept_on_one_line():
    assert fault("spec.x", "a\nb" + "c" * 200, "no") == f"spec.x: a b{'c' * 74}...: no"


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(0, 1) | st.sampled_from(["", "a", "1"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "containers", "name", "labels", "taints", "priority", "limits"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_json, st.sampled_from([Pod, Node]))
def test_there_are_misfits_exactly_where_decoding_fails(value, expected):
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError:
        assert misfits(value, expected)
    else:
        assert misfits(value, expected) == []


class _Bounded(msgspec.Struct):
    least: Annotated[int, msgspec.Meta(gt=2)] = 3
    most: Annotated[int, msgspec.Meta(le=9)] = 0
    between: Annotated[int, msgspec.Meta(ge=1, lt=3)] | None = None
    named: Annotated[str, msgspec.Meta(pattern="^[ab]+$")] = "a"


def test_bounds_and_patterns_are_told():
    assert misfits({"least": 2, "most": 10, "between": 3, "named": "abc"}, _Bounded) == [
        "least: 2: must be at least 3",
        "most: 10: must be at most 9",
        "between: 3: must be from 1 to 2",
        "named: abc: must match ^[ab]+$",
    ]
    assert misfits({"least": 3, "most": 9, "between": 1, "named": "ab"}, _Bounded) == []
