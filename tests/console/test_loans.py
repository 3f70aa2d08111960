"""Who borrows from whom, and what is promised beyond what there is."""

import pytest

from console.loans import loans, promised_beyond
from policies.decision import QuotaStatus
from policies.settings import DEFAULTS
from policies.view import view_node
from tests.builders import make_node

GPU, MEMORY = "nvidia.com/gpu", "nos.nebuly.com/gpu-memory"


def status(team, **fields):
    return QuotaStatus(kind="ElasticQuota", namespace=team, name="q", **fields)


def test_borrowers_and_lenders_are_paired_and_nothing_is_lost():
    statuses = [
        status("c", borrowed={GPU: 3000}),
        status("a", lent={GPU: 1000, MEMORY: 500}),
        status("b", borrowed={MEMORY: 500}),
        status("d", lent={GPU: 2000}),
    ]
    assert [(one.borrower, one.amount, one.resource, one.lender) for one in loans(statuses)] == [
        ("b/q", 500, MEMORY, "a/q"),
        ("c/q", 1000, GPU, "a/q"),
        ("c/q", 2000, GPU, "d/q"),
    ]


def test_what_nobody_lends_has_no_lender():
    """A min that was lowered under those who use it."""
    assert list(loans([status("a", borrowed={GPU: 1000})])) == []


@pytest.mark.parametrize(
    ("mins", "beyond"),
    [
        pytest.param(({GPU: 4000}, {GPU: 2000}), [], id="all there"),
        pytest.param(
            ({GPU: 4000}, {GPU: 3000}),
            [
                "the mins of all quotas add up to 7 nvidia.com/gpu, the nodes have 6: "
                "not every quota can have its min at the same time"
            ],
            id="one too many",
        ),
        pytest.param(({MEMORY: 208_000},), [], id="memory: two boards of 40 GB, four GPUs of 32"),
        pytest.param(({"example.com/fpga": 9000},), [], id="nobody knows"),
    ],
)
def test_mins_beyond_the_cluster_are_told_of(mins, beyond):
    """Q26: promised 10, there are 7."""
    nodes = [
        view_node(make_node("n1", count=2, resources={GPU: "2"})),  # which are its boards, and counted once
        view_node(make_node("n2", mode=None, resources={GPU: "4"})),
    ]
    statuses = [status(f"team-{index}", min=least) for index, least in enumerate(mins)]
    assert list(promised_beyond(statuses, nodes, DEFAULTS.quota)) == beyond
