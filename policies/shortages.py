"""What boards lack for one slice more, in words: memory, compute slices, clients, or one piece."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from policies import names
from policies.catalogue import MEDIA, BoardModel
from policies.geometry import Profiles
from policies.placement import bin_gb, size_of
from policies.plots import Face

_REMEMBERED: Final = 1 << 15  # boards, with what is planned there and a profile; some 10 MiB when full
_SCATTERED: Final = "none in one piece"


class Lack(NamedTuple):
    """What keeps a board that makes a slice from making one more.

    Attributes:
        gigabytes: what it has left of its memory.
        why: what it lacks although that is enough; empty where it is not.
    """

    gigabytes: int
    why: str


@lru_cache(maxsize=_REMEMBERED)
def lack_of(face: Face, wanted: Profiles, profile: str) -> Lack:
    """Return what a board lacks for one slice more, if it cannot take that.

    It has what is left beside what is used, promised or planned: memory units and compute slices; of MPS GB and clients.
    """
    model, mps = face.model, face.mode == names.MPS
    taken = [*(item.profile for item in face.fixed), *wanted]
    needs = [_takes(model, name) for name in taken]
    units_left = (model.nominal_gb if mps else model.memory_units) - sum(units for units, _ in needs)
    parts_left = (model.max_clients if mps else model.compute) - sum(parts for _, parts in needs)
    gigabytes = units_left if mps else units_left * model.nominal_gb // max(model.memory_units, 1)
    units, parts = _takes(model, profile)
    if units_left < units:
        return Lack(gigabytes, "")
    if parts_left < parts:
        compute = "no compute slice left" if parts == 1 else f"fewer than {parts} compute slices left"
        return Lack(gigabytes, "no MPS client left" if mps else compute)
    known = model.profile(profile)
    if known and known.max and taken.count(profile) >= known.max:
        return Lack(gigabytes, f"already as many {profile} as can be")
    media = sum(other.media for name in (profile, *taken) if (other := model.profile(name)))
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
