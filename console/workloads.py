"""Workloads that stand in files: what the webhook does with their templates, and the pods that these then make."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

import msgspec

from console.manifests import Manifest, Manifests, UnreadableManifests
from console.reviewing import Reviewed, answered
from console.submitted import Raw, as_submitted
from policies.faults import fault, misfits
from policies.model import Pod
from policies.templates import KINDS, Kind, admit_template

_KINDS: Final[Mapping[tuple[object, str], Kind]] = {
    (f"{kind.group}/v1" if kind.group else "v1", kind.name): kind for kind in KINDS
}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with what becomes of it.

    Attributes:
        title: kind and namespace/name.
        answer: what the webhook answers to its creation.
        pod: the first pod that it makes then, called `<name>-<ordinal>`; None if it is denied, or has no template.
    """

    title: str
    answer: Reviewed
    pod: Manifest[Pod] | None


def planned(manifests: Manifests) -> list[Planned]:
    """Return every workload of the input, in its order. Raises UnreadableManifests with every fault of all of them."""
    faults: list[str] = []
    taken = {pod.key for pod in manifests.pods}
    found = [
        _plan(item, kind, taken, faults)
        for item in manifests.others
        if (kind := _KINDS.get((item.raw.get("apiVersion"), item.kind)))
    ]
    if faults:
        raise UnreadableManifests("\n".join(["the input cannot be read", *faults]))
    return [each for each in found if each]


# ---------------------------------------------------------------------------------------------------------------------


def _plan(item: Manifest[Raw], kind: Kind, taken: set[str], faults: list[str]) -> Planned | None:
    """Return what becomes of a workload, or None and its faults. `taken` names what there is already."""
    found: list[str] = []
    raw = _submitted(item.raw, kind.template, found)
    found = [f"{'.'.join(kind.template)}.{text}" for text in found]
    namespace = item.namespace or "default"
    title = f"{kind.name} {namespace}/{item.name}"
    if not item.name:
        found.append(f"metadata.name: missing: a {kind.name} needs a name")
    elif title in taken:
        found.append(fault("metadata.name", item.name, "stands already in the input"))
    taken.add(title)
    try:
        workload = msgspec.convert(raw, kind.model)
    except msgspec.ValidationError as error:
        found += misfits(raw, kind.model) or [str(error)]
    if found:
        faults += [f"{item.source}: {text}" for text in found]
        return None
    answer = answered(raw, admit_template(kind, workload))
    pod = _pod(answer.admitted, kind, item.name, namespace) if answer.admitted else None
    return Planned(
        title=title,
        answer=answer,
        pod=_manifest(pod, item, namespace, taken) if pod else None,
    )


def _submitted(raw: Raw, template: Sequence[str], faults: list[str]) -> Raw:
    """Return a workload as a webhook is shown it."""
    if not template:
        return as_submitted(raw, faults, template=True)
    step, *rest = template
    inner = raw.get(step)
    return {**raw, step: _submitted(inner, rest, faults)} if isinstance(inner, dict) else raw


def _pod(workload: Raw, kind: Kind, name: str, namespace: str) -> Raw | None:
    """Return the pod that a controller makes of a workload's template, as a webhook is shown it."""
    template: object = workload
    for step in kind.template:
        template = template.get(step) if isinstance(template, dict) else None
    if not isinstance(template, dict) or not template.get("spec"):
        return None
    metadata = {**(template.get("metadata") or {}), "generateName": f"{name}-", "namespace": namespace}
    return as_submitted({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}, [])


def _manifest(pod: Raw, item: Manifest[Raw], namespace: str, taken: set[str]) -> Manifest[Pod]:
    names = (f"{item.name}-{ordinal}" for ordinal in count())
    name = next(name for name in names if f"{namespace}/{name}" not in taken)
    taken.add(f"{namespace}/{name}")
    value = msgspec.convert(pod, Pod)
    return Manifest(source=item.source, kind="Pod", namespace=namespace, name=name, raw=pod, value=value)
