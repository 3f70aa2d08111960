"""Amounts as tables show them: decimals for people, where data has canonical quantities (`17.142`, not `17142m`)."""

from collections.abc import Mapping
from typing import Final

from policies.quantity import amount, in_bytes

_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_STEP: Final = 1000  # three decimals: all there are of GPUs and cores


def shown(resource: str, thousandths: int) -> str:
    """Return an amount for people, with at most three decimals.

    Bytes stand in the largest binary unit of which there is one, or in the next if only that is exact (`4000Mi`); what
    has no end in either is cut off.
    """
    largest = 0
    while in_bytes(resource) and largest + 1 < len(_UNITS) and abs(thousandths) >= _unit(largest + 1):
        largest += 1
    exact = (power for power in (largest, largest - 1) if power >= 0 and not thousandths * _STEP % _unit(power))
    power = next(exact, largest)
    whole, rest = divmod(abs(thousandths) * _STEP // _unit(power), _STEP)
    decimals = f".{rest:03d}".rstrip("0.")
    return f"{'-' if thousandths < 0 else ''}{whole}{decimals}{_UNITS[power]}"


def written(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts as data: canonical quantities, by name."""
    return {name: amount(name, thousandths) for name, thousandths in sorted(amounts.items())}


def _unit(power: int) -> int:
    return 1000 << 10 * power
