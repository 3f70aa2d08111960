"""The arithmetic of quotas, with figures worked out by hand."""

import pytest

from policies import names
from policies.decision import QuotaStatus
from policies.governing import QuotaView, govern
from policies.quota import Usage, beyond_min, statuses

GPU = names.GPU


def quota(space, least, most=None):
    return QuotaView(kind="ElasticQuota", namespace=space, name="q", namespaces=(space,), min=least, max=most or {})


def usage(quotas, **used):
    found = Usage(quotas)
    for each in quotas:
        found.add(each, used.get(each.namespace, {}))
    return found


A, B, C = quota("a", {"cpu": 40_000}), quota("b", {"cpu": 10_000}), quota("c", {"cpu": 30_000})


def test_the_guaranteed_share_is_that_of_noss_example():
    """Q28; nos's key-concepts: mins 40, 10, 30; 30 unused: A 15, B 3.75 (nos rounds to whole units: 3), C 11.25."""
    found = usage([A, B, C], a={"cpu": 40_000}, b={"cpu": 40_000})
    assert [found.guaranteed(each, "cpu") for each in (A, B, C)] == [15_000, 3750, 11_250]
    assert found.guaranteed(A, GPU) == 0


def test_a_small_share_is_not_rounded_away():
    """Q23: 1 GPU of 5000, 1000 unused: 200 thousandths."""
    small, large = quota("s", {GPU: 1000}), quota("l", {GPU: 4_999_000})
    found = usage([small, large], s={GPU: 1000}, l={GPU: 3_999_000})
    assert found.guaranteed(small, GPU) == 200


def test_unused_is_kept_true_through_every_change():
    found = usage([A, B], a={"cpu": 50_000})
    found.add(A, {"cpu": 20_000}, -1)
    assert found.guaranteed(B, "cpu") == 10_000 * (10_000 + 10_000) // 50_000
    found.add(A, {"cpu": 30_000}, -1)
    assert (found.of(A), found.total) == ({"cpu": 0}, {"cpu": 0})


@pytest.mark.parametrize(
    ("used", "asked", "lacks"),
    [
        pytest.param({"a": 2}, 1, [], id="borrows"),
        pytest.param({"a": 3}, 1, [(GPU, "max", 3000, 3000)], id="Q05: max against the total, not the pod"),
        pytest.param({"a": 2, "b": 2}, 1, [(GPU, "sum", 4000, 4000)], id="sum of mins"),
        pytest.param({"a": 3, "b": 1}, 1, [(GPU, "max", 3000, 3000), (GPU, "sum", 4000, 4000)], id="both"),
        pytest.param({"a": 4}, 0, [], id="who asks for none of it lacks none of it"),
    ],
)
def test_a_pod_lacks_what_max_and_the_sum_of_mins_do_not_leave(used, asked, lacks):
    quotas = [quota("a", {GPU: 2000}, {GPU: 3000}), quota("b", {GPU: 2000})]
    found = usage(quotas, **{space: {GPU: count * 1000} for space, count in used.items()})
    got = found.lacks(quotas[0], {GPU: asked * 1000})
    assert [(lack.resource, lack.limit, lack.used, lack.bound) for lack in got] == lacks


def test_absent_is_not_zero():
    """Q06, Q08, Q36: a resource that min does not name is neither lent nor limited; none that a pod does not ask for holds it."""
    gpus, cpus = quota("a", {GPU: 1000}), quota("b", {"cpu": 4000})
    found = usage([gpus, cpus], a={GPU: 1000, "cpu": 24_000})
    assert found.total == {GPU: 1000, "cpu": 0}
    assert found.lacks(gpus, {"cpu": 99_000}) == []
    assert found.lacks(cpus, {GPU: 9000, "cpu": 4000}) == []
    assert [lack.resource for lack in found.lacks(cpus, {"cpu": 4001})] == ["cpu"]


def test_a_pod_that_may_not_be_evicted_stays_within_min():
    both = [quota("a", {GPU: 2000}), quota("b", {GPU: 2000})]
    found = usage(both, a={GPU: 2000})
    assert found.lacks(both[0], {GPU: 1000}) == []
    assert [lack.limit for lack in found.lacks(both[0], {GPU: 1000}, borrows=False)] == ["min"]


def test_what_is_larger_than_max_or_than_all_mins_can_never_run():
    both = [quota("a", {GPU: 2000}, {GPU: 5000}), quota("b", {GPU: 1000})]
    found = usage(both)
    assert [lack.limit for lack in found.never(both[0], {GPU: 3000})] == []
    assert [lack.limit for lack in found.never(both[0], {GPU: 4000})] == ["sum"]
    assert [lack.limit for lack in found.never(both[0], {GPU: 6000})] == ["max", "sum"]
    assert [lack.limit for lack in found.never(both[0], {GPU: 3000}, borrows=False)] == ["min"]


@pytest.mark.parametrize(
    ("charges", "labels"),
    [
        pytest.param([1, 1, 1], "in in over", id="nos: the third of min 2"),
        pytest.param([1, 2, 1], "in over over", id="the sum runs on over those beyond"),
        pytest.param([0, 2, 0, 1], "in in in over", id="who asks for nothing is in quota"),
        pytest.param([3], "over", id="one alone"),
    ],
)
def test_a_pod_is_over_quota_if_the_running_sum_exceeds_min_with_it(charges, labels):
    over = beyond_min(quota("a", {GPU: 2000}), ({GPU: count * 1000} for count in charges))
    assert " ".join("over" if beyond else "in" for beyond in over) == labels


def test_over_quota_in_one_dimension_is_over_quota():
    charges = [{"cpu": 1000, GPU: 1000}, {"cpu": 1000}, {GPU: 1000}]
    assert list(beyond_min(quota("a", {"cpu": 1000, GPU: 5000}), charges)) == [False, True, False]


def status(quotas, **used):
    return {each.namespace: each for each in statuses(govern(quotas), quotas, usage(quotas, **used))}


def test_what_is_borrowed_is_lent_in_proportion_to_what_stands_unused():
    quotas = [quota("a", {GPU: 1000}), quota("b", {GPU: 2000}), quota("c", {GPU: 4000})]
    got = status(quotas, a={GPU: 4000})
    assert got["a"].borrowed == {GPU: 3000}
    assert (got["b"].lent, got["c"].lent) == ({GPU: 1000}, {GPU: 2000})


def test_what_is_left_over_goes_by_name():
    """One thousandth of three cannot be halved: b, the first by name, lends it."""
    quotas = [quota("a", {GPU: 0}), quota("c", {GPU: 1000}), quota("b", {GPU: 1000})]
    got = status(quotas, a={GPU: 3})
    assert (got["b"].lent, got["c"].lent) == ({GPU: 2}, {GPU: 1})


def test_nobody_lends_more_than_stands_unused():
    """Somebody lowered a min under what is used."""
    quotas = [quota("a", {GPU: 0}), quota("b", {GPU: 1000})]
    got = status(quotas, a={GPU: 9000})
    assert (got["a"].borrowed, got["b"].lent) == ({GPU: 9000}, {GPU: 1000})


def test_used_is_told_of_all_that_min_and_max_name_and_of_nothing_else():
    (got,) = status([quota("a", {GPU: 1000}, {"cpu": 5000})], a={"cpu": 2000, "memory": 7}).values()
    assert got == QuotaStatus(
        kind="ElasticQuota", namespace="a", name="q", governs=("a",), min={GPU: 1000}, max={"cpu": 5000},
        used={"cpu": 2000, GPU: 0}, guaranteed={GPU: 1000},
    )  # fmt: skip
