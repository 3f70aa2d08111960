"""What a node can give now: slices that may not move, slices that are free or on their way, and room.

Three sources must agree before a slice is given away: the agent's report (it exists, and is not in use), the kubelet's
allocatable (it can be scheduled, pains P16, A07) and the bound pods (nobody holds it). Where they disagree, the least is
believed: what the agent reports as used is used, though no bound pod be known that holds it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from policies.annotations import Placement, listed
from policies.catalogue import UNKNOWN
from policies.needs import is_slice
from policies.occupancy import closed, held_by_ended, named, occupied, overbooked, tally, vacated
from policies.placement import profile_of
from policies.plots import Face, Plot, once, plot_of, unused
from policies.view import NodeView, PodView

_ONE_POD: Final = ("pods", 1000)

Room = dict[str, int]
"""What a node has left besides slices, in thousandths: CPU, memory, number of pods, other devices."""


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the planner sees it.

    Attributes:
        node: the node.
        plots: its boards.
        room: what it has left besides slices when everybody who is leaving has left.
        now: what it has left besides slices now.
        grantable: slices that can be given away at once, by profile.
        doomed: profiles of which an order under way destroys free slices: a pod that comes now could land on one.
        rigid: there is a board that cannot be cut now.
    """

    node: NodeView
    plots: tuple[Plot, ...]
    room: Room
    now: Room
    grantable: dict[str, int]
    doomed: frozenset[str] = frozenset()
    rigid: bool = False


def survey(
    node: NodeView,
    bound: Sequence[PodView],
    promised: frozenset[str] = frozenset(),
    leaving: Collection[str] = (),
) -> Supply:
    """Return what a node can give.

    Args:
        node: the node.
        bound: the pods bound there that have not ended, those without slices included.
        promised: profiles whose free slices may not go, since a released pod could land on them.
        leaving: those of the bound pods (namespace/name) that are on their way out; what is planned counts on that.
    """
    need = held_on(node, bound)
    node = occupied(node, need)
    staying = [pod for pod in bound if pod.key not in leaving] if leaving else bound
    needed = held_on(node, staying) if leaving else need
    ended = held_by_ended(node, bound)
    if ended:
        leaving = {*leaving, *(item.pod for item in ended if item.pod)}
    left = Counter(item.profile for item in ended)
    then = vacated(node, leaving, need - needed + left) if leaving else node
    why = overbooked(node, need)
    if why and (still := overbooked(then, needed)):
        then = closed(then, still)
    unshown = needed - tally(then.boards).used
    protected = promised.union(unshown)
    plots = [
        plot_of(board, protected, node.in_flight, node.silent, node.spec.get(board.index) if node.in_flight else None)
        for board in then.boards
    ]
    if leaving:
        plots = [
            replace(plot, leaving=unused(*boards))
            for plot, *boards in zip(plots, node.boards, then.boards, strict=True)
        ]
    if why:
        node = closed(node, why)
    doomed = _doomed(node)
    now = _room_left(node, bound)
    plots = (_held(plots, unshown) if unshown else plots) if plots else [_foreign(node, needed)]
    return Supply(
        node=node,
        plots=tuple(plots),
        room=_room_left(node, staying) if leaving else now,
        now=now,
        grantable=_grantable(node, need + left, doomed),
        doomed=doomed,
        rigid=any(plot.face.rigid for plot in plots),
    )


def slices_of(pods: Iterable[PodView]) -> Counter[str]:
    """Return how many slices of each profile pods need in all."""
    need: Counter[str] = Counter()
    for pod in pods:
        for resource, count in pod.slices:
            need[profile_of(resource)] += count
    return need


def held_on(node: NodeView, pods: Iterable[PodView]) -> Counter[str]:
    """Return how many slices of each profile pods need that are bound to a node, by the names that its boards have."""
    held: Counter[str] = Counter()
    for profile, count in slices_of(pods).items():
        held[named(node.boards, profile)] += count
    return held


def overbooking(node: NodeView, bound: Iterable[PodView]) -> str:
    """Return that the pods bound to a node need more slices than it can have; empty where they do not."""
    need = held_on(node, bound)
    return overbooked(occupied(node, need), need)


def room_request(pod: PodView) -> tuple[tuple[str, int], ...]:
    """Return what a pod takes of a node's room, sorted: everything but slices, and its place among the pods."""
    return tuple(sorted([*((name, amount) for name, amount in pod.request.items() if not is_slice(name)), _ONE_POD]))


# ---------------------------------------------------------------------------------------------------------------------


def _foreign(node: NodeView, need: Counter[str]) -> Plot:
    """Return the slices that another tool announces, as one board that cannot be cut."""
    free = (_announced(node) - need).elements()
    placements = tuple(Placement(profile) for profile in sorted(free))
    face = Face(model=UNKNOWN, mode="", rigid=True, fixed=placements, open=placements)
    return Plot(index=-1, face=once(face))


def _held(plots: Sequence[Plot], unshown: Counter[str]) -> list[Plot]:
    """Return the boards with as many open slices taken as bound pods hold that the agent does not yet show as used."""
    left = Counter(unshown)
    held: list[Plot] = []
    for plot in plots:
        face = plot.face
        coming = Counter(face.coming) & Counter(face.open)  # of which nobody can hold one yet
        still: list[Placement] = list(coming.elements())
        for placement in (Counter(face.open) - coming).elements():
            if left[placement.profile] > 0:
                left[placement.profile] -= 1
            else:
                still.append(placement)
        if len(still) < len(face.open):
            face = once(replace(face, open=listed(still)))
        held.append(replace(plot, face=face))
    return held


def _doomed(node: NodeView) -> frozenset[str]:
    if not node.in_flight:
        return frozenset()
    return frozenset(
        placement.profile
        for board in node.boards
        if board.index in node.spec
        for placement in Counter(board.layout) - Counter(node.target(board))
    )


def _announced(node: NodeView) -> Counter[str]:
    return Counter({profile_of(name): amount // 1000 for name, amount in node.allocatable.items() if is_slice(name)})


def _grantable(node: NodeView, need: Counter[str], doomed: frozenset[str]) -> dict[str, int]:
    """Return the slices that exist, are announced, and are held neither by bound pods nor by the agent's word."""
    announced, held = _announced(node), need
    if node.boards:
        counts = tally(node.boards)
        announced &= counts.stay
        held = need | counts.used
    return {profile: count for profile, count in (announced - held).items() if profile not in doomed}


def _room_left(node: NodeView, bound: Sequence[PodView]) -> Room:
    """Return what a node has left besides slices when these pods are on it."""
    left = dict(node.allocatable)
    for pod in bound:
        for name, amount in pod.request.items():
            left[name] = left.get(name, 0) - amount
    left["pods"] = left.get("pods", 0) - 1000 * len(bound)
    return {name: amount for name, amount in left.items() if not is_slice(name)}
