"""Which slices of a node are in use, where agent, counts and bound pods do not say it alike; now, and when pods have left."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from policies.annotations import PlacedSlice, by_start
from policies.boards import Board
from policies.placement import arrange, is_made, largest_first, lay_out
from policies.view import NodeView, PodView

_REMEMBERED: Final = 1 << 15  # boards; some 10 MiB when full, more than a large cluster has


class Tally(msgspec.Struct, frozen=True):
    """The slices of boards, how many by profile and who has to leave one; for reading only, since it is remembered.

    Attributes:
        exist: in all.
        used: in use.
        stay: not withdrawn.
        stale: index and slice of those that were made anew under their holders, by the holder's uid.
    """

    exist: Counter[str]
    used: Counter[str]
    stay: Counter[str]
    stale: Mapping[str, tuple[int, PlacedSlice]]


@lru_cache(maxsize=_REMEMBERED)
def tally(boards: tuple[Board, ...]) -> Tally:
    """Count the slices of boards."""
    slices = [item for board in boards for item in board.slices]
    return Tally(
        exist=Counter(item.profile for item in slices),
        used=Counter(item.profile for item in slices if item.used),
        stay=Counter(item.profile for item in slices if not item.withdrawn),
        stale={item.stale: (board.index, item) for board in boards for item in board.slices if item.stale},
    )


def occupied(node: NodeView, need: Counter[str]) -> NodeView:
    """Return the node with every slice at its place, where only counts or bound pods tell of it.

    Counts are laid out by the planner's rule. Bound pods that need more slices than exist (no agent has reported) are
    given used ones by the same rule. What cannot be laid out is left as it is: its board is not cut (`doubts.counts_doubts`).
    """
    laid_out = tuple(_laid_out(board) if board.counted else board for board in node.boards)
    missing = need - tally(laid_out).exist
    if not missing and laid_out == node.boards:
        return node
    boards = list(laid_out)
    for profile in sorted(missing.elements(), key=largest_first):
        for position, board in enumerate(boards):
            grown = _with_used(board, profile)
            if grown:
                boards[position] = grown
                break
    return replace(node, boards=tuple(boards))


@lru_cache(maxsize=_REMEMBERED)
def named(boards: tuple[Board, ...], profile: str) -> str:
    """Return what the boards of a node call a profile that pods there have asked for, perhaps by another driver's name."""
    names = {board.model.known_as(profile) for board in boards}
    return profile if profile in names or not names else min(names)


def overbooked(node: NodeView, need: Counter[str]) -> str:
    """Return that bound pods need more slices than the boards of a node can have, which its agent and they cannot both mean.

    Empty where that is not so; and where an order is under way, since pods may be on what it brings. What none of the
    boards makes is another plugin's.
    """
    if node.in_flight:
        return ""
    exist = tally(node.boards).exist
    wrong = [
        f"{count} x {profile}, of which its boards hold {exist.get(profile, 0)}"
        for profile, count in sorted(need.items())
        if count > exist.get(profile, 0) and any(is_made(board.model, board.mode, profile) for board in node.boards)
    ]
    return f"pods bound to it need {' and '.join(wrong)}" if wrong else ""


def closed(node: NodeView, why: str) -> NodeView:
    """Return the node with everything that is on its boards held, and no board to be cut."""
    boards = tuple(
        replace(board, fault=board.fault or why, slices=tuple(replace(item, used=True) for item in board.slices))
        for board in node.boards
    )
    return replace(node, boards=boards)


def held_by_ended(node: NodeView, bound: Sequence[PodView]) -> list[PlacedSlice]:
    """Return the slices that the agent still reports as used by pods that are no more: they are about to be free.

    Who counted them as used would evict a second pod for a lack that the first has already made good.
    """
    there = {pod.key for pod in bound}
    slices = (item for board in node.boards for item in board.slices)
    return [item for item in slices if item.used and item.pod is not None and item.pod not in there]


def vacated(node: NodeView, leaving: Collection[str], gone: Counter[str]) -> NodeView:
    """Return the node when pods have left that hold so many slices: those that are shown as theirs are free then.

    Where the agent does not say whose slices are, the first ones are theirs: what it does not show yet is then another's.
    """
    left = Counter(gone)
    boards = list(node.boards)
    for theirs in (True, False):
        for position, board in enumerate(boards):
            slices = list(board.slices)
            for index, item in enumerate(slices):
                if item.used and (item.pod in leaving if theirs else item.pod is None and left[item.profile] > 0):
                    slices[index] = replace(item, used=False, pod=None)
                    left[item.profile] -= 1
            boards[position] = replace(board, slices=tuple(slices))
    return replace(node, boards=tuple(boards))


# ---------------------------------------------------------------------------------------------------------------------


def _laid_out(board: Board) -> Board:
    placed = lay_out(board.model, board.mode, board.counted)
    if placed is None:
        placed = tuple(PlacedSlice(profile=profile, used=used) for profile, used in board.counted)
    return replace(board, slices=placed, counted=())


def _with_used(board: Board, profile: str) -> Board | None:
    found = arrange(board.model, board.mode, board.layout, (profile,))
    if found is None:
        return None
    (placement,) = found.placed
    more = PlacedSlice(profile=placement.profile, start=placement.start, used=True)
    return replace(board, slices=tuple(sorted((*board.slices, more), key=lambda item: by_start(item.placement))))
