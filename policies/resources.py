"""The GPU resources of one container: whole GPUs, a share of one, explicit slices, with every fault found.

Limits and requests say the same thing or one of them is silent; a request without a limit counts (the webhook writes
both). Other `nvidia.com/` resources are not ours.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Final

import msgspec

from policies import names
from policies.faults import fault
from policies.model import Container
from policies.quantity import Quantity, QuantityError, parse
from policies.shares import Share, share_of
from policies.spelling import is_slice_name, meant_resource

CONCERNED: Final = ("nvidia.com", names.PREFIX)
"""How resources begin that may be meant for us; NVIDIA's also with a dot behind it, as people misspell it."""

_GPU_RULE: Final = "ask for whole GPUs, or for a share of one above 0 and below 1: write for example 2, 0.5 or 250m"
_SLICE_RULE: Final = "slices are whole: write for example 1"
_QUOTA_RULE: Final = f"counts in quotas only: ask by an annotation of the pod, for example {names.MEMORY}: 10Gi"


class GpuResources(msgspec.Struct, frozen=True, kw_only=True):
    """What one container asks for by resources; zeros are left out.

    Attributes:
        whole: whole GPUs.
        share: share of one GPU.
        slices: explicit slices: resource and count.
        foreign: resources of another plugin.
        written: where each of them stands, and its value as written.
        faults: what cannot be understood or contradicts itself.
    """

    whole: int = 0
    share: Share | None = None
    slices: tuple[tuple[str, int], ...] = ()
    foreign: tuple[str, ...] = ()
    written: Mapping[str, tuple[str, str]] = {}
    faults: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the resources that are asked for."""
        return tuple(self.written)

    @property
    def ours(self) -> bool:
        """Return whether one of them at least is none of another plugin's."""
        return len(self.foreign) < len(self.written)

    @property
    def text(self) -> str:
        """Return them with their values, as a person reads them."""
        return _text(self.written)


_NOTHING: Final = GpuResources()


def read_gpu_resources(container: Container, path: str, foreign: Collection[str]) -> GpuResources:
    """Return what a container that stands at `path` asks for. `foreign` are resources of another plugin."""
    limits = (container.resources and container.resources.limits) or {}
    requests = (container.resources and container.resources.requests) or {}
    concerned = [name for name in {**limits, **requests} if _concerns(name)]
    if not concerned:
        return _NOTHING
    whole, share = 0, None
    slices: list[tuple[str, int]] = []
    written: dict[str, tuple[str, str]] = {}
    faults: list[str] = []
    for name in concerned:
        where = f"{path}.resources.{'limits' if name in limits else 'requests'}[{name}]"
        value = limits.get(name, requests.get(name, ""))
        amount = _amount(where, name, limits, requests, faults, known=name in foreign)
        if not amount:
            continue
        written[name] = where, str(value)
        if name in foreign:
            continue
        if name != names.GPU:
            slices.append((name, int(amount)))
        elif amount.denominator == 1:
            whole = int(amount)
        else:
            share = share_of(amount)
    return GpuResources(
        whole=whole,
        share=share,
        slices=tuple(slices),
        foreign=tuple(name for name in written if name in foreign),
        written=written,
        faults=(*faults, *_mixed(path, written, foreign)),
    )


# ---------------------------------------------------------------------------------------------------------------------


def _concerns(name: str) -> bool:
    if not name.startswith(CONCERNED):
        return False
    known = name in (names.GPU, names.GPU_SHARED) or name.startswith(names.PREFIX)
    return known or is_slice_name(name) or meant_resource(name) is not None


def _amount(
    where: str,
    name: str,
    limits: Mapping[str, Quantity],
    requests: Mapping[str, Quantity],
    faults: list[str],
    *,
    known: bool,
) -> Fraction:
    """Return how much of a resource is asked for; 0 if nothing, or if there is a fault."""
    value = limits.get(name, requests.get(name, ""))
    if not known and (meant := meant_resource(name)):
        faults.append(fault(where, value, f"there is no such resource: write {meant}"))
        return Fraction(0)
    if name.startswith(names.PREFIX):
        faults.append(fault(where, value, _QUOTA_RULE))
        return Fraction(0)
    try:
        amount, request = parse(value), parse(requests.get(name, value))
    except QuantityError as error:
        faults.append(f"{where}: {error}")
        return Fraction(0)
    if known:
        return amount
    if amount != request:
        faults.append(fault(where, value, f"the request is {requests[name]}: write the same in limits and requests"))
    if name == names.GPU:
        sound = amount >= 0 and (amount.denominator == 1 or share_of(amount) is not None)
    else:
        sound = amount >= 0 and amount.denominator == 1
    if not sound:
        faults.append(fault(where, value, _GPU_RULE if name == names.GPU else _SLICE_RULE))
    return amount if sound and amount == request else Fraction(0)


def _mixed(path: str, written: Mapping[str, tuple[str, str]], foreign: Collection[str]) -> tuple[str, ...]:
    """Return the fault of a container that asks for devices of two kinds, of which one at least is ours."""
    if len(written) < 2 or all(name in foreign for name in written):
        return ()
    rule = "devices of two kinds collide in one container: give each a container of its own"
    return (fault(f"{path}.resources", _text(written), rule),)


def _text(written: Mapping[str, tuple[str, str]]) -> str:
    return ", ".join(f"{name} {value}" for name, (_, value) in written.items())
