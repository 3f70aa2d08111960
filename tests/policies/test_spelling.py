"""Near misses of our keys get the right key; other tools' keys get ours."""

import pytest

from policies import names
from policies.spelling import (
    FOREIGN_ANNOTATIONS,
    FOREIGN_RESOURCES,
    foreign_advice,
    is_slice_name,
    meant_resource,
    nearest,
)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("nos.nebuly.com/gpu-fractoin", names.FRACTION), ("nos.nebuly.com/gpu-fracton", names.FRACTION),
        ("nos.nebuly.com/gpu_fraction", names.FRACTION), ("nos.nebuly.com/GPU-Fraction", names.FRACTION),
        ("nos.nebuly.com/gpufraction", names.FRACTION), ("nos.nebuly.com/gpu-memori", names.MEMORY),
        ("nos.nebuly.com/gpu-node", names.MODE), ("nos.nebuly.com/gpu-counts", names.COUNT),
        ("nos.nebuly.com/gpu-containers", names.CONTAINER), ("nos.nebuly.com/nonpreemptible", names.NON_PREEMPTIBLE),
        ("nos.nebuly.com/gpu-mem", None), ("nos.nebuly.com/owner", None), ("nos.nebuly.com/", None),
    ],
)  # fmt: skip
def test_a_key_of_our_prefix_within_two_edits_is_a_near_miss(key, meant):
    """W34."""
    assert nearest(key) == meant


@pytest.mark.parametrize(
    ("resource", "meant"),
    [
        ("nvidia.com/gpu-10g", "nvidia.com/gpu-10gb"), ("nvidia.com/gpu-10gib", "nvidia.com/gpu-10gb"),
        ("nvidia.com/gpu-10Gb", "nvidia.com/gpu-10gb"), ("nvidia.com/gpu-10", "nvidia.com/gpu-10gb"),
        ("nvidia.com/gpu-010gb", "nvidia.com/gpu-10gb"), ("nvidia.com/gpu-0gb", "nvidia.com/gpu-1gb"),
        ("nvidia.com/mig-1g-10gb", "nvidia.com/mig-1g.10gb"), ("nvidia.com/mig-1g.10g", "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig-1g", "nvidia.com/mig-1g.5gb"), ("nvidia.com/MIG-3g.20gb", "nvidia.com/mig-3g.20gb"),
        ("nvidia.com.gpu", "nvidia.com/gpu"), ("nvidia.com.gpu-10g", "nvidia.com/gpu-10gb"),
        ("nvidia.com.mig-1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("nvidia.com/gpu", None), ("nvidia.com/gpu.shared", None), ("nvidia.com/gpumem", None), ("nvidia.com.x", None),
        ("nvidia.com/gpu-10gb", None), ("nvidia.com/mig-1g.5gb.me", None), ("nvidia.com/gpu-operator", None),
        ("example.com/gpu-10g", None), ("cpu", None),
    ],
)  # fmt: skip
def test_a_misspelt_slice_is_recognised_by_its_shape(resource, meant):
    """W34: nvidia.com.gpu, gpu-10Gb, gpu-10gib, mig-1g-10gb."""
    assert meant_resource(resource) == meant


@pytest.mark.parametrize("suffix", ["", ".me", ".me.all", ".gfx", "-me"])
def test_every_suffix_of_a_profile_is_a_slice_name(suffix):
    assert is_slice_name(f"nvidia.com/mig-1g.24gb{suffix}")


def test_keys_of_other_tools_are_answered_with_ours_and_the_value():
    """W39."""
    assert foreign_advice(FOREIGN_ANNOTATIONS, {"gpu-fraction": "0.5", "gpu-memory": "2000", "x": "y"}, None) == (
        'gpu-fraction is a key of KAI and asks for nothing here; write nos.nebuly.com/gpu-fraction: "0.5"',
        'gpu-memory is a key of KAI and asks for nothing here; write nos.nebuly.com/gpu-memory: "2000Mi"',
    )
    assert foreign_advice(
        FOREIGN_RESOURCES, {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": "30"}, "default-scheduler"
    ) == (
        'nvidia.com/gpumem is a key of HAMi and asks for nothing here; write nos.nebuly.com/gpu-memory: "3000Mi"',
        "nvidia.com/gpucores is a key of HAMi and asks for nothing here; the compute follows the share or memory that is asked for",
    )
    assert foreign_advice(FOREIGN_RESOURCES, {"nvidia.com/gpumem-percentage": "30"}, None)[0].endswith(
        'gpu-fraction: "30/100"'
    )


@pytest.mark.parametrize(
    ("key", "scheduler"),
    [("gpu-fraction", "kai-scheduler"), ("nvidia.com/gpumem", "hami-scheduler"), ("volcano.sh/vgpu-number", "volcano")],
)
def test_a_pod_that_names_the_other_tools_scheduler_is_told_nothing(key, scheduler):
    assert foreign_advice(FOREIGN_ANNOTATIONS | FOREIGN_RESOURCES, {key: "1"}, scheduler) == ()
    assert foreign_advice(FOREIGN_ANNOTATIONS | FOREIGN_RESOURCES, {key: "1"}, "other")
