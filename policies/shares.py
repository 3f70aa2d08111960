"""What people may ask for without naming a slice: a share of a board, or memory. One closed grammar, exact numbers.

A share is a decimal (`0.25`), a Kubernetes quantity (`250m`) or a ratio (`1/7`). Memory with `Gi GiB Mi MiB` is real
memory, with `G GB` or no unit the nominal GB of slice names. Everything else is refused, never guessed (pain W39).
"""

import re
from fractions import Fraction
from typing import Final

import msgspec

SHARE_RULE: Final = "a share is more than 0 and at most 1, of at most 9 decimals: write for example 0.25, 250m or 1/7"
MEMORY_RULE: Final = (
    "memory is more than 0: Gi GiB Mi MiB are real memory, G GB or no unit the GB of slice names: "
    "write for example 10Gi, 4864MiB or 10GB"
)

_MOST_DECIMALS: Final = 9
_LEAST_DECIMALS: Final = 2  # the precision at which a share is compared at least, so that 0.3 is 0.30
_NUMBER: Final = r"([+-]?(?:[0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20}))"
_DECIMAL: Final = re.compile(_NUMBER + r"([mun]?)")
_RATIO: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
_MEMORY: Final = re.compile(_NUMBER + r"(Gi|GiB|Mi|MiB|G|GB)?")
_SUFFIX: Final = {"": 1, "m": 10**3, "u": 10**6, "n": 10**9}


class Share(msgspec.Struct, frozen=True):
    """A share of a board, 0 < numerator / denominator <= 1.

    Attributes:
        numerator: of the exact value, in lowest terms.
        denominator: likewise.
        decimals: the precision at which it is compared, trailing zeros dropped, at least 2; None: a ratio, exact.
    """

    numerator: int
    denominator: int
    decimals: int | None = None

    @property
    def exact(self) -> Fraction:
        """Return the exact value."""
        return Fraction(self.numerator, self.denominator)

    def met_by(self, part: int, whole: int) -> bool:
        """Return whether part / whole is at least this share, rounded half up to the precision of the share.

        So 0.29 and 0.143 mean 2/7 and 1/7, which they are at two and three decimals.
        """
        return self._as_written(part, whole) >= self.exact

    def equals(self, part: int, whole: int) -> bool:
        """Return whether part / whole is this share, rounded likewise."""
        return self._as_written(part, whole) == self.exact

    def exceeded_by(self, part: int, whole: int) -> bool:
        """Return whether part / whole is more than this share, rounded likewise."""
        return self._as_written(part, whole) > self.exact

    def _as_written(self, part: int, whole: int) -> Fraction:
        """Return part / whole, rounded half up to the precision of the share."""
        if self.decimals is None:
            return Fraction(part, whole)
        scale: int = 10**self.decimals
        return Fraction((2 * part * scale + whole) // (2 * whole), scale)

    def of(self, whole: int) -> int:
        """Return the share of so many units, rounded down, so that n shares of 1/n fit; at least 1."""
        return max(1, self.numerator * whole // self.denominator)

    def __str__(self) -> str:
        """Return it as a person writes it: `0.5`, or `1/7`."""
        if self.decimals is None:
            return f"{self.numerator}/{self.denominator}"
        digits = f"{self.numerator * 10**self.decimals // self.denominator:0{self.decimals + 1}d}"
        return f"{digits[: -self.decimals]}.{digits[-self.decimals :]}".rstrip("0").rstrip(".")


class Memory(msgspec.Struct, frozen=True):
    """An amount of memory above 0.

    Attributes:
        numerator: of the exact amount, in MiB if real, else in nominal GB.
        denominator: likewise.
        real: what a process can really use, not what the name of a slice says.
    """

    numerator: int
    denominator: int
    real: bool

    @property
    def exact(self) -> Fraction:
        """Return the exact value, in MiB if real, else in nominal GB."""
        return Fraction(self.numerator, self.denominator)

    def met_by(self, *, memory_mib: int, nominal_gb: int) -> bool:
        """Return whether a slice with so much real memory and such a name has at least this much."""
        return (memory_mib if self.real else nominal_gb) >= self.exact

    def equals(self, *, memory_mib: int, nominal_gb: int) -> bool:
        """Return whether a slice with so much real memory and such a name has exactly this much."""
        return (memory_mib if self.real else nominal_gb) == self.exact

    def gigabytes(self, *, memory_mib: int, nominal_gb: int) -> int:
        """Return the whole nominal GB of a board that hold this much, rounded up; may be more than the board has."""
        if not self.real:
            return -(-self.numerator // self.denominator)
        return -(-self.numerator * nominal_gb // (self.denominator * memory_mib))


def read_share(text: str) -> Share | None:
    """Return the share that a text means, or None: see SHARE_RULE."""
    if match := _RATIO.fullmatch(text):
        return _within(Fraction(int(match[1]), int(match[2])), exact=True) if int(match[2]) else None
    if match := _DECIMAL.fullmatch(text):
        return _within(_fraction(match[1]) / _SUFFIX[match[2]], exact=False)
    return None


def share_of(value: Fraction) -> Share | None:
    """Return the share that a resource quantity means, or None: see SHARE_RULE."""
    return _within(value, exact=False)


def read_memory(text: str) -> Memory | None:
    """Return the memory that a text means, or None: see MEMORY_RULE."""
    match = _MEMORY.fullmatch(text)
    amount = _fraction(match[1]) if match else Fraction(0)
    if match is None or amount <= 0:
        return None
    unit = match[2] or ""
    if unit.startswith("Gi"):
        amount *= 1024
    return Memory(amount.numerator, amount.denominator, real="i" in unit)


# ---------------------------------------------------------------------------------------------------------------------


def _fraction(number: str) -> Fraction:
    return Fraction(number.removesuffix("."))


def _within(value: Fraction, *, exact: bool) -> Share | None:
    if not 0 < value <= 1:
        return None
    if exact:
        return Share(value.numerator, value.denominator)
    decimals = next((d for d in range(_LEAST_DECIMALS, _MOST_DECIMALS + 1) if 10**d % value.denominator == 0), None)
    return Share(value.numerator, value.denominator, decimals) if decimals else None
