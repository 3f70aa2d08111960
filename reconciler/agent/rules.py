"""The driver's rules for putting one more slice on a board, as errors that the driver would give.

The agent asks before it destroys anything for a layout that cannot be, and the simulated driver answers by them.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from policies.annotations import Placement, listed
from policies.catalogue import MEDIA, BoardModel
from policies.placement import bin_gb
from reconciler.agent.driver import DriverError, InsufficientResources, InvalidArgument, Slice, order_key


def rejection(model: BoardModel, present: Collection[Placement], item: Placement) -> DriverError | None:
    """Return why a slice cannot be added to those present, or None if it can; MIG mode is not looked at."""
    return _rejected_bin(model, present, item) if item.start is None else _rejected_instance(model, present, item)


def layout_fault(model: BoardModel, layout: Iterable[Placement]) -> DriverError | None:
    """Return why a layout cannot be made on an empty board, or None; the order of creation makes no difference."""
    present: list[Placement] = []
    for item in layout:
        if error := rejection(model, present, item):
            return error
        present.append(item)
    return None


def that_fit(model: BoardModel, present: Counter[Placement], wanted: Counter[Placement]) -> Counter[Placement]:
    """Return what of the slices wanted can be made beside those present, the lowest starts first."""
    there, found = list(present.elements()), Counter[Placement]()
    for item in listed(wanted.elements()):
        if rejection(model, there, item) is None:
            there.append(item)
            found[item] += 1
    return found


def numbered(layout: Counter[Placement], taken: Collection[Slice]) -> tuple[Slice, ...]:
    """Return slices to make for a layout, in the order of their starts; of MPS slices with the first ordinals not taken."""
    known, made = set(taken), list[Slice]()
    for placement in layout.elements():
        ordinal = 0
        while (item := Slice(placement.profile, placement.start, ordinal)) in known and placement.start is None:
            ordinal += 1
        known.add(item)
        made.append(item)
    return tuple(sorted(made, key=order_key))


def _rejected_instance(model: BoardModel, present: Collection[Placement], item: Placement) -> DriverError | None:
    wanted = model.profile(item.profile)
    if wanted is None:
        return InvalidArgument(f"{model.name} has no profile {item.profile}")
    if item.start not in wanted.starts:
        return InvalidArgument(f"{item.profile} may start at {', '.join(map(str, wanted.starts))}, not at {item.start}")
    others = [(other, model.profile(other.profile)) for other in present]
    compute = wanted.compute + sum(profile.compute for _, profile in others if profile)
    if compute > model.compute:
        return InsufficientResources(
            f"{item.profile} at {item.start} needs {compute} of {model.compute} compute slices"
        )
    if wanted.max and sum(other.profile == item.profile for other in present) >= wanted.max:
        return InsufficientResources(f"no more than {wanted.max} of {item.profile} on one board")
    if wanted.media + sum(profile.media for _, profile in others if profile) > MEDIA:
        return InsufficientResources(f"{item.profile} needs media engines that others have")
    for other, profile in others:
        begin, length = other.start or 0, profile.memory_units if profile else 1
        if item.start < begin + length and begin < item.start + wanted.memory_units:
            return InsufficientResources(f"{item.profile} at {item.start} overlaps {other.profile} at {begin}")
    return None


def _rejected_bin(model: BoardModel, present: Collection[Placement], item: Placement) -> DriverError | None:
    size = bin_gb(item.profile)
    if size is None:
        return InvalidArgument(f"{item.profile} is no MPS slice; write for example 10gb")
    taken = sum(bin_gb(other.profile) or 0 for other in present)
    if taken + size > model.nominal_gb:
        return InsufficientResources(f"{item.profile} beside {taken} GB: {model.name} has {model.nominal_gb} GB")
    if len(present) >= model.max_clients:
        return InsufficientResources(f"no more than {model.max_clients} MPS clients on one board")
    return None
