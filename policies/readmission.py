"""Updates of a pod that was admitted: it keeps what it was given, and whoever asks for something else is told.

What a pod holds never changes. A manifest that is applied again asks for what the record says was asked, and is answered
by what was given then (design 3.5). One that asks for something else is refused here: the API server's own complaint
would be about slices that its author has never written (docs/adr/0010).
"""

from collections.abc import Iterator
from typing import Final

from policies import names
from policies.admission import Admission
from policies.asked import at
from policies.faults import fault
from policies.model import Container, Pod
from policies.mutation import gpus, restore
from policies.record import Entry, read_record
from policies.requests import places
from policies.spelling import USER_KEYS

_ANEW: Final = "what a pod holds never changes: delete the pod and create it anew"
_ASKING: Final = tuple(key for key in USER_KEYS if key != names.NON_PREEMPTIBLE)


def readmit(pod: Pod, old: Pod) -> Admission:
    """Return the answer for an updated pod; one that is on its way out, or was not admitted by us, is left alone."""
    if pod.metadata.deletion_timestamp or old.metadata.deletion_timestamp:
        return Admission()
    faults = tuple(_other_wishes(pod, old)) if pod.spec != old.spec else ()
    if faults:
        return Admission(faults=faults)
    return Admission(
        patch=restore(pod, old) if pod.spec != old.spec else (),
        warnings=tuple(_without_effect(pod, old)),
    )


# ---------------------------------------------------------------------------------------------------------------------


def _other_wishes(pod: Pod, old: Pod) -> Iterator[str]:
    """Yield a fault for each container with a record that now asks for something else than it did."""
    record = read_record(old.metadata.annotations)
    admitted = {place.container.name: _asks(place.container) for place in places(old)}
    for place in places(pod):
        entry, held = record.get(place.container.name), admitted.get(place.container.name, {})
        asks = _asks(place.container)
        if entry is None or asks == held:
            continue
        wish = {name: amount for name, amount in asks.items() if held.get(name) != amount}
        asked = {name: amount for name, amount in entry.asked.items() if not name.startswith(names.PREFIX)}
        if wish != asked:
            yield fault(f"{place.path}.resources", _text(wish) or "no GPU", f"{_held(place.container, entry)}: {_ANEW}")


def _without_effect(pod: Pod, old: Pod) -> Iterator[str]:
    """Yield a warning for each annotation that asks for something else than it did when the pod was admitted."""
    notes, earlier = pod.metadata.annotations or {}, old.metadata.annotations or {}
    if names.RECORD not in earlier:
        return
    for key, value in notes.items():
        if key.startswith(_ASKING) and earlier.get(key) != value:
            yield f"{at(key)}: {value} has no effect any more, for {_ANEW}"


def _asks(container: Container) -> dict[str, str]:
    """Return the GPU resources of a container, limits before requests, zeros left out."""
    resources = container.resources
    amounts = gpus(resources.requests) | gpus(resources.limits) if resources else {}
    return {name: str(amount) for name, amount in amounts.items() if str(amount) != "0"}


def _held(container: Container, entry: Entry) -> str:
    return f"{container.name} was admitted with {_text(entry.asked)} and holds {_text(entry.given)}"


def _text(amounts: dict[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())
