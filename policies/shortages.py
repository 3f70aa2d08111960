"""What boards lack for one slice more, in words: memory, compute slices, clients, or one piece."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from policies import names
from policies.catalogue import MEDIA, BoardModel
from policies.packing import State
from policies.placement import bin_gb, size_of

_SCATTERED: Final = "none in one piece"


class Lack(NamedTuple):
    """What keeps a board that makes a slice from making one more.

    Attributes:
        gigabytes: what it has left of its memory.
        why: what it lacks although that is enough; empty where it is not.
    """

    gigabytes: int
    why: str


class Left:
    """What a board has left beside what is used, promised or planned: memory units and compute slices; of MPS GB, clients."""

    def __init__(self, state: State) -> None:
        self.model, self.mps = state.face.model, state.face.mode == names.MPS
        self.taken = [*(item.profile for item in state.face.fixed), *state.wanted]
        needs = [_takes(self.model, profile) for profile in self.taken]
        self.units = (self.model.nominal_gb if self.mps else self.model.memory_units) - sum(units for units, _ in needs)
        self.parts = (self.model.max_clients if self.mps else self.model.compute) - sum(parts for _, parts in needs)

    def lack(self, profile: str) -> Lack:
        """Return what it lacks for one slice more, if it cannot take that."""
        gigabytes = self.units if self.mps else self.units * self.model.nominal_gb // max(self.model.memory_units, 1)
        units, parts = _takes(self.model, profile)
        if self.units < units:
            return Lack(gigabytes, "")
        if self.parts < parts:
            compute = "no compute slice left" if parts == 1 else f"fewer than {parts} compute slices left"
            return Lack(gigabytes, "no MPS client left" if self.mps else compute)
        known = self.model.profile(profile)
        if known and known.max and self.taken.count(profile) >= known.max:
            return Lack(gigabytes, f"already as many {profile} as can be")
        media = sum(other.media for name in (profile, *self.taken) if (other := self.model.profile(name)))
        return Lack(gigabytes, "no media engines left" if media > MEDIA else _SCATTERED)


@lru_cache(maxsize=4096)
def _takes(model: BoardModel, profile: str) -> tuple[int, int]:
    """Return what a slice takes of a board: memory units and compute slices, or GB and a client."""
    known = model.profile(profile)
    return (known.memory_units, known.compute) if known else (bin_gb(profile) or 0, 1)


def lacks_one(profile: str, boards: Sequence[tuple[Lack, int]]) -> str:
    """Return why no board can take a slice that all of them make, from what they lack; so many there are of each."""
    gigabytes, _ = size_of(profile)
    causes: Counter[str] = Counter()
    for lack, count in boards:
        causes[lack.why] += count
    del causes[""]  # of these nothing is told if others have memory enough
    if not causes:
        most, all_boards = max(lack.gigabytes for lack, _ in boards), sum(count for _, count in boards)
        return f"no board has {gigabytes} GB free (the freest of {all_boards} has {most} GB)"
    count = causes.total()
    found = f"{have(count, 'board')} {gigabytes} GB free"
    if causes.keys() == {_SCATTERED}:
        return f"{found}, {'not' if count == 1 else 'none'} contiguous"
    if len(causes) == 1:
        return f"{found}, but {next(iter(causes))}"
    return f"{found}, but {' and '.join(f'{cause} on {number}' for cause, number in sorted(causes.items()))}"


def have(count: int, thing: str) -> str:
    """Return `1 board has` or `2 boards have`."""
    return f"{number_of(count, thing)} {'has' if count == 1 else 'have'}"


def number_of(count: int, thing: str) -> str:
    """Return `1 board` or `2 boards`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
