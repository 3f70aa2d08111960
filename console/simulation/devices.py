"""Stand-ins for node agents and kubelets, as functions from a node to the node that it becomes.

They follow the protocol of docs/adr/0003: withdraw, wait for the leader, destroy, create. Only time is left out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from policies.annotations import PlacedSlice, Placement
from policies.boards import Board
from policies.needs import is_slice
from policies.occupancy import held_by_ended, named, occupied
from policies.placement import profile_of, resource_of, to_hold
from policies.supply import held_on
from policies.view import NodeView, PodView

Hints = tuple[tuple[int, Placement], ...]
"""Board index and placement of the slices that a pod was planned on."""


def settle_in(node: NodeView, bound: Sequence[PodView]) -> NodeView:
    """Return a node as its agent would report it: slices where only counts or bound pods tell of them, with holders.

    Those of pods that are no more are free.
    """
    node = occupied(node, held_on(node, bound))
    for key in {item.pod for item in held_by_ended(node, bound) if item.pod}:
        node = let_go(node, key)
    for pod in sorted(bound, key=lambda pod: (pod.created, pod.key)):
        node = hold(node, pod, claimed=True)
    return announce(node)


def hold(node: NodeView, pod: PodView, hints: Hints = (), *, claimed: bool = False) -> NodeView:
    """Return the node with slices given to a pod, as the kubelet gives them: those it was planned on if it can.

    Else on as many boards as there are for one pod, on the fullest for different pods. `claimed` takes those first that
    are said to be used and have no holder yet. What the pod holds already counts; what the node lacks is not given.
    """
    for resource, count in pod.slices:
        profile = named(node.boards, profile_of(resource))
        held = sum(item.pod == pod.key and item.profile == profile for board in node.boards for item in board.slices)
        for _ in range(count - held):
            node = _hold_one(node, pod.key, profile, hints, claimed=claimed)
    return node


def let_go(node: NodeView, pod: str) -> NodeView:
    """Return the node with the slices of a pod (namespace/name) free again."""
    boards = tuple(
        replace(
            board,
            slices=tuple(replace(item, used=False, pod=None) if item.pod == pod else item for item in board.slices),
        )
        for board in node.boards
    )
    return replace(node, boards=boards)


def obey(node: NodeView) -> NodeView:
    """Return the node when its agent has read the order that it bears: carried out, or, if slices go, those withdrawn.

    One that would take a slice away that is in use is refused.
    """
    if not node.in_flight:
        return node
    ordered = [board for board in node.boards if board.index in node.spec]
    if any(_lost([item for item in board.slices if item.used], node.spec[board.index]) for board in ordered):
        return announce(replace(node, status_plan=node.spec_plan))
    if node.cut == node.spec_plan or not any(_lost(board.slices, node.spec[board.index]) for board in ordered):
        return carry_out(node)
    boards = tuple(
        replace(board, slices=tuple(_withdrawn(board, node.spec[board.index]))) if board.index in node.spec else board
        for board in node.boards
    )
    return announce(replace(node, boards=boards))


def carry_out(node: NodeView) -> NodeView:
    """Return the node with its boards in the layout that was ordered."""
    boards = tuple(
        replace(board, slices=tuple(recut(board, node.spec[board.index]))) if board.index in node.spec else board
        for board in node.boards
    )
    return announce(replace(node, boards=boards, status_plan=node.spec_plan))


def recut(board: Board, target: tuple[Placement, ...]) -> Iterator[PlacedSlice]:
    """Yield the slices of the target: those that exist as they are, used ones first, and new ones."""
    there = sorted(board.slices, key=lambda item: not item.used)
    for placement in target:
        stays = next((item for item in there if item.placement == placement), None)
        if stays:
            there.remove(stays)
        yield stays or PlacedSlice(profile=placement.profile, start=placement.start, used=False)


def announce(node: NodeView) -> NodeView:
    """Return the node with capacity and allocatable as its slices are; those of a node without boards are another's."""
    if not node.boards:
        return node
    there = Counter(resource_of(item.profile) for board in node.boards for item in board.slices if not item.withdrawn)
    slices = {name: 1000 * count for name, count in sorted(there.items())}
    return replace(
        node,
        allocatable={name: amount for name, amount in node.allocatable.items() if not is_slice(name)} | slices,
        capacity={name: amount for name, amount in node.capacity.items() if not is_slice(name)} | slices,
    )


def _hold_one(node: NodeView, pod: str, profile: str, hints: Hints, *, claimed: bool) -> NodeView:
    best = {board.index: None if claimed else _best(board, profile) for board in node.boards}

    def rank(board: Board, item: PlacedSlice) -> tuple[object, ...]:
        return (
            not (claimed and item.used),
            (board.index, item.placement) not in hints,
            any(other.pod == pod for other in board.slices),
            -sum(other.used for other in board.slices),
            board.index,
            item.placement != best[board.index],
            -1 if item.start is None else item.start,
        )

    ranked = [
        (rank(board, item), board.index, position)
        for board in node.boards
        for position, item in enumerate(board.slices)
        if item.profile == profile and item.pod is None and not item.withdrawn and (claimed or not item.used)
    ]
    if not ranked:
        return node
    _, index, position = min(ranked)
    boards = tuple(
        replace(board, slices=_with(board.slices, position, pod)) if board.index == index else board
        for board in node.boards
    )
    return replace(node, boards=boards)


def _best(board: Board, profile: str) -> Placement | None:
    """Return which of its free slices of a profile a board gives to a pod, as our device plugin asks the kubelet to."""
    held = tuple(item.placement for item in board.slices if item.used)
    free = (item for item in board.slices if item.profile == profile and not item.used and not item.withdrawn)
    return to_hold(board.model, board.mode, held, tuple(item.placement for item in free))


def _with(slices: tuple[PlacedSlice, ...], position: int, pod: str) -> tuple[PlacedSlice, ...]:
    return (*slices[:position], replace(slices[position], used=True, pod=pod), *slices[position + 1 :])


def _lost(slices: Iterable[PlacedSlice], target: tuple[Placement, ...]) -> Counter[Placement]:
    return Counter(item.placement for item in slices) - Counter(target)


def _withdrawn(board: Board, target: tuple[Placement, ...]) -> Iterator[PlacedSlice]:
    """Yield the slices of a board, those withdrawn that the target has no place for: free ones, by the leader's care."""
    places = Counter(target)
    for item in sorted(board.slices, key=lambda item: not item.used):
        stays = places[item.placement] > 0
        places[item.placement] -= stays
        yield item if stays else replace(item, withdrawn=True)
