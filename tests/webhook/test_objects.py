"""Quotas when they are written: what is refused, warned about, and not judged again."""

import pytest

from policies import names
from policies.model import CompositeElasticQuota
from tests.webhook.reviews import quota, written


def test_a_quota_is_refused_with_every_fault():
    """Q34: at apply time, all at once, with paths."""
    response = written(quota("new", min={"gpu": 1, names.GPU: 4}, max={names.GPU: 1}))
    assert response["status"]["code"] == 422
    assert response["status"]["message"].splitlines() == [
        "spec.min[gpu]: gpu: is no resource: write nvidia.com/gpu",
        "spec.min[nvidia.com/gpu]: 4: is more than spec.max[nvidia.com/gpu], 1: lower it, or raise that",
    ]


def test_a_quota_that_cannot_be_read_is_refused_with_its_path():
    response = written(quota("new", min=["cpu"]))
    assert response["status"]["message"].startswith("spec.min: ")


def test_a_quota_where_a_composite_governs_is_refused():
    assert "CompositeElasticQuota default/quota governs it already" in written(quota("one"))["status"]["message"]


def test_a_composite_over_quotas_that_are_there_is_allowed_with_a_warning():
    response = written(
        quota("default", CompositeElasticQuota, "new", namespaces=["lent", "absent"], min={names.GPU: 1}),
        resource="compositeelasticquotas",
    )
    assert response["allowed"]
    assert response["warnings"] == [
        "ElasticQuota lent/quota is no longer in force: this quota governs lent",
        "spec.namespaces: absent: is not there yet: it is governed once it is created",
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"finalizers": []}, id="its metadata alone"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, id="its deletion"),
    ],
)
def test_a_faulty_quota_that_stands_there_can_be_cleared_away(change):
    old = quota("broken", min={names.GPU: 3}, max={names.GPU: 1})
    assert written({**old, "metadata": {**old["metadata"], **change}}, old)["allowed"]
