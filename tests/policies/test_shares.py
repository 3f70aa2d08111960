"""The grammar of shares and memory, and what they mean on a board."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.shares import Memory, Share, read_memory, read_share


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("0.25", Share(1, 4, 2)), (".25", Share(1, 4, 2)), ("250m", Share(1, 4, 2)), ("0.250", Share(1, 4, 2)),
        ("0.5", Share(1, 2, 2)), ("0.143", Share(143, 1000, 3)), ("142857143n", Share(142857143, 10**9, 9)),
        ("0.142857143", Share(142857143, 10**9, 9)), ("1", Share(1, 1, 2)), ("1.", Share(1, 1, 2)), ("1.0", Share(1, 1, 2)),
        ("1000m", Share(1, 1, 2)), ("+0.5", Share(1, 2, 2)), ("0.5000000000", Share(1, 2, 2)),
        ("1/7", Share(1, 7)), ("2/14", Share(1, 7)), ("7/7", Share(1, 1)),
    ],
)  # fmt: skip
def test_shares_are_decimals_quantities_and_ratios(text, share):
    assert read_share(text) == share


@pytest.mark.parametrize(
    "text",
    ["0", "0.0", "-1", "-0.5", "1.5", "1.2", "1001m", "8/7", "1/0", "0/7", "-1/7", "50%", "NaN", "nan", "inf", "1e-1", "5E-1",
     "0.1428571428", "1428571428e-10", "", ".", " 0.5", "0.5 ", "0,5", "1/7/2", "0x1", "½", "\u0660.\u0665", "0.5Gi", "1k", "half", "9" * 5000,
     "0." + "1" * 5000, "1/" + "9" * 5000],
)  # fmt: skip
def test_what_is_no_share_is_refused(text):
    """W34, W39: one closed grammar; what it does not know is never taken for something else."""
    assert read_share(text) is None


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("10Gi", Memory(10240, 1, real=True)), ("10GiB", Memory(10240, 1, real=True)), ("9.6Gi", Memory(49152, 5, real=True)),
        ("4864MiB", Memory(4864, 1, real=True)), ("8000Mi", Memory(8000, 1, real=True)),
        ("10", Memory(10, 1, real=False)), ("10GB", Memory(10, 1, real=False)), ("10G", Memory(10, 1, real=False)),
        ("9.5G", Memory(19, 2, real=False)), ("0.5", Memory(1, 2, real=False)),
    ],
)  # fmt: skip
def test_memory_with_i_is_real_and_without_is_nominal(text, memory):
    """W39."""
    assert read_memory(text) == memory


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "-10Gi", "0Gi", "2000mb", "2000M", "2000MB", "10gb", "10gi", "10GI", "10 Gi", "10Ti", "10K", "10e3", "NaN", "10%", "1/2", "",
     "Gi", "9" * 5000],
)  # fmt: skip
def test_what_is_no_memory_is_refused(text):
    """W39."""
    assert read_memory(text) is None


@pytest.mark.parametrize(
    ("text", "part", "met"),
    [  # of 7 compute slices, by design 3.3
        ("0.29", 2, True), ("290m", 2, True), ("0.286", 2, True), ("0.287", 2, False), ("0.28", 2, True), ("0.3", 2, False),
        ("0.14", 1, True), ("0.143", 1, True), ("0.142857143", 1, True), ("0.15", 1, False), ("1/7", 1, True), ("2/7", 1, False),
        ("1/3", 2, False), ("0.57", 4, True), ("0.572", 4, False), ("0.6", 4, False), ("1", 7, True), ("0.99", 6, False),
    ],
)  # fmt: skip
def test_a_decimal_is_compared_at_its_own_precision_and_a_ratio_exactly(text, part, met):
    assert read_share(text).met_by(part, 7) is met


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [("0.5", 20), ("0.333", 13), ("0.142857", 5), ("1/7", 5), ("0.29", 11), ("3/7", 17), ("1", 40), ("0.01", 1)],
)
def test_a_share_of_nominal_gb_is_rounded_down_to_at_least_one(text, gigabytes):
    assert read_share(text).of(40) == gigabytes


@pytest.mark.parametrize(
    ("text", "memory_mib", "nominal_gb", "gigabytes"),
    [
        ("10GB", 40960, 40, 10), ("9.5G", 40960, 40, 10), ("9.8Gi", 40960, 40, 10), ("10.5Gi", 40960, 40, 11),
        ("4500Mi", 40960, 40, 5), ("41", 40960, 40, 41), ("7.5Gi", 15360, 16, 8), ("5Gi", 15360, 16, 6),
        ("15Gi", 15360, 16, 16), ("15.5Gi", 15360, 16, 17),
    ],
)  # fmt: skip
def test_memory_is_rounded_up_to_whole_nominal_gb(text, memory_mib, nominal_gb, gigabytes):
    assert read_memory(text).gigabytes(memory_mib=memory_mib, nominal_gb=nominal_gb) == gigabytes


@given(st.integers(1, 10**9))
def test_a_share_is_written_as_it_can_be_read(billionths):
    share = read_share(f"{billionths}n")
    assert read_share(str(share)) == share
    assert Fraction(share.numerator, share.denominator) == Fraction(billionths, 10**9)
    assert str(read_share("2/14")) == "1/7"


@given(st.integers(1, 200), st.integers(1, 200))
def test_n_shares_of_one_nth_fit_a_board(n, gigabytes):
    assert read_share(f"1/{n}").of(gigabytes) * min(n, gigabytes) <= gigabytes
