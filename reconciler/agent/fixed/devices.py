"""Which boards of a node a file means by `devices`: all of them, the first so many, or those that it names."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from policies.annotations import BoardInventory
from policies.faults import fault

_ALL: Final = "all"
_RULE: Final = "write all, a number of GPUs, or a list of indices and UUIDs"


class Selection(msgspec.Struct, frozen=True):
    """Boards of a node.

    Attributes:
        first: so many, by index; None where that is not what is meant.
        named: indices and UUIDs; empty where that is not what is meant. Neither means all.
    """

    first: int | None = None
    named: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """Return whether all boards are meant, whichever there are."""
        return self.first is None and not self.named

    def of(self, boards: Sequence[BoardInventory], place: str, faults: list[str]) -> tuple[BoardInventory, ...]:
        """Return the boards that are meant, by index; those that are not there are faults, at a place in the file."""
        if self.first is not None:
            if self.first > len(boards):
                faults.append(fault(place, self.first, f"the node has {_count(len(boards))}"))
            return tuple(boards[: self.first])
        if not self.named:
            return tuple(boards)
        known = {name: board for board in boards for name in (str(board.index), board.uuid)}
        faults += [
            fault(f"{place}[{position}]", name, f"no such GPU: the node has {_named(boards)}")
            for position, name in enumerate(self.named)
            if name not in known
        ]
        chosen = {known[name].index: known[name] for name in self.named if name in known}
        return tuple(chosen[index] for index in sorted(chosen))


def read_selection(written: object, place: str, faults: list[str]) -> Selection:
    """Return what `devices` means; what it cannot mean is a fault, and then nothing is meant."""
    if written == _ALL:
        return Selection()
    if type(written) is int and written > 0:
        return Selection(first=written)
    if not isinstance(written, list) or not written:
        faults.append(fault(place, written, _RULE))
        return Selection(first=0)
    names = tuple(map(str, written))
    for position, (each, name) in enumerate(zip(written, names, strict=True)):
        if why := _no_name(each, name):
            faults.append(fault(f"{place}[{position}]", each, why))
    repeated = sorted({name for name in names if names.count(name) > 1})
    faults += [fault(place, name, "named twice") for name in repeated]
    return Selection(named=names)


def _no_name(each: object, name: str) -> str:
    """Return why this cannot name a board, or ""."""
    if name.startswith("MIG-") or (isinstance(each, str) and ":" in each):
        return "a MIG device has no lasting number or UUID: divide all of its resource, nvidia.com/mig-<profile>"
    return "" if type(each) in (int, str) and (name.isdecimal() or name.startswith("GPU-")) else _RULE


def _named(boards: Iterable[BoardInventory]) -> str:
    return ", ".join(f"{board.index} ({board.uuid})" for board in boards) or "none"


def _count(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"
