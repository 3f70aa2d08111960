"""What boards of one kind make for a wish: the smallest slice that serves it, whether a given one does, or why none.

MIG compares profiles, MPS counts whole nominal GB, time-slicing limits nothing. A slice serves if it holds what is
asked for (or is exactly that, where the policy wants it) and is as large a share of its board as the policy allows.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from policies import names
from policies.catalogue import BoardModel, Profile
from policies.charges import Place, largest_share
from policies.placement import bin_gb, profile_of
from policies.policy import ANY, Terms
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
        part: memory units that it takes, as quotas count them.
        whole: of so many.
    """

    kind: BoardKind
    profile: str
    resource: str
    memory_kib: int
    text: str
    part: int
    whole: int

    @property
    def percent(self) -> int:
        """Return its share of the board in hundredths, rounded up."""
        return -(-100 * self.part // self.whole)


@lru_cache(maxsize=1 << 12)
def smallest(kind: BoardKind, ask: Ask, terms: Terms = ANY) -> Piece | None:
    """Return the smallest slice of a kind of boards that serves a wish, or None."""
    piece = _holding(kind, ask, terms)
    return piece if piece and not _out_of_bounds(piece, terms) else None


def announced(ask: Slice) -> Piece:
    """Return a slice of which only the name is known: nodes announce it, but their boards are not."""
    unknown = BoardKind(ask.mode, BoardModel(name="boards that are not known", memory_mib=0, nominal_gb=0))
    share = 1000 if ask.mode == names.TIMESLICING else largest_share(profile_of(ask.resource), Place())
    return Piece(kind=unknown, profile="", resource=ask.resource, memory_kib=0, text="", part=share, whole=1000)


def bounded(piece: Piece, terms: Terms) -> Piece | None:
    """Return a slice if it is as large a share of its board as the policy allows."""
    return None if _out_of_bounds(piece, terms) else piece


@lru_cache(maxsize=1 << 12)
def serves(kind: BoardKind, ask: Ask, resource: str, terms: Terms = ANY) -> bool:
    """Return whether a slice that boards of this kind make serves a wish when it comes from one of them."""
    named = _named(kind, resource, terms)
    if named is None or _out_of_bounds(named, terms):
        return False
    if isinstance(ask, Slice):
        return ask.resource == resource
    if kind.mode == names.MIG:
        profile = kind.model.profile(named.profile)
        return profile is not None and _satisfies(kind.model, profile, ask)
    if kind.mode == names.MPS:
        return (bin_gb(named.profile) or 0) >= _gigabytes(kind.model, ask)
    return smallest(kind, ask, terms) is not None


def objection(kind: BoardKind, ask: Ask, terms: Terms) -> str:
    """Return why boards of a kind, though they make a slice that would hold a wish, may not serve it; or ""."""
    if _holding(kind, ask, msgspec.structs.replace(terms, exact=False)) is None:
        return ""
    piece = _holding(kind, ask, terms)
    if piece is not None:
        return _out_of_bounds(piece, terms)
    near = _nearest(kind, ask)
    return (
        f"the policy rounds nothing, and no slice of {kind.model.name} is exactly that: the nearest is {near.resource}"
    )


def makes(kind: BoardKind) -> str:
    """Return what boards of a kind can be cut into, for people."""
    model = kind.model
    if kind.mode == names.MIG:
        plain = [profile.name for profile in model.profiles if profile.plain]
        return f"{model.name} makes {', '.join(plain) or 'no MIG slices'}"
    if kind.mode == names.MPS:
        return f"{model.name} makes 1gb to {model.nominal_gb}gb by MPS"
    if kind.called:
        return (
            f"{model.name} is time-sliced, but announced as {kind.called}: ask for that in limits, "
            f"or have the node's file call it {names.GPU_SHARED} (renameByDefault: true)"
        )
    return f"{model.name} is time-sliced, for pods that name it: {names.MODE}: {names.TIMESLICING}"


def client_limits(model: BoardModel) -> str:
    """Return what a user may rely on with a slice of a board that is made by MPS."""
    return PER_PROCESS if model.volta else NOT_LIMITED


# ---------------------------------------------------------------------------------------------------------------------

# What a user may rely on, by the way a slice is made; said wherever one is chosen (pain A22).
IN_HARDWARE: Final = "isolated in hardware"
PER_PROCESS: Final = "memory limit per process, no fault isolation"
NOT_LIMITED: Final = "nothing is limited: neither memory nor compute, no fault isolation"


def _holding(kind: BoardKind, ask: Ask, terms: Terms) -> Piece | None:
    """Return the smallest slice that holds a wish, or is exactly that, whatever its share of the board."""
    if isinstance(ask, Slice):
        return _named(kind, ask.resource, terms)
    model = kind.model
    if kind.mode == names.MIG:
        fits = _equals if terms.exact else _satisfies
        return next((_mig(kind, profile) for profile in model.profiles if fits(model, profile, ask)), None)
    if kind.mode == names.MPS:
        gigabytes = _gigabytes(model, ask)
        whole = not terms.exact or _wanted_gb(model, ask).denominator == 1
        return _mps(kind, gigabytes) if gigabytes <= model.nominal_gb and whole else None
    fits_whole = isinstance(ask, Share) or ask.met_by(memory_mib=model.memory_mib, nominal_gb=model.nominal_gb)
    return _turn(kind, terms) if fits_whole and kind.makes(names.GPU_SHARED) else None


def _out_of_bounds(piece: Piece, terms: Terms) -> str:
    """Return why a slice is too small or too large a share of its board, or "" if it is neither."""
    part, whole = piece.part, piece.whole
    said = (
        f"{piece.resource} is {Fraction(part, whole)} of the memory of {piece.kind.model.name}, and the policy allows"
    )
    if terms.least and not terms.least.met_by(part, whole):
        return f"{said} no less than {terms.least}"
    if terms.most and terms.most.exceeded_by(part, whole):
        return f"{said} no more than {terms.most}"
    return ""


def _satisfies(model: BoardModel, profile: Profile, ask: Share | Memory) -> bool:
    if isinstance(ask, Share):
        return ask.met_by(*_portion(model, profile))
    return ask.met_by(memory_mib=profile.memory_mib, nominal_gb=_named_gb(profile))


def _equals(model: BoardModel, profile: Profile, ask: Share | Memory) -> bool:
    if isinstance(ask, Share):
        return ask.equals(*_portion(model, profile))
    return ask.equals(memory_mib=profile.memory_mib, nominal_gb=_named_gb(profile))


def _portion(model: BoardModel, profile: Profile) -> tuple[int, int]:
    """Return the share of a board that a profile counts as in requests, as part and whole.

    The larger of compute and memory, so that n requests of 1/n share a board wherever MIG allows it.
    """
    portion = max(Fraction(profile.compute, model.compute), Fraction(profile.memory_units, model.memory_units))
    return portion.numerator, portion.denominator


def _named_gb(profile: Profile) -> int:
    return int(profile.name.partition(".")[2].partition("gb")[0])


def _gigabytes(model: BoardModel, ask: Share | Memory) -> int:
    """Return the nominal GB of an MPS slice that holds a wish; may be more than the board has."""
    if isinstance(ask, Share):
        return ask.of(model.nominal_gb)
    return ask.gigabytes(memory_mib=model.memory_mib, nominal_gb=model.nominal_gb)


def _wanted_gb(model: BoardModel, ask: Share | Memory) -> Fraction:
    """Return the nominal GB that a wish comes to, unrounded."""
    if isinstance(ask, Share):
        return ask.exact * model.nominal_gb
    return ask.exact * model.nominal_gb / model.memory_mib if ask.real else ask.exact


def _nearest(kind: BoardKind, ask: Ask) -> Piece:
    """Return the slice that comes nearest to a wish that none equals, of two alike the larger. Knows MIG and MPS."""
    model = kind.model
    if isinstance(ask, Slice) or kind.mode == names.TIMESLICING:  # pragma: no cover - these are never rounded
        raise ValueError(f"{ask}: is not rounded")
    if kind.mode == names.MPS:
        wanted = math.floor(_wanted_gb(model, ask) + Fraction(1, 2))
        return _mps(kind, min(max(1, wanted), model.nominal_gb))

    def distance(profile: Profile) -> tuple[Fraction, bool, int]:
        if isinstance(ask, Share):
            has = Fraction(*_portion(model, profile))
        else:
            has = Fraction(profile.memory_mib if ask.real else _named_gb(profile))
        return abs(has - ask.exact), not profile.plain, -profile.memory_units

    return _mig(kind, min(model.profiles, key=distance))


def _named(kind: BoardKind, resource: str, terms: Terms) -> Piece | None:
    if not kind.makes(resource):
        return None
    if kind.mode == names.TIMESLICING:
        return _turn(kind, terms)
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
        text=(
            f"({profile.compute}/{model.compute} compute, {_gib(profile.memory_mib * 1024)} GiB of {model.name}); "
            f"{IN_HARDWARE}"
        ),
        part=profile.memory_units,
        whole=model.memory_units,
    )


def _mps(kind: BoardKind, gigabytes: int) -> Piece:
    model = kind.model
    memory_kib = model.memory_mib * 1024 * gigabytes // model.nominal_gb
    return Piece(
        kind=kind,
        profile=f"{gigabytes}gb",
        resource=names.mps_resource(gigabytes),
        memory_kib=memory_kib,
        text=f"({_gib(memory_kib)} GiB of {model.name}); {client_limits(model)}",
        part=gigabytes,
        whole=model.nominal_gb,
    )


def _turn(kind: BoardKind, terms: Terms) -> Piece:
    model = kind.model
    return Piece(
        kind=kind,
        profile="",
        resource=names.GPU_SHARED,
        memory_kib=model.memory_mib * 1024,
        text=f"(turns on {model.name}); {NOT_LIMITED}",
        part=1,
        whole=terms.replicas,
    )


def _gib(kib: int) -> str:
    """Return KiB in GiB as nvidia-smi prints it, without zeros at the end: `19.5`, `9.62`."""
    return f"{kib / 2**20:.2f}".rstrip("0").rstrip(".")
