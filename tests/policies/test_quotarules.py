"""What is refused of a quota when it is written."""

import pytest

from policies import quotarules
from policies.governing import view_quota
from policies.model import CompositeElasticQuota, ElasticQuota, ObjectMeta, QuotaSpec


def elastic(namespace="team-a", name="quota", **spec):
    return view_quota(ElasticQuota(metadata=ObjectMeta(name=name, namespace=namespace), spec=QuotaSpec(**spec)))


def judge_quota(quota, others, old=None, exists=lambda _: True):
    return quotarules.judge_quota(quota, others, old, exists=exists)


def composite(*namespaces, name="quota", **spec):
    meta = ObjectMeta(name=name, namespace="default")
    return view_quota(CompositeElasticQuota(metadata=meta, spec=QuotaSpec(namespaces=namespaces, **spec)))


@pytest.mark.parametrize(
    ("quota", "faults"),
    [
        pytest.param(
            elastic(min={"nvidia.com/gpu": 4, "cpu": 2}, max={"nvidia.com/gpu": 1, "cpu": "1500m"}),
            [
                "spec.min[cpu]: 2: is more than spec.max[cpu], 1500m: lower it, or raise that",
                "spec.min[nvidia.com/gpu]: 4: is more than spec.max[nvidia.com/gpu], 1: lower it, or raise that",
            ],
            id="Q34-min-above-max-in-two",
        ),
        pytest.param(
            elastic(min={"gpu": 1, "nos.nebuly.com/gpu-mem": 2, "memory": "-1Gi", "cpu": "lots"}),
            [
                "spec.min[gpu]: gpu: is no resource: write nvidia.com/gpu",
                "spec.min[nos.nebuly.com/gpu-mem]: nos.nebuly.com/gpu-mem: is no resource: of ours there is nos.nebuly.com/gpu-memory",
                "spec.min[memory]: -1Gi: must not be negative: leave it out, or write 0 or more",
                "spec.min[cpu]: 'lots' is not a quantity; write for example 2, 500m or 4Gi",
            ],
            id="Q34-unknown-negative-and-unreadable-all-at-once",
        ),
        pytest.param(
            composite(min={"cpu": 1}),
            ["spec.namespaces: missing: a composite quota lists the namespaces that it governs"],
            id="a composite one over nothing",
        ),
        pytest.param(elastic(min={"cpu": 2, "nos.nebuly.com/gpu-memory": 16}, max={"cpu": 10}), [], id="as nos's guide"),
        pytest.param(elastic(), [], id="Q08-nothing-said-is-nothing-limited"),
    ],
)  # fmt: skip
def test_every_fault_of_a_quota_is_told_at_once(quota, faults):
    assert list(judge_quota(quota, [quota]).faults) == faults


@pytest.mark.parametrize(
    ("quota", "other", "faults"),
    [
        pytest.param(
            composite("team-a", "team-b"),
            composite("team-b", "team-c", name="old"),
            ["spec.namespaces: team-b: CompositeElasticQuota default/old lists it already: a namespace has one quota"],
            id="two composites over one namespace",
        ),
        pytest.param(
            elastic(),
            composite("team-a"),
            [
                "metadata.namespace: team-a: CompositeElasticQuota default/quota governs it already: "
                "leave the namespace out of that one first"
            ],
            id="where a composite governs",
        ),
        pytest.param(
            elastic(),
            elastic(name="old"),
            ["metadata.namespace: team-a: ElasticQuota team-a/old governs it already: change that one"],
            id="two in one namespace",
        ),
        pytest.param(elastic(), elastic("team-b"), [], id="another namespace"),
    ],
)
def test_a_namespace_has_one_quota(quota, other, faults):
    assert list(judge_quota(quota, [quota, other]).faults) == faults


def test_a_composite_over_the_quotas_of_its_namespaces_is_allowed_with_a_warning():
    pool = composite("team-a", "team-b", min={"cpu": 1})
    judged = judge_quota(pool, [elastic("team-a"), elastic("team-b"), elastic("team-c")])
    assert judged.faults == ()
    assert judged.warnings == (
        "ElasticQuota team-a/quota is no longer in force: this quota governs team-a",
        "ElasticQuota team-b/quota is no longer in force: this quota governs team-b",
    )


def test_who_mends_a_conflict_step_by_step_is_not_hindered():
    old = composite("team-a", "team-b", "team-c")
    rivals = [composite("team-a", "team-b", name="rival")]
    assert judge_quota(composite("team-b", "team-c"), rivals, old).faults == ()
    assert judge_quota(composite("team-a", "team-c"), rivals, composite("team-c")).faults != ()


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("quota", "warnings"),
    [
        pytest.param(elastic(min={"cpu": 2, "nos.nebuly.com/gpu-memory": 16}, max={"cpu": 10}), [], id="as nos's guide"),
        pytest.param(elastic(), ["spec: neither min nor max names a resource: this quota grants, lends and limits nothing"], id="empty"),
        pytest.param(elastic(min={GPU: 0}), [f"spec.min[{GPU}]: 0: all that is used of it is borrowed, and may be taken back any time"], id="min of 0"),
        pytest.param(elastic(min={GPU: 2}, max={GPU: 2, "cpu": 8}), ["spec.max[cpu]: spec.min does not name it: it is limited, but neither guaranteed nor lent"], id="max alone"),
        pytest.param(elastic(min={"nvidia.com/mig-9g.99gb": 1}), ["nvidia.com/mig-9g.99gb: no board of which Apportion knows makes such a slice"], id="a slice of no board"),
        pytest.param(elastic(min={"nvidia.com/mig-1g.5gb": 1, "nvidia.com/gpu-10gb": 1}), [], id="slices"),
        pytest.param(elastic(min={"nvidia.com/hostdev": 1}), ["nvidia.com/hostdev: is neither a GPU nor a slice: only pods that ask for it by this name are counted"], id="NVIDIA's, but no GPU"),
        pytest.param(composite("team-a", "team-b", "team-x", min={GPU: 1}), [
            "spec.namespaces: team-b: is not there yet: it is governed once it is created",
            "spec.namespaces: team-x: is not there yet: it is governed once it is created",
        ], id="namespaces that are not there"),
    ],
)  # fmt: skip
def test_what_is_odd_but_legal_is_allowed_with_a_warning(quota, warnings):
    judged = judge_quota(quota, [quota], exists=lambda namespace: namespace == "team-a")
    assert (judged.faults, list(judged.warnings)) == ((), warnings)
    assert all(len(warning) <= 256 for warning in warnings)  # longer ones may be cut


def test_of_a_changed_composite_only_new_namespaces_are_missed():
    old, new = composite("gone", min={GPU: 1}), composite("gone", min={GPU: 2})
    assert judge_quota(new, [], old, exists=lambda _: False).warnings == ()
