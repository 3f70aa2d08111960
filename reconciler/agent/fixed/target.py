"""Where a board with a fixed layout is to get, from what is on it now."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from policies import names
from policies.annotations import BoardInventory, Placement, listed
from policies.boards import inventory_model
from policies.placement import arrange
from policies.view import PodView
from reconciler.agent.driver import WHOLE, Slice
from reconciler.agent.fixed.announced import told
from reconciler.agent.fixed.layout import Fixture


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a board, and what is known of those whom it concerns.

    Attributes:
        fixture: what it is to be.
        layout: the slices that it is to have.
        lacking: devices, by resource, that pods on the node need and the kubelet has not given them yet.
        settled: what was last told as withdrawn has been known long enough that no pod is bound to it any more.
    """

    fixture: Fixture
    layout: tuple[Placement, ...] = ()
    lacking: Mapping[str, int] = {}
    settled: bool = False

    def spared(self, idle: Iterable[Slice]) -> tuple[Slice, ...]:
        """Return what may go of slices that nobody holds: all but as many as pods on their way to the kubelet need."""
        spare, doomed = Counter(self.lacking), list[Slice]()
        for item in idle:
            resource = self.fixture.share(item.profile).resource
            if spare[resource] > 0:
                spare[resource] -= 1
            else:
                doomed.append(item)
        return tuple(doomed)

    def is_told(self, doomed: Iterable[Slice], withdrawn: Iterable[Placement]) -> bool:
        """Return whether all of these slices have been reported as withdrawn."""
        return not Counter(told(item, self.fixture.share(item.profile)) for item in doomed) - Counter(withdrawn)


def layout_of(
    board: BoardInventory, fixture: Fixture, slices: Collection[Slice], used: Collection[Slice]
) -> tuple[Placement, ...]:
    """Return the layout that a board is to have: of all with the right slices the one for which least has to go."""
    if fixture.mode != names.MIG:
        return tuple(map(Placement, fixture.profiles))
    left, staying = Counter(fixture.profiles), list[Placement]()
    for item in listed(item.placement for item in used if item.start is not None):
        if left[item.profile] > 0:
            left[item.profile] -= 1
            staying.append(item)
    free = [item.placement for item in slices if item.start is not None and item.placement not in staying]
    beside = _arranged(board, staying, tuple(left.elements()), free)
    # Where what pods hold lies in the way, some of it has to end first: it is not counted on.
    return (
        (*staying, *beside) if beside is not None else _arranged(board, [], fixture.profiles, [*staying, *free]) or ()
    )


def still_held(target: Target, slices: Iterable[Slice], used: Collection[Slice]) -> tuple[Slice, ...]:
    """Return the slices that pods hold and that are not in the layout: it is complete when they have ended."""
    if target.fixture.kept:
        return tuple(item for item in used if item == WHOLE)
    left, held = Counter(target.layout), list[Slice]()
    for item in slices:
        if item in used and item != WHOLE:
            left[item.placement] -= 1
            if left[item.placement] < 0:
                held.append(item)
    return tuple(held)


def lacking(pods: Iterable[PodView], holders: Collection[str]) -> Counter[str]:
    """Return the devices, by resource, of pods on the node that have none yet: the kubelet may not know of them."""
    found = Counter[str]()
    for pod in pods:
        if pod.key not in holders and not pod.running:
            found.update(dict(pod.slices))
    return found


# ---------------------------------------------------------------------------------------------------------------------


def _arranged(
    board: BoardInventory, staying: Sequence[Placement], profiles: tuple[str, ...], free: Sequence[Placement]
) -> tuple[Placement, ...] | None:
    model = inventory_model(board)
    found = arrange(model, names.MIG, tuple(staying), profiles, listed(free))
    return found.placed if found else None
