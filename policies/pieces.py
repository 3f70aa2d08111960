"""What boards of one kind make for a wish: the smallest slice that satisfies it, and whether a given one does.

MIG compares profiles, MPS counts whole nominal GB, time-slicing limits nothing.
"""

from functools import lru_cache
from typing import Final

import msgspec

from policies import names
from policies.catalogue import BoardModel, Profile
from policies.placement import bin_gb, profile_of
from policies.requests import Ask, Slice
from policies.shares import Memory, Share
from policies.site import BoardKind


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A slice that boards of a kind can make.

    Attributes:
        kind: of the boards.
        profile: as in layouts; empty for a turn on a whole board.
        resource: what announces it.
        memory_kib: real memory.
        text: what it is, for people.
    """

    kind: BoardKind
    profile: str
    resource: str
    memory_kib: int
    text: str


@lru_cache(maxsize=1 << 12)
def smallest(kind: BoardKind, ask: Ask) -> Piece | None:
    """Return the smallest slice of a kind of boards that satisfies a wish, or None."""
    if isinstance(ask, Slice):
        return _named(kind, ask.resource) if kind.makes(ask.resource) else None
    model = kind.model
    if kind.mode == names.MIG:
        return next((_mig(kind, profile) for profile in model.profiles if _satisfies(model, profile, ask)), None)
    if kind.mode == names.MPS:
        gigabytes = _gigabytes(model, ask)
        return _mps(kind, gigabytes) if gigabytes <= model.nominal_gb else None
    fits = isinstance(ask, Share) or ask.met_by(memory_mib=model.memory_mib, nominal_gb=model.nominal_gb)
    return _turn(kind) if fits else None


def announced(ask: Slice) -> Piece:
    """Return a slice of which only the name is known: nodes announce it, but their boards are not."""
    unknown = BoardKind(ask.mode, BoardModel(name="", memory_mib=0, nominal_gb=0))
    return Piece(kind=unknown, profile="", resource=ask.resource, memory_kib=0, text="")


def serves(kind: BoardKind, ask: Share | Memory, resource: str) -> bool:
    """Return whether a slice that boards of this kind make satisfies a wish when it comes from one of them."""
    if kind.mode == names.MIG:
        profile = kind.model.profile(profile_of(resource))
        return profile is not None and _satisfies(kind.model, profile, ask)
    if kind.mode == names.MPS:
        return (bin_gb(profile_of(resource)) or 0) >= _gigabytes(kind.model, ask)
    return smallest(kind, ask) is not None


def makes(kind: BoardKind) -> str:
    """Return what boards of a kind can be cut into, for people."""
    model = kind.model
    if kind.mode == names.MIG:
        plain = [profile.name for profile in model.profiles if profile.plain]
        return f"{model.name} makes {', '.join(plain) or 'no MIG slices'}"
    if kind.mode == names.MPS:
        return f"{model.name} makes 1gb to {model.nominal_gb}gb by MPS"
    return f"{model.name} is time-sliced, for pods that name it: {names.MODE}: {names.TIMESLICING}"


# ---------------------------------------------------------------------------------------------------------------------

_NOT_LIMITED: Final = "nothing is limited: neither memory nor compute, no fault isolation"


def _satisfies(model: BoardModel, profile: Profile, ask: Share | Memory) -> bool:
    if isinstance(ask, Share):
        # The larger of compute and memory counts, so that n requests of 1/n share a board wherever MIG allows it.
        return ask.met_by(profile.compute, model.compute) or ask.met_by(profile.memory_units, model.memory_units)
    named_gb = int(profile.name.partition(".")[2].partition("gb")[0])
    return ask.met_by(memory_mib=profile.memory_mib, nominal_gb=named_gb)


def _gigabytes(model: BoardModel, ask: Share | Memory) -> int:
    """Return the nominal GB of an MPS slice that satisfies a wish; may be more than the board has."""
    if isinstance(ask, Share):
        return ask.of(model.nominal_gb)
    return ask.gigabytes(memory_mib=model.memory_mib, nominal_gb=model.nominal_gb)


def _named(kind: BoardKind, resource: str) -> Piece | None:
    if kind.mode == names.TIMESLICING:
        return _turn(kind)
    profile = profile_of(resource)
    if kind.mode == names.MPS:
        return _mps(kind, bin_gb(profile) or 0)
    found = kind.model.profile(profile)
    return _mig(kind, found) if found else None


def _mig(kind: BoardKind, profile: Profile) -> Piece:
    model = kind.model
    return Piece(
        kind=kind,
        profile=profile.name,
        resource=names.mig_resource(profile.name),
        memory_kib=profile.memory_mib * 1024,
        text=f"({profile.compute}/{model.compute} compute, {_gib(profile.memory_mib * 1024)} GiB of {model.name})",
    )


def _mps(kind: BoardKind, gigabytes: int) -> Piece:
    model = kind.model
    memory_kib = model.memory_mib * 1024 * gigabytes // model.nominal_gb
    return Piece(
        kind=kind,
        profile=f"{gigabytes}gb",
        resource=names.mps_resource(gigabytes),
        memory_kib=memory_kib,
        text=f"({_gib(memory_kib)} GiB of {model.name}); memory limit per process, no fault isolation",
    )


def _turn(kind: BoardKind) -> Piece:
    model = kind.model
    return Piece(
        kind=kind,
        profile="",
        resource=names.GPU_SHARED,
        memory_kib=model.memory_mib * 1024,
        text=f"(turns on {model.name}); {_NOT_LIMITED}",
    )


def _gib(kib: int) -> str:
    """Return KiB in GiB as nvidia-smi prints it, without zeros at the end: `19.5`, `9.62`."""
    return f"{kib / 2**20:.2f}".rstrip("0").rstrip(".")
