"""Shares of a GPU in the templates of workloads, moved from resources to annotations.

The API server validates a template as it stands, and a share of `nvidia.com/gpu` is no whole number (pain W08). So it
becomes the annotation `gpu-fraction` of the template. Every pod of it is admitted in its turn: no slice is chosen here.

Applying the manifest again merges the share back in beside the annotation that has taken its place. So a
`gpu-fraction` that an update leaves as it was yields to what the update brings for its container (docs/adr/0010).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from policies import names
from policies.admission import Admission
from policies.asked import read_annotations
from policies.containers import Place, places
from policies.faults import fault
from policies.model import CronJob, ObjectMeta, Pod, PodTemplate, Workload
from policies.patch import Operation, changed, put
from policies.quantity import QuantityError, parse
from policies.requests import Wish, read_requests
from policies.resources import read_gpu_resources
from policies.shares import Share

_LONGEST: Final = 50  # characters of a container in `gpu-fraction.<container>`: behind the slash a key has at most 63


class Kind(msgspec.Struct, frozen=True):
    """A kind of workload.

    Attributes:
        group: its API group.
        name: as manifests have it.
        plural: as reviews have it.
        model: what its objects are read as.
        template: where its template lies.
    """

    group: str
    name: str
    plural: str
    model: type[Workload | CronJob] = Workload
    template: tuple[str, ...] = ("spec", "template")


KINDS: Final = (
    Kind("apps", "Deployment", "deployments"),
    Kind("apps", "StatefulSet", "statefulsets"),
    Kind("apps", "DaemonSet", "daemonsets"),
    Kind("apps", "ReplicaSet", "replicasets"),
    Kind("", "ReplicationController", "replicationcontrollers"),
    Kind("batch", "Job", "jobs"),
    Kind("batch", "CronJob", "cronjobs", CronJob, ("spec", "jobTemplate", "spec", "template")),
)
"""Every kind in whose templates a share may stand."""


def pod_of(template: PodTemplate | None) -> Pod | None:
    """Return the pod that a template makes, without a name; None if there is none that could be read."""
    if template is None or template.spec is None:
        return None
    return Pod(metadata=template.metadata or ObjectMeta(), spec=template.spec)


def admit_template(kind: Kind, new: Workload | CronJob, old: Workload | CronJob | None = None) -> Admission:
    """Return the answer for a workload that is created, or updated from an old one: shares are moved, the rest stays.

    A template in which there is nothing to move is not judged: its pods are.
    """
    template, pod, before = new.template, pod_of(new.template), pod_of(old.template) if old else None
    if template is None or pod is None:
        return Admission()  # the API server has its own complaint about that
    outdated = set(_outdated(pod, before)) if before else set()
    if not outdated and not any(_has_share(place) for place in places(pod)):
        return Admission()
    kept = {key: value for key, value in (pod.metadata.annotations or {}).items() if key not in outdated}
    requests = read_requests(replace(pod, metadata=replace(pod.metadata, annotations=kept)))
    shares = [wish for wish in requests.wishes if isinstance(wish.ask, Share) and names.GPU in wish.asked]
    annotated = any(key.startswith(names.PREFIX) for wish in requests.wishes for key in wish.asked)
    keys = _keys(shares, kept, annotated=annotated)
    faults = [*requests.faults, *_too_long(shares, keys)]
    if faults:
        root = ".".join(kind.template)
        return Admission(faults=tuple(f"{root}.{found}" for found in faults))
    moved = {key: str(wish.ask) for wish, key in zip(shares, keys, strict=True)}
    told = tuple(_told(shares, keys, (before.metadata.annotations or {}) if before else {}))
    target = {names.CONTAINER: shares[0].place.container.name} if names.FRACTION in moved else {}
    return Admission(
        patch=(
            *(operation for wish in shares for operation in _without_share(kind.template, wish.place)),
            *_annotated(kind.template, template, {**dict.fromkeys(outdated), **moved, **target}),
        ),
        warnings=(*requests.warnings, *told, *_dropped(outdated, pod, before)),
        reasons=told,
    )


# ---------------------------------------------------------------------------------------------------------------------


def _has_share(place: Place) -> bool:
    """Return whether a container asks for GPUs in an amount that is not whole, or is none at all."""
    resources = place.container.resources
    amounts = [(each or {}).get(names.GPU, 0) for each in (resources.limits, resources.requests)] if resources else []
    try:
        return any(parse(amount).denominator > 1 for amount in amounts)
    except QuantityError:
        return True


def _outdated(pod: Pod, before: Pod) -> Iterator[str]:
    """Yield the annotations that this update leaves as they were, for containers for which it brings another wish.

    If it brings GPU resources, which is how their author asks, those of containers that are gone too: they stand in no
    manifest, so nobody else would remove them.
    """
    notes, earlier = pod.metadata.annotations or {}, before.metadata.annotations or {}
    held = {place.container.name: _gpus(place) for place in places(before)}
    asked = read_annotations(pod).containers
    asks = False
    for place in places(pod):
        name = place.container.name
        written = asked[name].written if name in asked else {}
        stale = [key for key, value in written.items() if _is_fraction(key) and earlier.get(key) == value]
        others = {key: value for key, value in written.items() if key not in stale}
        brings = _gpus(place).items() - held.get(name, {}).items()
        asks = asks or bool(brings)
        if brings or others.items() - earlier.items():
            yield from stale
            if names.FRACTION in stale and not others and earlier.get(names.CONTAINER) == notes.get(names.CONTAINER):
                yield names.CONTAINER
    if asks:
        yield from _orphaned(notes, earlier, gone=held.keys() - {place.container.name for place in places(pod)})


def _orphaned(notes: Mapping[str, str], earlier: Mapping[str, str], gone: Collection[str]) -> Iterator[str]:
    """Yield the annotations, left as they were, of shares for containers that are gone."""
    kept = {key for key, value in notes.items() if earlier.get(key) == value}
    yield from (key for key in kept if _is_fraction(key) and key.removeprefix(f"{names.FRACTION}.") in gone)
    if {names.FRACTION, names.CONTAINER} <= kept and notes[names.CONTAINER] in gone:
        yield from (names.FRACTION, names.CONTAINER)


def _is_fraction(key: str) -> bool:
    return key == names.FRACTION or key.startswith(f"{names.FRACTION}.")


def _gpus(place: Place) -> dict[str, str]:
    """Return the GPU resources that a container asks for, zeros left out."""
    return {name: value for name, (_, value) in read_gpu_resources(place.container, place.path, ()).written.items()}


def _keys(shares: Sequence[Wish], kept: Mapping[str, str], *, annotated: bool) -> list[str]:
    """Return the annotation for each share: of a single one the plain key, beside other wishes that of its container."""
    containers = [wish.place.container.name for wish in shares]
    if len(containers) == 1 and not annotated and kept.get(names.CONTAINER, containers[0]) == containers[0]:
        return [names.FRACTION]
    return [f"{names.FRACTION}.{container}" for container in containers]


def _too_long(shares: Sequence[Wish], keys: Sequence[str]) -> Iterator[str]:
    for wish, key in zip(shares, keys, strict=True):
        name = wish.place.container.name
        if key != names.FRACTION and len(name) > _LONGEST:
            yield fault(
                f"{wish.place.path}.name",
                name,
                f"a container that asks for a share beside others becomes part of the annotation {names.FRACTION}.<container>, "
                f"so its name has at most {_LONGEST} characters, not {len(name)}: shorten it",
            )


def _told(shares: Sequence[Wish], keys: Sequence[str], earlier: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each share that has not been moved before."""
    for wish, key in zip(shares, keys, strict=True):
        if earlier.get(key) != str(wish.ask):
            yield (
                f"{wish.said} of {wish.place.container.name} -> {key} {wish.ask} in the template: "
                "each pod gets its slice when it is created"
            )


def _dropped(outdated: Collection[str], pod: Pod, before: Pod | None) -> Iterator[str]:
    """Yield a sentence for each share that goes with its container."""
    notes = pod.metadata.annotations or {}
    gone = {place.container.name for place in places(before)} if before else set()
    gone -= {place.container.name for place in places(pod)}
    for key in sorted(filter(_is_fraction, outdated)):
        container = key.removeprefix(f"{names.FRACTION}.") if key != names.FRACTION else notes.get(names.CONTAINER)
        if container in gone:
            yield f"{key} {notes[key]} is taken out of the template: container {container} is gone"


def _without_share(template: Sequence[str], place: Place) -> Iterator[Operation]:
    resources = place.container.resources
    for key, amounts in (("limits", resources.limits), ("requests", resources.requests)) if resources else ():
        yield from changed((*template, "spec", place.field, place.index, "resources", key), amounts, {names.GPU: None})


def _annotated(root: Sequence[str], template: PodTemplate, changes: Mapping[str, str | None]) -> Iterator[Operation]:
    if template.metadata is None:
        yield put(root, [], "metadata", {"annotations": changes})
    else:
        yield from changed((*root, "metadata", "annotations"), template.metadata.annotations, changes)
