"""Annotations of nodes, read board by board where they cannot be read as a whole: one board's fault is no other board's.

What cannot be read is a doubt about the board that it is told of, with every fault of it; nothing is put in its place.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from policies.faults import fault, misfits

Doubts = list[tuple[int | None, str]]
"""Index of a board and what is wrong with it; None for what may be of any board of which nothing else is told."""

UNREADABLE: Final = (msgspec.DecodeError, RecursionError)
"""What decoding raises; the second where values are nested beyond all measure."""

_INDEX: Final = re.compile(
    r"0|[1-9]\d{0,8}", re.ASCII
)  # no node has a billion boards; Python reads no text of any length

T = TypeVar("T")


def told(doubts: Doubts) -> list[str]:
    """Return what is wrong, for a person."""
    return [what for _, what in doubts]


def entries(key: str, text: str, doubts: Doubts) -> Iterator[tuple[int | None, str, object]]:
    """Yield the entries of a list of boards: index, or None if it has none, path for faults, and value."""
    for position, value in enumerate(_decoded(key, text, list, "must be a list of boards", doubts) or ()):
        index = value.get("index") if isinstance(value, dict) else None
        if type(index) is int and index >= 0:
            yield index, f"annotation {key}: board {index}", value
        else:
            yield None, f"annotation {key}: [{position}]", value


def by_board(key: str, text: str, doubts: Doubts) -> Iterator[tuple[int, str, object]] | None:
    """Yield what an object says of boards: index, path for faults, and value; None if it is no object."""
    found = _decoded(key, text, dict, "must be an object with the indices of boards", doubts)
    return None if found is None else _by_index(key, found, doubts)


def read_value(path: str, value: object, expected: type[T], index: int | None, doubts: Doubts) -> T | None:
    """Return a value as a type, or None if it does not fit, with all that does not as doubts about a board."""
    try:
        return msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        faults = misfits(value, expected) or [str(error)]
        doubts += [(index, f"{path}: {found.removeprefix('document: ')}") for found in faults]
        return None


# ---------------------------------------------------------------------------------------------------------------------


def _decoded(key: str, text: str, kind: type[T], rule: str, doubts: Doubts) -> T | None:
    """Return what a JSON text says if it is of a kind."""
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE as error:
        doubts.append((None, fault(f"annotation {key}", text, f"is no JSON: {error}")))
        return None
    if isinstance(value, kind):
        return value
    doubts.append((None, fault(f"annotation {key}", msgspec.json.encode(value).decode(), rule)))
    return None


def _by_index(key: str, found: dict[str, object], doubts: Doubts) -> Iterator[tuple[int, str, object]]:
    for name, value in found.items():
        if _INDEX.fullmatch(name):
            yield int(name), f"annotation {key}: board {name}", value
        else:
            doubts.append((None, fault(f"annotation {key}: board", name, "is no index of a board")))
