"""Quota objects as decisions see them: read with all their faults, and which of them governs a namespace.

What the CRDs' own rules refuse is a fault here too: files have no API server, and a webhook that was not there refuses
nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from policies import names
from policies.faults import fault
from policies.model import CompositeElasticQuota, ElasticQuota, QuotaSpec
from policies.quantity import Amounts, Quantity, QuantityError, amount, milli
from policies.spelling import closest, is_slice_name, meant_resource
from policies.timestamps import epoch

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_SPELT: Final = (*_PLAIN, names.GPU, names.GPU_SHARED, names.GPU_MEMORY_QUOTA)
"""Resources that are counted and have one spelling; slices have many."""

_MEANT: Final = {name.rpartition("/")[2]: name for name in _SPELT} | {name: name for name in _SPELT}
"""What is meant by a name; `gpu` alone means NVIDIA's."""

_DIVISIBLE: Final = (*_PLAIN, names.GPU, names.GPU_MEMORY_QUOTA)
"""Resources of which a part can be owned: slices are counted as parts of GPUs. Others with a prefix come whole."""

_MOST_GB: Final = 1_000_000
"""More GB of GPU memory than a cluster has; what is written in bytes, from 1Mi on, is more."""

# NVIDIA's plugins for whole virtual machines announce these: no misspelt GPU.
_NOT_GPUS: Final = (f"{names.NVIDIA_PREFIX}pgpu", f"{names.NVIDIA_PREFIX}vgpu")

# Source: k8s.io/apimachinery, IsQualifiedName with a prefix; IsExtendedResourceName, which excludes `requests.`.
_PREFIXED: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_HUGEPAGES: Final = re.compile(r"hugepages-[1-9][0-9]*[KMGT]i")
_OF_RESOURCE_QUOTAS: Final = ("requests.", "limits.")

# Source: RFC 1123, as the API server demands it of namespaces.
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """A quota as decisions see it.

    Attributes:
        kind: `ElasticQuota` or `CompositeElasticQuota`.
        namespace: where the object stands.
        name: its name.
        uid: its uid.
        generation: its generation.
        created: seconds since the epoch; of two that want the same namespace the older governs it.
        namespaces: what it is to govern: its own namespace, or those that a composite one lists; sorted.
        min: what it owns, in thousandths. A resource that is absent is not governed by min.
        max: what it may use at most, in thousandths. A resource that is absent has no cap.
        faults: what is wrong with it; with any it governs nothing, and the pods of its namespaces wait.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    created: int = 0
    namespaces: tuple[str, ...] = ()
    min: Amounts = {}
    max: Amounts = {}
    faults: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def title(self) -> str:
        """Return kind and namespace/name, which no other quota has."""
        return f"{self.kind} {self.key}"


class Governed(msgspec.Struct, frozen=True, kw_only=True):
    """Who governs what.

    Attributes:
        by_namespace: the quota of each namespace that has one, in force or not.
        unready: title -> (reason, message) of quotas that are not in force.
        namespaces: title -> the namespaces that each governs, sorted.
    """

    by_namespace: Mapping[str, QuotaView]
    unready: Mapping[str, tuple[str, str]]
    namespaces: Mapping[str, tuple[str, ...]]


def view_quota(quota: ElasticQuota | CompositeElasticQuota) -> QuotaView:
    """Return what decisions see of a quota. What is wrong with it becomes its faults, never an error."""
    meta, spec = quota.metadata, quota.spec or QuotaSpec()
    faults: list[str] = []
    least, most = (
        _amounts(f"spec.{name}", written, faults) for name, written in (("min", spec.min), ("max", spec.max))
    )
    faults += [
        fault(
            f"spec.min[{name}]",
            amount(name, thousandths),
            f"is more than spec.max[{name}], {amount(name, most[name])}: lower it, or raise that",
        )
        for name, thousandths in sorted(least.items())
        if thousandths > most.get(name, thousandths)
    ]
    composite = isinstance(quota, CompositeElasticQuota)
    if composite:
        faults += _misnamed(spec.namespaces or ())
    return QuotaView(
        kind=names.COMPOSITE_QUOTA if composite else names.ELASTIC_QUOTA,
        namespace=meta.namespace or "",
        name=meta.name or "",
        uid=meta.uid or "",
        generation=meta.generation or 0,
        created=epoch(meta.creation_timestamp),
        namespaces=tuple(sorted(set(spec.namespaces or ()))) if composite else (meta.namespace or "",),
        min=least,
        max=most,
        faults=tuple(faults),
    )


def govern(quotas: Iterable[QuotaView]) -> Governed:
    """Return who governs what: composite quotas before others, older before younger, faulty ones where nobody else does.

    A composite quota that would share a namespace with an older one is not in force at all: half of it would be
    another quota than the one that was written.
    """
    in_force: dict[str, QuotaView] = {}
    unready: dict[str, tuple[str, str]] = {}
    everybody = sorted(quotas, key=lambda quota: (quota.kind != names.COMPOSITE_QUOTA, quota.created, quota.title))
    for quota in everybody:
        if quota.faults:
            unready[quota.title] = names.QUOTA_FAULTY, "; ".join(quota.faults)
        elif rival := next((in_force[space] for space in quota.namespaces if space in in_force), None):
            unready[quota.title] = _beside(quota, rival)
        else:
            in_force |= dict.fromkeys(quota.namespaces, quota)
    claimed = dict(in_force)
    for quota in everybody:
        if unready.get(quota.title, ("", ""))[0] in (names.QUOTA_FAULTY, names.QUOTA_CONFLICT):
            claimed = dict.fromkeys(quota.namespaces, quota) | claimed
    namespaces: dict[str, list[str]] = {}
    for space, quota in sorted(in_force.items()):
        namespaces.setdefault(quota.title, []).append(space)
    return Governed(
        by_namespace=claimed,
        unready=unready,
        namespaces={title: tuple(spaces) for title, spaces in namespaces.items()},
    )


# ---------------------------------------------------------------------------------------------------------------------


def _beside(quota: QuotaView, rival: QuotaView) -> tuple[str, str]:
    shared = ", ".join(sorted({*quota.namespaces} & {*rival.namespaces}))
    if quota.kind == names.ELASTIC_QUOTA and rival.kind == names.COMPOSITE_QUOTA:
        return names.QUOTA_SUPERSEDED, f"{rival.title} governs namespace {shared}"
    return names.QUOTA_CONFLICT, f"{rival.title}, which is older, governs namespace {shared} too: delete one of them"


def _misnamed(namespaces: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the namespaces of a composite quota."""
    if not namespaces:
        yield "spec.namespaces: missing: a composite quota lists the namespaces that it governs"
    for index, name in enumerate(namespaces):
        path = f"spec.namespaces[{index}]"
        if not _NAMESPACE.fullmatch(name):
            yield fault(path, name or '""', "is no name of a namespace: list each by its own name")
        elif name in namespaces[:index]:
            yield fault(path, name, "stands there twice: leave one out")


