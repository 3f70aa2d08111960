"""Quota objects: their faults, all at once, and who governs which namespace."""

import msgspec
import pytest

from policies import names
from policies.governing import govern, view_quota
from policies.model import CompositeElasticQuota, ElasticQuota


def eq(space="a", name="q", created=None, **spec):
    return read(ElasticQuota, space, name, created, spec)


def ceq(space="a", name="c", created=None, **spec):
    return read(CompositeElasticQuota, space, name, created, spec)


def read(kind, space, name, created, spec):
    meta = {"namespace": space, "name": name, "creationTimestamp": created, "generation": 3}
    return view_quota(msgspec.convert({"metadata": meta, "spec": spec}, kind))


def test_the_quotas_of_nos_are_read_as_they_are():
    """facts/nos.md: the manifests of its documentation, numbers and all."""
    one = eq("team-a", "quota-a", min={"cpu": 2, "nos.nebuly.com/gpu-memory": 16}, max={"cpu": 10})
    assert (one.title, one.min, one.max, one.faults) == (
        "ElasticQuota team-a/quota-a",
        {"cpu": 2000, "nos.nebuly.com/gpu-memory": 16_000},
        {"cpu": 10_000},
        (),
    )
    both = ceq(
        "default", "quota-bc", namespaces=["team-c", "team-b"], min={"nvidia.com/gpu": 4}, max={"nvidia.com/gpu": 8}
    )
    assert (both.namespaces, both.min, both.faults) == (("team-b", "team-c"), {"nvidia.com/gpu": 4000}, ())


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        pytest.param({"min": {"cpu": 4}, "max": {"cpu": "500m"}}, ["spec.min[cpu]: 4: is more than spec.max[cpu], 500m: lower it, or raise that"], id="Q34"),
        pytest.param({"min": {"memory": "8Gi"}, "max": {"memory": "4096Mi"}}, ["spec.min[memory]: 8Gi: is more than spec.max[memory], 4Gi: lower it, or raise that"], id="Q34 in bytes"),
        pytest.param({"min": {"memory": "-1Gi"}}, ["spec.min[memory]: -1Gi: must not be negative: leave it out, or write 0 or more"], id="negative"),
        pytest.param({"min": {"cpu": "lots"}}, ["spec.min[cpu]: 'lots' is not a quantity; write for example 2, 500m or 4Gi"], id="no quantity"),
        pytest.param({"max": {"gpu": 1}}, ["spec.max[gpu]: gpu: is no resource: write nvidia.com/gpu"], id="no prefix"),
        pytest.param({"min": {"nos.nebuly.com/gpu-mem": 1}}, ["spec.min[nos.nebuly.com/gpu-mem]: nos.nebuly.com/gpu-mem: is no resource: of ours there is nos.nebuly.com/gpu-memory"], id="near miss"),
        pytest.param({"min": {"cpu": "x", "gpus": 1}, "max": {"memory": -1}}, 3, id="all at once"),
        pytest.param({}, [], id="Q36: nothing said, nothing limited"),
        pytest.param({"min": {"hugepages-2Mi": "1Gi", "example.com/fpga": 1}, "max": {"cpu": 0}}, [], id="other resources"),
    ],
)  # fmt: skip
def test_every_fault_of_a_quota_is_told_at_once(spec, faults):
    found = eq(**spec).faults
    assert len(found) == faults if isinstance(faults, int) else list(found) == faults


RULE = "cpu, memory, ephemeral-storage or a name with a prefix, such as nvidia.com/gpu"


