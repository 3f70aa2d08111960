"""What the containers of a pod ask for: annotations and resources -> wishes, with every fault found.

Every app, init and sidecar container is looked at, by its own index (pains W01, W03). A wish is a share, an amount of
memory or an explicit slice; which slice serves it is not decided here. Whatever looks like a request but cannot be
understood is a fault, never taken for "asks for nothing" (pain W34).
"""

from collections.abc import Collection, Iterator

import msgspec

from policies import names
from policies.asked import Asked, at, mislaid, read_annotations
from policies.containers import Place, places
from policies.faults import fault
from policies.model import Pod
from policies.policy import BUILT_IN, Rule
from policies.quantity import Quantity, QuantityError, parse
from policies.record import Entry, read_record
from policies.resources import CONCERNED, GpuResources, read_gpu_resources
from policies.shares import Memory, Share
from policies.spelling import FOREIGN_ANNOTATIONS, FOREIGN_RESOURCES, foreign_advice


class Slice(msgspec.Struct, frozen=True):
    """An explicit slice: its resource, and the mode of the boards that make it."""

    resource: str
    mode: str


Ask = Share | Memory | Slice
"""What one device must be."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What one container asks for.

    Attributes:
        place: the container.
        ask: what each device must be.
        count: how many devices.
        asked: keys and values as written, for the record.
        path: where the request stands.
        value: its value as written.
        said: key and value as a person reads them.
        answered: the record that agrees with the resources: the wish is to be checked, not resolved.
    """

    place: Place
    ask: Ask
    count: int
    asked: dict[str, str]
    path: str
    value: str
    said: str
    answered: Entry | None = None


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """All that a pod asks for.

    Attributes:
        wishes: in the order of the pod, init containers first.
        modes: those that the pod names, in its order; None if it names none.
        left: what is left as it is, for people: whole GPUs, slices of another plugin.
        whole: whether a whole GPU is among that.
        asks: whether it asks for a GPU or a part of one at all, be it readable or not; slices of another plugin are none.
        parts: whether it asks for a part, and surely so: not by a resource that cannot be read.
        faults: everything that is wrong; with any, the pod is denied.
        warnings: what deserves notice.
    """

    wishes: tuple[Wish, ...] = ()
    modes: tuple[str, ...] | None = None
    left: tuple[str, ...] = ()
    whole: bool = False
    asks: bool = False
    parts: bool = False
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def may_ask(pod: Pod) -> bool:
    """Return whether a pod names anything of ours or of NVIDIA's; if not, it asks for nothing and is cheap to review."""
    if any(key.startswith(names.PREFIX) for key in pod.metadata.annotations or ()):
        return True
    amounts = [
        amounts
        for place in places(pod)
        if (resources := place.container.resources)
        for amounts in (resources.limits, resources.requests)
    ]
    return any(name.startswith(CONCERNED) for each in amounts for name in each or ())


def slice_mode(resource: str) -> str:
    """Return the mode of the boards that make a slice resource."""
    if resource == names.GPU_SHARED:
        return names.TIMESLICING
    return names.MIG if resource.startswith(names.MIG_RESOURCE) else names.MPS


def read_requests(pod: Pod, foreign: Collection[str] = (), rule: Rule = BUILT_IN) -> Requests:
    """Return what a pod asks for. `foreign` are slice resources of another plugin, which are none of our business.

    The rule says what becomes of whole GPUs.
    """
    notes = pod.metadata.annotations or {}
    annotations = read_annotations(pod)
    record = read_record(notes)
    faults = list(annotations.faults)
    foreign_keys = foreign_advice(FOREIGN_ANNOTATIONS, notes, pod.spec.scheduler_name)
    warnings = [*foreign_keys, *annotations.warnings, *mislaid(pod)]
    wishes: list[Wish] = []
    left: list[str] = []
    whole, asks = False, annotations.asks
    unreadable = False
    for place in places(pod):
        name = place.container.name
        asked, entry = annotations.containers.get(name), record.get(name)
        # What we have given is ours, also where so far only others announce its like.
        resources = read_gpu_resources(
            place.container, place.path, {*foreign} - entry.given.keys() if entry else foreign
        )
        faults += resources.faults
        warnings += _advice(place, pod.spec.scheduler_name)
        unreadable = unreadable or bool(resources.faults)
        asks = asks or resources.ours or unreadable
        if entry and _agrees(entry, asked, resources):
            wishes.append(_explicit(place, resources, entry))
        elif asked and resources.kinds:
            key, value = asked.first
            faults.append(fault(at(key), value, f"container {name} asks for {resources.text} too: keep one of them"))
        elif asked and not asked.asks:
            key, value = asked.first
            faults.append(fault(at(key), value, f"counts nothing: write {names.FRACTION} or {names.MEMORY} as well"))
        elif asked and asked.ask:
            wishes.append(_by_annotations(place, asked, asked.ask))
        elif wish := _by_resources(place, resources, rule):
            wishes.append(wish)
        elif resources.kinds:
            faults += _whole_not_allowed(resources, rule)
            left.append(f"{name}: {resources.text}")
            whole = whole or bool(resources.whole)
    if names.MODE in notes and not (wishes or annotations.asks or unreadable):
        faults.append(
            fault(at(names.MODE), notes[names.MODE], "chooses for nothing: the pod asks for no part of a GPU")
        )
    return Requests(
        wishes=tuple(wishes),
        modes=annotations.modes,
        left=tuple(left),
        whole=whole,
        asks=asks,
        parts=bool(wishes) or annotations.asks,
        faults=tuple(faults),
        warnings=tuple(warnings),
    )


