"""Amounts for people: decimals instead of suffixes for thousandths, and units of bytes that say what was written."""

import pytest

from console.amounts import shown, written

GPU, BYTES = "nvidia.com/gpu", 1000


@pytest.mark.parametrize(
    ("resource", "thousandths", "text"),
    [
        pytest.param(GPU, 17_142, "17.142", id="all three decimals"),
        pytest.param(GPU, 300, "0.3", id="no zeros behind"),
        pytest.param(GPU, 10_000, "10", id="whole, zeros and all"),
        pytest.param(GPU, 0, "0", id="nothing"),
        pytest.param(GPU, -1_500, "-1.5", id="below zero"),
        pytest.param("cpu", 1_500, "1.5", id="cores"),
        pytest.param("memory", 100 * 1024**3 * BYTES, "100Gi", id="memory"),
        pytest.param("memory", 1536 * 1024**2 * BYTES, "1.5Gi", id="one and a half"),
        pytest.param("memory", 4000 * 1024**2 * BYTES, "4000Mi", id="as it was written, not 3.90625Gi"),
        pytest.param("memory", 10**10 * BYTES, "9.313Gi", id="10G, cut off"),
        pytest.param("memory", 800 * BYTES, "800", id="a few bytes"),
        pytest.param("memory", 500, "0.5", id="half a byte"),
        pytest.param("memory", 0, "0", id="no bytes"),
        pytest.param("ephemeral-storage", 2 * 1024**4 * BYTES, "2Ti", id="storage"),
        pytest.param("hugepages-2Mi", 20 * 1024**3 * BYTES, "20Gi", id="huge pages, and not as many bytes"),
    ],
)
def test_amounts_are_shown_as_people_write_them(resource, thousandths, text):
    assert shown(resource, thousandths) == text


def test_data_has_canonical_quantities():
    assert written({GPU: 17_142, "memory": 1536 * 1024**2 * BYTES}) == {GPU: "17142m", "memory": "1536Mi"}