@pytest.mark.parametrize(
    ("resource", "way_out"),
    [
        pytest.param("nvidia.com/gpus", "is no resource: write nvidia.com/gpu", id="plural"),
        pytest.param("nvidia.com/GPU", "is no resource: write nvidia.com/gpu", id="upper case"),
        pytest.param("nvidia.com.gpu", "is no resource: write nvidia.com/gpu", id="a dot for the slash"),
        pytest.param("nvidia.com/gpu-shared", "is no resource: write nvidia.com/gpu.shared", id="shared"),
        pytest.param("nvidia.com/mig-1g.5gbb", "is no resource: write nvidia.com/mig-1g.5gb", id="MIG"),
        pytest.param("nvidia.com/gpu-10g", "is no resource: write nvidia.com/gpu-10gb", id="MPS"),
        pytest.param("gpu-memory", "is no resource: write nos.nebuly.com/gpu-memory", id="without our prefix"),
        pytest.param("nos.nebuly.com/gpu_memory", "is no resource: write nos.nebuly.com/gpu-memory", id="underscore"),
        pytest.param("nos.nebuly.com/gpu", "is no resource: of ours there is nos.nebuly.com/gpu-memory", id="of ours"),
        pytest.param("CPU", "is no resource: write cpu", id="cpu"),
        pytest.param("requests.nvidia.com/gpu", "is a key of a ResourceQuota: write nvidia.com/gpu", id="as in ResourceQuota"),
        pytest.param("limits.cpu", "is a key of a ResourceQuota: write cpu", id="limits, as in ResourceQuota"),
        pytest.param("pods", f"is no resource: write {RULE}", id="what no container asks for"),
        pytest.param("nvidia.com/", f"is no resource: write {RULE}", id="nothing after the prefix"),
        pytest.param("example.com/a/b", f"is no resource: write {RULE}", id="two slashes"),
        pytest.param("hugepages-", f"is no resource: write {RULE}", id="hugepages of no size"),
    ],
)  # fmt: skip
def test_a_name_that_is_no_resource_is_refused_with_the_right_one(resource, way_out):
    assert eq(min={resource: 1}).faults == (f"spec.min[{resource}]: {resource}: {way_out}",)


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.me",
     "nvidia.com/mig-1c.3g.20gb", "nvidia.com/gpu-10gb", "nos.nebuly.com/gpu-memory", "amd.com/gpu", "nvidia.com/pgpu",
     "nvidia.com/hostdev", "nvidia.com/rdma_shared_device_a", "hugepages-2Mi", "ephemeral-storage"],
)  # fmt: skip
def test_names_of_ours_and_of_other_plugins_are_resources(resource):
    assert eq(min={resource: 1}).faults == ()


@pytest.mark.parametrize(
    ("resource", "amount", "faults"),
    [
        pytest.param("nvidia.com/mig-1g.5gb", "1500m", ("spec.min[nvidia.com/mig-1g.5gb]: 1500m: comes in whole numbers only: write 2",), id="slice"),
        pytest.param("example.com/fpga", 0.5, ("spec.min[example.com/fpga]: 0.5: comes in whole numbers only: write 1",), id="another plugin's"),
        pytest.param("nvidia.com/gpu", "500m", (), id="GPUs: a slice counts with its share"),
        pytest.param("nos.nebuly.com/gpu-memory", "2.5", (), id="GB of GPU memory"),
        pytest.param("cpu", "1500m", (), id="cpu"),
        pytest.param("hugepages-2Mi", "2Mi", (), id="hugepages"),
    ],
)  # fmt: skip
def test_what_comes_whole_is_owned_whole(resource, amount, faults):
    assert eq(min={resource: amount}).faults == faults


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        pytest.param("10Gi", 10, id="GiB"),
        pytest.param("10G", 10, id="GB"),
        pytest.param("15000Mi", 15, id="MiB, rounded up"),
        pytest.param("1Ti", 1024, id="TiB"),
        pytest.param(80_000_000_000, 80, id="bytes"),
        pytest.param("1Mi", 1, id="the least in Mi"),
        pytest.param(1_000_001, 1, id="just too much"),
    ],
)
@pytest.mark.parametrize("field", ["min", "max"])
def test_gpu_memory_written_in_bytes_is_refused_with_its_gb(field, written, meant):
    """`10Gi` would own ten billion GB: a quota that guarantees and limits nothing real."""
    path = f"spec.{field}[nos.nebuly.com/gpu-memory]"
    quota = eq("a", "own", **{field: {"nos.nebuly.com/gpu-memory": written}})
    faults = (f"{path}: {written}: is counted in GB, not in bytes: write {meant}",)
    assert quota.faults == faults
    assert govern([quota]).unready == {quota.title: (names.QUOTA_FAULTY, faults[0])}, "one that exists is Invalid"


