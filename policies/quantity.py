"""Kubernetes quantities as exact numbers, and back.

Amounts of resources are integers in thousandths of the resource's own unit (millicores, thousandths of a
byte, thousandths of a GPU), for every resource alike: that is the finest step that the API server keeps for
what pods ask for, and it needs no table of units. Nothing here is ever a float.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

Quantity = str | int | float
"""A quantity as it stands in JSON or YAML: the API server writes text, people also write numbers."""

Amounts = Mapping[str, int]
"""Thousandths of each resource's unit. A resource that is absent is not zero: nothing was said of it."""

_BYTES: Final = ("memory", "ephemeral-storage")
_HUGEPAGES: Final = "hugepages-"  # and the size of a page; counted in bytes all the same

# Source: k8s.io/apimachinery, api/resource/suffix.go.
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST: Final = Fraction(2**63 - 1)  # the API server caps larger amounts at that
_FROM_MILLI: Final = tuple(name for name, power in _DECIMAL.items() if power >= -3)
# At most so many digits: Python refuses to read numbers of more than 4300, and nobody means one of 60.
_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]{1,60}\.?[0-9]{0,60}|\.[0-9]{1,60})(?:([eE][+-]?[0-9]{1,3})|([KMGTPE]i|[numkMGTPE]))?"
)


class QuantityError(msgspec.ValidationError):
    """The text is no Kubernetes quantity. Of msgspec's kind, so that an object with one is unreadable like any other."""


def parse(quantity: Quantity) -> Fraction:
    """Return the exact value of a quantity such as `500m`, `1.5Gi`, `2e3` or 2; may be negative, within 64 bits.

    Raises QuantityError for anything else, NaN and infinity included.
    """
    text = str(quantity)
    match = None if isinstance(quantity, bool) else _QUANTITY.fullmatch(text)
    if match is None:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise QuantityError(f"{shown!r} is not a quantity; write for example 2, 500m or 4Gi")
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits.rstrip(".") if digits.endswith(".") else digits)
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    elif suffix in _BINARY:
        value *= 2 ** _BINARY[suffix]
    elif suffix:
        value *= Fraction(10) ** _DECIMAL[suffix]
    value = min(value, _LARGEST)
    return -value if sign == "-" else value


@lru_cache(maxsize=1 << 12, typed=True)  # pods ask for the same few amounts again and again; 1 is not True
def milli(quantity: Quantity) -> int:
    """Return a quantity in thousandths, rounded up as the API server's MilliValue does. Raises QuantityError."""
    thousandths = parse(quantity) * 1000
    return -(-thousandths.numerator // thousandths.denominator)


def amounts(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return a resource list in thousandths. Raises QuantityError."""
    return {name: milli(quantity) for name, quantity in (quantities or {}).items()}


def canonical(quantity: Quantity) -> str:
    """Return a quantity as the API server writes it back: `2000m` is `2`, `0.5` is `500m`, `1024Mi` is `1Gi`.

    The family of suffixes (decimal or binary) of the text is kept. Source: Quantity.CanonicalizeBytes of
    k8s.io/apimachinery, but for the exponent form, which is written with a decimal suffix. Raises QuantityError.
    """
    value = parse(quantity)
    binary = str(quantity).endswith("i")
    if binary and value.denominator == 1 and abs(value) >= 1024:
        return _with_suffix(value, [(name, Fraction(2**power)) for name, power in reversed(_BINARY.items())])
    # Below one nano the API server rounds up; nothing that a pod asks for is so small.
    return _with_suffix(value, [(name, Fraction(10) ** power) for name, power in reversed(_DECIMAL.items())])


def format_milli(thousandths: int, *, binary: bool = False) -> str:
    """Return an amount in thousandths as a canonical quantity, with binary suffixes (`800Mi`) if asked and exact."""
    if binary and thousandths % 1024_000 == 0:
        return _shortened(thousandths // 1024_000, 1024, tuple(_BINARY))
    return _shortened(thousandths, 1000, _FROM_MILLI)


def in_bytes(resource: str) -> bool:
    """Return whether a resource is counted in bytes, which people write with binary suffixes."""
    return resource in _BYTES or resource.startswith(_HUGEPAGES)


@lru_cache(maxsize=1 << 12)
def amount(resource: str, thousandths: int) -> str:
    """Return an amount of a resource as people write it: bytes with binary suffixes."""
    return format_milli(thousandths, binary=in_bytes(resource))


# ---------------------------------------------------------------------------------------------------------------------


def _shortened(number: int, step: int, suffixes: tuple[str, ...]) -> str:
    """Return a number of the first unit in the largest that leaves it whole; each is `step` of the one before it."""
    if number == 0:
        return "0"
    place = 0
    while number % step == 0 and place < len(suffixes) - 1:
        number, place = number // step, place + 1
    return f"{number}{suffixes[place]}"


def _with_suffix(value: Fraction, suffixes: list[tuple[str, Fraction]]) -> str:
    """Return the value with the largest suffix that leaves a whole number; zero is `0`."""
    if value == 0:
        return "0"
    for name, unit in suffixes:
        if (value / unit).denominator == 1:
            return f"{value / unit}{name}"
    name, unit = suffixes[-1]
    return f"{-(-value // unit)}{name}"
