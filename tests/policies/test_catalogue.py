"""Names of models and profiles, and their GB. The tables themselves are checked in test_tables."""

import pytest

from policies.catalogue import by_product, canonical_profile, nominal_gb
from tests.builders import T4


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