@pytest.mark.parametrize("gb", [0, 40, "2500m", "1k", 1_000_000, "1M"])
def test_gpu_memory_of_the_largest_clusters_is_an_amount(gb):
    assert eq(min={"nos.nebuly.com/gpu-memory": gb}).faults == ()


@pytest.mark.parametrize(
    ("namespaces", "faults"),
    [
        pytest.param(None, ["spec.namespaces: missing: a composite quota lists the namespaces that it governs"], id="none"),
        pytest.param([], ["spec.namespaces: missing: a composite quota lists the namespaces that it governs"], id="an empty list"),
        pytest.param(
            ["a", "", "a", "team-*", "Team"],
            [
                'spec.namespaces[1]: "": is no name of a namespace: list each by its own name',
                "spec.namespaces[2]: a: stands there twice: leave one out",
                "spec.namespaces[3]: team-*: is no name of a namespace: list each by its own name",
                "spec.namespaces[4]: Team: is no name of a namespace: list each by its own name",
            ],
            id="all at once",
        ),
    ],
)  # fmt: skip
def test_a_composite_quota_names_its_namespaces(namespaces, faults):
    assert list(ceq(min={"cpu": 1}, namespaces=namespaces).faults) == faults


def test_a_composite_quota_wins_and_nobody_is_deleted():
    """nos deletes the smaller quota; here it is superseded."""
    pool, own = ceq("a", "pool", "2026-01-02T00:00:00Z", namespaces=["a", "b"]), eq("a", "old", "2026-01-01T00:00:00Z")
    governed = govern([own, pool])
    assert {space: each.title for space, each in governed.by_namespace.items()} == dict.fromkeys("ab", pool.title)
    assert governed.unready == {own.title: (names.QUOTA_SUPERSEDED, f"{pool.title} governs namespace a")}
    assert governed.namespaces == {pool.title: ("a", "b")}


def test_of_two_quotas_the_older_governs():
    young, old = eq("a", "a", "2026-01-02T00:00:00Z"), eq("a", "b", "2026-01-01T00:00:00Z")
    governed = govern([young, old])
    assert governed.by_namespace["a"] is old
    assert governed.unready[young.title] == (
        names.QUOTA_CONFLICT,
        "ElasticQuota a/b, which is older, governs namespace a too: delete one of them",
    )


def test_a_composite_quota_in_conflict_governs_nothing_and_its_other_namespaces_wait():
    old, young = (
        ceq("x", "old", "2026-01-01T00:00:00Z", namespaces=["a"]),
        ceq("x", "young", "2026-01-02T00:00:00Z", namespaces=["a", "b", "c"]),
    )
    own = eq("c", "own", "2026-01-03T00:00:00Z")
    governed = govern([young, old, own])
    assert {space: each.name for space, each in governed.by_namespace.items()} == {"a": "old", "b": "young", "c": "own"}
    assert set(governed.unready) == {young.title}


def test_a_faulty_quota_disturbs_nobody_else():
    """Q37."""
    broken = ceq("x", "broken", namespaces=["a", "b"], min={"cpu": -1})
    governed = govern([broken, eq("a", "own", min={"cpu": 1})])
    assert {space: each.name for space, each in governed.by_namespace.items()} == {"a": "own", "b": "broken"}
    assert governed.unready == {
        broken.title: (names.QUOTA_FAULTY, "spec.min[cpu]: -1: must not be negative: leave it out, or write 0 or more")
    }
