"""Reads a configuration of NVIDIA's device plugin, or of nebuly's fork of it: how resources are named and shared.

NVIDIA's plugin parses some fields and then ignores them (`rename`, `devices`, `resources`). Here each field is honoured,
or refused with the way out. Sources: NVIDIA/k8s-device-plugin, api/config/v1; nebuly-ai/k8s-device-plugin, README.
"""

import re
from typing import Final, Literal

import msgspec

from policies import names
from policies.faults import UnsoundError, fault
from policies.needs import is_slice
from policies.placement import bin_gb, profile_of
from reconciler.agent.fixed.devices import Selection, read_selection
from reconciler.agent.fixed.pluginflags import Flags, flag_faults
from reconciler.agent.fixed.reading import Part, read_file

MIXED: Final = "mixed"
SINGLE: Final = "single"
NONE: Final = "none"
MOST_REPLICAS: Final = 1000  # with more, the id of a device would be longer than the kubelet takes

_SHARED_SUFFIX: Final = ".shared"
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")  # of a resource, behind its prefix


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that is divided: one entry of `sharing`.

    Attributes:
        place: where it stands, for faults.
        mps: by memory; else in turns.
        name: the resource whose devices are divided.
        resource: the resource by which the parts are announced.
        devices: which boards.
        replicas: the parts of each device.
        memory_gb: GB of each part; None: the board's, in equal parts.
        alone: a container may have only one of them.
    """

    place: str
    mps: bool
    name: str
    resource: str
    devices: Selection
    replicas: int
    memory_gb: int | None = None
    alone: bool


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration.

    Attributes:
        strategy: how MIG devices are announced: MIXED, by profile; SINGLE, all as `nvidia.com/gpu`; NONE.
        shared: what is divided, in the order of the file.
    """

    strategy: str = NONE
    shared: tuple[Shared, ...] = ()


def read_plugin_config(text: str) -> PluginConfig:
    """Return the configuration in a file. Raises UnsoundError with all its faults."""
    document = read_file(text, _Document)
    faults = [*flag_faults(document.flags), *_renamings(document.resources)]
    sharing = document.sharing
    shared = [
        _shared(entry, section, f"sharing.{key}.resources[{index}]", key == "mps", faults)
        for key, section in (("timeSlicing", sharing.time_slicing), ("mps", sharing.mps))
        for index, entry in enumerate(section.resources)
    ]
    if faults:
        raise UnsoundError(faults)
    return PluginConfig(strategy=document.flags.mig_strategy, shared=tuple(shared))


# ---------------------------------------------------------------------------------------------------------------------


class _Naming(Part, frozen=True, kw_only=True):
    pattern: str
    name: str


class _Namings(Part, frozen=True, kw_only=True):
    gpus: tuple[_Naming, ...] = ()
    migs: tuple[_Naming, ...] = ()


class _Entry(Part, frozen=True, kw_only=True):
    name: str
    rename: str = ""
    devices: object = "all"
    replicas: int
    memory_gb: int | None = msgspec.field(default=None, name="memoryGB")


class _Section(Part, frozen=True, kw_only=True):
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None
    resources: tuple[_Entry, ...] = ()


class _Sharing(Part, frozen=True, kw_only=True):
    time_slicing: _Section = _Section()
    mps: _Section = _Section()


class _Document(Part, frozen=True, kw_only=True):
    version: Literal["v1"]
    flags: Flags = Flags()
    resources: _Namings = _Namings()
    sharing: _Sharing = _Sharing()


def _renamings(namings: _Namings) -> list[str]:
    """Return what of `resources` gives a name other than the usual one."""
    faults = []
    for key, entries in (("gpus", namings.gpus), ("migs", namings.migs)):
        for index, entry in enumerate(entries):
            usual = names.GPU if key == "gpus" else names.mig_resource(entry.pattern)
            if _full(entry.name) != usual:
                way_out = f"this is announced as {usual}: leave it out, or rename what is shared under sharing"
                faults.append(fault(f"resources.{key}[{index}].name", entry.name, way_out))
    return faults


def _shared(entry: _Entry, section: _Section, place: str, mps: bool, faults: list[str]) -> Shared:
    name = _full(entry.name)
    suffix = _SHARED_SUFFIX if section.rename_by_default else ""
    resource = _full(entry.rename) if entry.rename else name + suffix
    least = 1 if mps else 2  # memory may be given to one alone; turns are taken by two
    if not least <= entry.replicas <= MOST_REPLICAS:
        faults.append(fault(f"{place}.replicas", entry.replicas, f"must be from {least} to {MOST_REPLICAS}"))
    faults += [f"{place}.{why}" for why in (_mps_faults if mps else _turn_faults)(entry, name, resource)]
    if not resource.startswith(names.NVIDIA_PREFIX):
        faults.append(fault(f"{place}.rename", entry.rename, f"must begin with {names.NVIDIA_PREFIX}"))
    elif not _NAME.fullmatch(resource.removeprefix(names.NVIDIA_PREFIX)):
        key, said = ("rename", entry.rename) if entry.rename else ("name", entry.name)
        way_out = f"no name of a resource: after {names.NVIDIA_PREFIX} at most 63 letters, digits, and -_. between them"
        faults.append(fault(f"{place}.{key}", said, way_out))
    alone = section.fail_requests_greater_than_one
    if mps and alone is False:
        faults.append(
            f"{place.rpartition('.')[0]}.failRequestsGreaterThanOne: false: a client talks to one MPS daemon, so a "
            "container gets one device: leave it out"
        )
    return Shared(
        place=place,
        mps=mps,
        name=name,
        resource=resource,
        devices=read_selection(entry.devices, f"{place}.devices", faults),
        replicas=entry.replicas,
        memory_gb=entry.memory_gb,
        alone=mps if alone is None else alone,
    )


def _mps_faults(entry: _Entry, name: str, resource: str) -> list[str]:
    faults = []
    if name != names.GPU:
        faults.append(fault("name", entry.name, f"MPS shares whole GPUs: write {names.GPU}"))
    if entry.memory_gb is not None and entry.memory_gb < 1:
        faults.append(fault("memoryGB", entry.memory_gb, "must be at least 1"))
    if entry.rename and is_slice(resource):
        said = bin_gb(profile_of(resource)) if resource.startswith(names.MPS_RESOURCE) else None
        if said is None:
            faults.append(fault("rename", entry.rename, f"an MPS slice is called {names.MPS_RESOURCE}<N>gb"))
        elif said != entry.memory_gb:
            faults.append(fault("rename", entry.rename, f"says {said} GB: write memoryGB: {said}"))
    return faults


def _turn_faults(entry: _Entry, name: str, resource: str) -> list[str]:
    faults = []
    if entry.memory_gb is not None:
        faults.append(fault("memoryGB", entry.memory_gb, "time-slicing limits no memory: use sharing.mps"))
    migs = name.startswith(names.MIG_RESOURCE)
    if name != names.GPU and not migs:
        faults.append(fault("name", entry.name, f"write {names.GPU} or {names.MIG_RESOURCE}<profile>"))
    if is_slice(resource) and resource not in (name, name + _SHARED_SUFFIX):
        faults.append(
            fault("rename", entry.rename, "is the name of a slice with memory of its own, which a turn is not")
        )
    if migs and entry.devices != "all":
        faults.append(
            fault("devices", entry.devices, "MIG devices are divided by their resource, all of them: write all")
        )
    return faults


def _full(name: str) -> str:
    """Return a resource's name with the prefix that NVIDIA's plugin adds where there is none."""
    return name if "/" in name else names.NVIDIA_PREFIX + name
