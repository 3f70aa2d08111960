"""The tables agree with what NVIDIA documents and what drivers print (P12, P22)."""

import pytest

from policies.catalogue import by_product, canonical_profile, nominal_gb
from tests.builders import A30, A100, A100_80, H100, T4

RTX = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


@pytest.mark.parametrize(
    ("product", "profiles"),
    [
        (A100, "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
        (A100_80, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        (A30, "1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb"),
        ("NVIDIA-H100-NVL", "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),
        ("NVIDIA-GH200-480GB", "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb"),
        ("NVIDIA-H200", "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
        ("NVIDIA-B200", "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
        ("NVIDIA-GB200", "1g.23gb 1g.23gb+me 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"),
        ("NVIDIA-GB300", "1g.35gb 1g.35gb+me 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb"),
        (
            RTX,
            "1g.24gb 1g.24gb+gfx 1g.24gb+me 1g.24gb+me.all 1g.24gb-me "
            "2g.48gb 2g.48gb+gfx 2g.48gb+me.all 2g.48gb-me 4g.96gb 4g.96gb+gfx",
        ),
        (T4, ""),
    ],
)
def test_a_model_has_the_profiles_that_its_driver_lists(product, profiles):
    assert " ".join(profile.name for profile in by_product(product).profiles) == profiles


@pytest.mark.parametrize(
    ("product", "profile", "memory_mib", "starts", "identifier", "most"),
    [
        # NVIDIA-smi prints 4.75, 9.62, 19.5, 39.25 GiB on the A100-40; 5952 MiB on the A30; 9.75 and 79.25 on the H100.
        (A100, "1g.5gb", 4864, (0, 1, 2, 3, 4, 5, 6), 19, 7),
        (A100, "1g.10gb", 9856, (0, 2, 4, 6), 15, 4),
        (A100, "2g.10gb", 9856, (0, 2, 4), 14, 3),
        (A100, "3g.20gb", 19968, (0, 4), 9, 2),
        (A100, "4g.20gb", 19968, (0,), 5, 1),
        (A100, "7g.40gb", 40192, (0,), 0, 1),
        (A30, "1g.6gb", 5952, (0, 1, 2, 3), 14, 4),
        (A30, "2g.12gb+me", 11968, (0, 2), 6, 1),
        (H100, "1g.10gb", 9984, (0, 1, 2, 3, 4, 5, 6), 19, 7),
        (H100, "7g.80gb", 81152, (0,), 0, 1),
        (RTX, "2g.48gb", 48512, (0, 6), 5, 2),
    ],
)
def test_a_profile_has_its_documented_memory_and_places(product, profile, memory_mib, starts, identifier, most):
    found = by_product(product).profile(profile)
    assert (found.memory_mib, found.starts, found.id, found.max) == (memory_mib, starts, identifier, most)


def test_a_board_is_named_in_nominal_gigabytes_not_in_what_the_driver_reports():
    """P01: 15360 MiB are the 16 GB of a T4; an unknown board counts its GiB rounded up."""
    assert nominal_gb(T4, 15360) == 16
    assert nominal_gb("NVIDIA-L40S", 46068) == 48
    assert nominal_gb("NVIDIA-Z900", 15000) == 15


def test_suffixes_of_the_plugin_are_cut_off_the_product_label():
    assert by_product("NVIDIA-A30-SHARED") is by_product("NVIDIA-A30")
    assert by_product("NVIDIA-A30-MIG-1g.6gb") is by_product("NVIDIA-A30")
    assert by_product("NVIDIA-Z900-96GB") is None


@pytest.mark.parametrize(
    ("key", "profile"),
    [
        ("1g.5gb", "1g.5gb"),
        ("1g.5gb.me", "1g.5gb+me"),
        ("1g.24gb.me.all", "1g.24gb+me.all"),
        ("1g.24gb-me", "1g.24gb-me"),
    ],
)
def test_a_profile_in_a_key_is_read_as_the_driver_spells_it(key, profile):
    assert canonical_profile(key) == profile