# ---------------------------------------------------------------------------------------------------------------------


def _agrees(entry: Entry, asked: Asked | None, resources: GpuResources) -> bool:
    """Return whether a record's entry says what the container has, so that its wish is answered."""
    if resources.faults or len(resources.slices) != 1 or resources.kinds != (resources.slices[0][0],):
        return False
    (resource, count), annotated = resources.slices[0], asked.written if asked else {}
    given = {resource: str(count)}
    return (
        entry.given == given
        and entry.mode == slice_mode(resource)
        and (entry.asked == annotated if annotated else entry.asked == given or list(entry.asked) == [names.GPU])
    )


def _by_annotations(place: Place, asked: Asked, ask: Share | Memory) -> Wish:
    key, value = asked.first
    return Wish(
        place=place, ask=ask, count=asked.count, asked=asked.written, path=at(key), value=value, said=f"{key} {value}"
    )


def _by_resources(place: Place, resources: GpuResources, rule: Rule) -> Wish | None:
    """Return the wish for a share, for a slice in place of each whole GPU, or for an explicit slice; None if no such."""
    if resources.slices:
        return _explicit(place, resources)
    whole = rule.whole_gpu if resources.whole and rule.whole_gpu != "deny" else None
    ask = resources.share or whole
    if ask is None:
        return None
    path, value = resources.written[names.GPU]
    return Wish(
        place=place,
        ask=ask,
        count=resources.whole or 1,
        asked={names.GPU: value},
        path=path,
        value=value,
        said=f"{names.GPU} {resources.share or value}",
    )


def _whole_not_allowed(resources: GpuResources, rule: Rule) -> Iterator[str]:
    """Yield the fault of whole GPUs where the policy does not let a pod have any."""
    if not resources.whole:
        return
    path, value = resources.written[names.GPU]
    way_out = f'ask for a part, for example {names.FRACTION}: "0.5"'
    if rule.whole_gpu == "deny":
        yield fault(path, value, f"the policy lets no pod have a whole GPU (wholeGpu: deny): {way_out}")
    elif (most := rule.limits.most) and most.exact < 1:
        yield fault(path, value, f"a whole GPU is more than the policy allows, {most} (maxFraction): {way_out}")


def _explicit(place: Place, resources: GpuResources, answered: Entry | None = None) -> Wish:
    resource, count = resources.slices[0]
    path, value = resources.written[resource]
    return Wish(
        place=place,
        ask=Slice(resource, slice_mode(resource)),
        count=count,
        asked=answered.asked if answered else {resource: str(count)},
        path=path,
        value=value,
        said=f"{resource} {count}",
        answered=answered,
    )


def _advice(place: Place, scheduler: str | None) -> tuple[str, ...]:
    resources = place.container.resources
    if resources is None:
        return ()
    amounts = {**(resources.requests or {}), **(resources.limits or {})}
    written = {name: _plain(amount) if name in FOREIGN_RESOURCES else amount for name, amount in amounts.items()}
    return foreign_advice(FOREIGN_RESOURCES, written, scheduler)


def _plain(amount: Quantity) -> str:
    """Return an amount without the suffix that the API server gives it: `3k` is `3000`, behind which a unit can stand."""
    try:
        value = parse(amount)
    except QuantityError:
        return str(amount)
    return str(value) if value.denominator == 1 else str(amount)
