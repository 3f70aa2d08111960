"""A kubelet that does not offer what is announced is told of by the ids of devices, by which its log can be searched."""

import pytest

from reconciler.agent.agent import _disagreement


@pytest.mark.parametrize(
    ("announced", "listed", "said"),
    [
        pytest.param("ab", "a", "the kubelet does not offer b", id="lacking"),
        pytest.param("a", "ab", "the kubelet offers, without or against our word, b", id="too-many"),
        pytest.param(
            "ab", "bc", "the kubelet does not offer a and offers, without or against our word, c", id="others"
        ),
        pytest.param("abcde", "", "the kubelet does not offer a, b, c and 2 more", id="no-endless-message"),
    ],
)
def test_a_kubelet_that_offers_other_devices_is_told_which(announced, listed, said):
    assert _disagreement(frozenset(announced), frozenset(listed)) == said
