"""Slices that have been given away and that the nodes do not show yet: what they leave of the boards' room.

Who answers reviews remembers them. What is asked on files knows of none.
"""

from collections.abc import Mapping
from typing import Final

from policies.placement import size_of
from policies.site import BoardKind

Slices = Mapping[tuple[BoardKind, str], int]
"""How many slices of a profile, of boards of a kind."""

Outstanding = Mapping[BoardKind, tuple[int, int]]
"""GB and compute slices that are given away of boards of a kind, by the names of the profiles."""

NONE: Final[Outstanding] = {}


def outstanding(slices: Slices) -> Outstanding:
    """Return what slices come to."""
    taken: dict[BoardKind, tuple[int, int]] = {}
    for (kind, profile), count in slices.items():
        gigabytes, compute = size_of(profile)
        so_far = taken.get(kind, (0, 0))
        taken[kind] = so_far[0] + gigabytes * count, so_far[1] + compute * count
    return taken


def displaced(taken: Outstanding, kind: BoardKind, profile: str) -> int:
    """Return how many slices of a profile fewer can be had because of what is taken of the boards of its kind.

    Exact for slices of that profile. For others it counts on their lying side by side, so it may be too few.
    """
    if kind not in taken:
        return 0
    (gigabytes, compute), (each, engines) = taken[kind], size_of(profile)
    return min(gigabytes // each, compute // engines) if engines else gigabytes // each
