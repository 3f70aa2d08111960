"""A measured figure, its bar, and the line that says both."""

import math
from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measurement.

    Attributes:
        name: what was measured, `<benchmark>.<figure>`.
        value: the measurement.
        unit: its unit.
        comparison: `<=` or `>=`.
        bar: what the design promises, in the same unit.
    """

    name: str
    value: float
    unit: str
    comparison: str
    bar: float

    @property
    def holds(self) -> bool:
        """Return whether the promise is kept."""
        return self.value <= self.bar if self.comparison == "<=" else self.value >= self.bar

    def line(self) -> str:
        """Return `bench NAME VALUE UNIT bar OP VALUE ok|short`."""
        verdict = "ok" if self.holds else "short"
        return f"bench {self.name} {_plain(self.value)} {self.unit} bar {self.comparison} {_plain(self.bar)} {verdict}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _plain(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
