"""JSON patches (RFC 6902), built by hand: a diff of whole pods would cost a hundred times as much.

Keys with `/` and `~` are escaped (pain W10). A parent that is absent or null is made, and never one that is there
(pain W11).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

Step = str | int


class Operation(msgspec.Struct, frozen=True):
    """One operation; `value` is left out where it removes."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: object = msgspec.UNSET


def pointer(*steps: Step) -> str:
    """Return the JSON pointer (RFC 6901) of a place: `~` is `~0` and `/` is `~1`."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def put(root: Sequence[Step], parents: Sequence[tuple[str, object]], key: str, value: object) -> Operation:
    """Return the operation that sets a key below `root`, making the parents that are not there.

    `parents` are the names between, outermost first, each with what is there now; None: absent or null.
    """
    steps = [*root]
    for depth, (name, present) in enumerate(parents):
        steps.append(name)
        if present is None:
            missing = [name for name, _ in parents[depth + 1 :]] + [key]
            for inner in reversed(missing):
                value = {inner: value}
            return Operation("add", pointer(*steps), value)
    return Operation("add", pointer(*steps, key), value)


def changed(
    root: Sequence[Step], present: Mapping[str, object] | None, changes: Mapping[str, object]
) -> Iterator[Operation]:
    """Yield the operations that change keys of a mapping; a value of None removes the key if it is there."""
    if present is None:
        made = {key: value for key, value in changes.items() if value is not None}
        if made:
            yield Operation("add", pointer(*root), made)
        return
    for key, value in changes.items():
        if value is None and key in present:
            yield Operation("remove", pointer(*root, key))
        elif value is not None and (key not in present or present[key] != value):
            yield Operation("add", pointer(*root, key), value)