def _amounts(path: str, written: Mapping[str, Quantity] | None, faults: list[str]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, quantity in (written or {}).items():
        if why := _unknown(name):
            faults.append(fault(f"{path}[{name}]", name, why))
            continue
        try:
            amounts[name] = milli(quantity)
        except QuantityError as error:
            faults.append(f"{path}[{name}]: {error}")
            continue
        if amounts[name] < 0:
            faults.append(fault(f"{path}[{name}]", quantity, "must not be negative: leave it out, or write 0 or more"))
        elif amounts[name] % 1000 and name not in _DIVISIBLE and "/" in name:
            whole = -(-amounts[name] // 1000)
            faults.append(fault(f"{path}[{name}]", quantity, f"comes in whole numbers only: write {whole}"))
        elif name == names.GPU_MEMORY_QUOTA and amounts[name] > _MOST_GB * 1000:
            unit = 2**30 if str(quantity).endswith("i") else 10**9
            meant = -(-amounts[name] // (unit * 1000))
            faults.append(fault(f"{path}[{name}]", quantity, f"is counted in GB, not in bytes: write {meant}"))
    return amounts


def _unknown(resource: str) -> str:
    """Return why a name is no resource that a quota can count, with the way out; "" if it is one."""
    if resource in _SPELT or is_slice_name(resource):
        return ""
    for prefix in _OF_RESOURCE_QUOTAS:
        if resource.startswith(prefix):
            return f"is a key of a ResourceQuota: write {resource.removeprefix(prefix)}"
    if meant := meant_resource(resource):
        return f"is no resource: write {meant}"
    if resource not in _NOT_GPUS and (near := closest(resource, _MEANT, 1)):
        return f"is no resource: write {_MEANT[near]}"
    if resource.startswith(names.PREFIX):
        return f"is no resource: of ours there is {names.GPU_MEMORY_QUOTA}"
    if _PREFIXED.fullmatch(resource) or _HUGEPAGES.fullmatch(resource):
        return ""
    return f"is no resource: write {', '.join(_PLAIN)} or a name with a prefix, such as {names.GPU}"
