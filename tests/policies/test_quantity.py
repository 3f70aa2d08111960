"""Quantities are exact, and written back as the API server writes them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.quantity import QuantityError, canonical, format_milli, milli, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("500m", Fraction(1, 2), id="milli"),
        pytest.param("0.5", Fraction(1, 2), id="decimal"),
        pytest.param(".5", Fraction(1, 2), id="no-leading-digit"),
        pytest.param("5.", Fraction(5), id="no-trailing-digit"),
        pytest.param("1.5Gi", Fraction(1610612736), id="binary"),
        pytest.param("2e3", Fraction(2000), id="exponent"),
        pytest.param("1E", Fraction(10**18), id="exa-is-no-exponent"),
        pytest.param("-2", Fraction(-2), id="negative"),
        pytest.param("16Ei", Fraction(9223372036854775807), id="capped-as-by-the-api-server"),
        pytest.param("-1E999", Fraction(-9223372036854775807), id="negative-and-capped"),
        pytest.param(2, Fraction(2), id="a-number-in-yaml"),
        pytest.param(0.25, Fraction(1, 4), id="a-decimal-number-in-yaml"),
    ],
)
def test_a_quantity_is_read_exactly(text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "NaN", "inf", "1e", "1K", "2000mb", " 1", "1 ", "0x10", "1_000", "٣", True, "9" * 5000, "." + "1" * 5000],
)
def test_what_is_no_quantity_is_refused_by_name(text):
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("300m", 300), ("1", 1000), ("1n", 1), ("1.0001", 1001), ("-1.5", -1500), ("1Ki", 1024000)],
)
def test_thousandths_round_up_as_the_api_server_does(text, thousandths):
    assert milli(text) == thousandths


@pytest.mark.parametrize(
    ("text", "written"),
    [
        # design.md 8: 2000m is 2. The rest: Quantity's documented canonical form.
        ("2000m", "2"),
        ("0.5", "500m"),
        ("0.29", "290m"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("0", "0"),
        (2, "2"),
    ],
)
def test_a_quantity_is_written_as_the_api_server_writes_it(text, written):
    assert canonical(text) == written


def test_amounts_print_with_the_suffixes_of_their_resource():
    assert format_milli(300) == "300m"
    assert format_milli(838860800000, binary=True) == "800Mi"
    assert format_milli(1500, binary=True) == "1500m"


@given(st.integers(-(10**18), 10**18))
def test_writing_and_reading_again_changes_nothing(thousandths):
    assert milli(format_milli(thousandths)) == thousandths
    assert milli(format_milli(thousandths, binary=True)) == thousandths


@given(st.integers(-(10**21), 10**21), st.integers(-(2**53 - 1), 2**53 - 1))
def test_an_amount_is_written_as_the_quantity_that_it_is(thousandths, kibi):
    assert format_milli(thousandths) == canonical(f"{thousandths}m")
    assert format_milli(kibi * 1024_000, binary=True) == canonical(f"{kibi}Ki")
