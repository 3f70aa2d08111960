"""Keys that are nearly ours, and keys of other tools: what a person meant, never taken as "asks for nothing".

A typo in a resource or annotation name means "no request" to Kubernetes, and the pod would take the whole GPU or
none (pain W34). Under our own prefix a key within an edit distance of 2 of one of ours is a near miss; of
`nvidia.com/` only the shapes `gpu-<n>...` and `mig-...` are ours to judge.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from policies import names

USER_KEYS: Final = (
    names.FRACTION,
    names.MEMORY,
    names.COUNT,
    names.MODE,
    names.CONTAINER,
    names.NON_PREEMPTIBLE,
)
"""Annotations that users write on pods."""

OUR_KEYS: Final = (*USER_KEYS, *names.OUR_MARKS)
"""Every annotation of ours that may stand on a pod."""

_MOST_EDITS: Final = 2

# What NVIDIA's plugin and ours announce: docs of the device plugin for MIG (suffixes `.me`, `-me`), nos for MPS.
_SLICE: Final = re.compile(r"nvidia\.com/(gpu-[1-9][0-9]*gb|mig-([0-9]+c\.)?[0-9]+g\.[0-9]+gb(\.[a-z.]+|-me)?)")
_SHAPED: Final = re.compile(r"nvidia\.com/(gpu-[0-9]|mig-)", re.IGNORECASE)
_DOTTED: Final = "nvidia.com."


def nearest(key: str) -> str | None:
    """Return the annotation of ours that an unknown key under our prefix nearly is, or None."""
    return closest(key, OUR_KEYS, _MOST_EDITS)


def closest(written: str, known: Iterable[str], edits: int) -> str | None:
    """Return the first of the known names that is nearest to a written one, upper case aside; None beyond so many edits."""
    distance, found = min((_distance(written.lower(), name), name) for name in known)
    return found if distance <= edits else None


def is_slice_name(resource: str) -> bool:
    """Return whether a resource is spelt as a MIG or MPS slice is."""
    return _SLICE.fullmatch(resource) is not None


def meant_resource(resource: str) -> str | None:
    """Return the resource that a misspelt one means; None if it is spelt right or not ours to judge."""
    if resource.startswith(_DOTTED):  # `nvidia.com.gpu`
        resource = names.NVIDIA_PREFIX + resource.removeprefix(_DOTTED)
        if resource == names.GPU or is_slice_name(resource):
            return resource
    if is_slice_name(resource) or not _SHAPED.match(resource):
        return None
    numbers = re.findall(r"[0-9]+", resource)
    if resource.lower().startswith(names.MIG_RESOURCE):
        return names.mig_resource(f"{numbers[0]}g.{numbers[1]}gb" if len(numbers) > 1 else "1g.5gb")
    return names.mps_resource(max(1, int(numbers[0][:9])))


class Foreign(msgspec.Struct, frozen=True):
    """A key by which another tool is asked.

    Attributes:
        tool: its name.
        schedulers: names of its scheduler: a pod that bears one means that tool, and is told nothing.
        key: ours for the same wish; empty if there is none.
        form: how the value is written in ours, `{}` being the other tool's.
    """

    tool: str
    schedulers: tuple[str, ...]
    key: str
    form: str = "{}"

    def advice(self, written: str, value: str) -> str:
        """Return the warning for this key with its value."""
        said = f"{written} is a key of {self.tool} and asks for nothing here"
        text = " ".join(value.split())  # a warning travels in a header
        short = text if len(text) <= 40 else f"{text[:37]}..."
        return f'{said}; write {self.key}: "{self.form.format(short)}"' if self.key else f"{said}; {self.form}"


_KAI: Final = "KAI", ("kai-scheduler",)
_HAMI: Final = "HAMi", ("hami-scheduler",)
_VOLCANO: Final = "Volcano", ("volcano",)
_CORES: Final = "the compute follows the share or memory that is asked for"

FOREIGN_ANNOTATIONS: Final[Mapping[str, Foreign]] = {
    "gpu-fraction": Foreign(*_KAI, names.FRACTION),
    "gpu-memory": Foreign(*_KAI, names.MEMORY, "{}Mi"),
    "gpu-fraction-num-devices": Foreign(*_KAI, names.COUNT),
    "gpu-fraction-container-name": Foreign(*_KAI, names.CONTAINER),
    "nvidia.com/vgpu-mode": Foreign(*_HAMI, names.MODE),
    "nvidia.com/use-gputype": Foreign(*_HAMI, "", f"select nodes by their label {names.PRODUCT_LABEL}"),
    "nvidia.com/nouse-gputype": Foreign(*_HAMI, "", f"select nodes by their label {names.PRODUCT_LABEL}"),
}
"""Annotations of other tools, by key."""

FOREIGN_RESOURCES: Final[Mapping[str, Foreign]] = {
    "nvidia.com/gpumem": Foreign(*_HAMI, names.MEMORY, "{}Mi"),
    "nvidia.com/gpumem-percentage": Foreign(*_HAMI, names.FRACTION, "{}/100"),
    "nvidia.com/gpucores": Foreign(*_HAMI, "", _CORES),
    "nvidia.com/gpu.memory": Foreign("GPU feature discovery (a node label)", (), names.MEMORY, "{}Mi"),
    "volcano.sh/vgpu-number": Foreign(*_VOLCANO, names.COUNT),
    "volcano.sh/vgpu-memory": Foreign(*_VOLCANO, names.MEMORY, "{}Mi"),
    "volcano.sh/vgpu-memory-percentage": Foreign(*_VOLCANO, names.FRACTION, "{}/100"),
    "volcano.sh/vgpu-cores": Foreign(*_VOLCANO, "", _CORES),
}
"""Resources of other tools, by name."""


def foreign_advice(
    known: Mapping[str, Foreign], written: Mapping[str, object], scheduler: str | None
) -> tuple[str, ...]:
    """Return a warning for each of the written keys that is another tool's, unless the pod names its scheduler."""
    return tuple(
        known[key].advice(key, str(value))
        for key, value in written.items()
        if key in known and scheduler not in known[key].schedulers
    )


# ---------------------------------------------------------------------------------------------------------------------


def _distance(one: str, other: str) -> int:
    """Return the edit distance (insert, delete, replace); of texts that differ more in length than counts, that."""
    if abs(len(one) - len(other)) > _MOST_EDITS:
        return abs(len(one) - len(other))
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]
