"""GPU boards: how each model divides, what its slices are called and how much memory they really have.

The node agent discovers a board's profiles (annotation `gpu-inventory`), and that always wins. These tables
stand in where no agent has reported yet. Source: NVIDIA's MIG user guide (supported profiles), driver listings
(`nvidia-smi mig -lgip -lgipp`), NVIDIA/mig-parted's configuration, and the naming rule of NVIDIA/go-nvlib.
"""

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Annotated, Final

import msgspec

# Bounds of what is read from a node. Wide, but within them no number can end a decision or take it for ever: one node
# that talks nonsense must not disturb the pods of others.
Units = Annotated[int, msgspec.Meta(ge=1, le=64)]
Total = Annotated[int, msgspec.Meta(ge=0, le=64)]  # 0 where a board has no MIG
Start = Annotated[int, msgspec.Meta(ge=0, lt=64)]
MiB = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
Capability = Annotated[str, msgspec.Meta(pattern=r"^\d{1,2}\.\d{1,2}$")]

_CLIENTS: Final = 48  # of MPS, on one board (NVIDIA's MPS guide, limitations)
_CLIENTS_BEFORE_VOLTA: Final = 16
_VOLTA: Final = 7  # the first number of its compute capability

MEDIA: Final = 1 << 16
"""The media engines of a board, in parts that have no meaning but that they add up (see `Profile.media`)."""

_REMEMBERED: Final = 1 << 12  # names of profiles
_MOST_SLICES: Final = 64  # on one board, by the bounds above


class Profile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A MIG profile of one model of board.

    Attributes:
        name: as NVML has it, such as `1g.5gb+me`.
        id: what NVML takes to create the GPU instance (the "ID" of nvidia-smi, not the enum).
        compute: compute slices that it takes.
        memory_units: memory units that it takes; also its length in starts.
        memory_mib: memory that a container really sees, in MiB.
        starts: legal first memory units.
        max: how many of it one board can hold at a time; 0 is "as many as fit".
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[1-9]\d?g\.[1-9]\d{0,4}gb([+-].+)?$")]
    id: int
    compute: Units
    memory_units: Units
    memory_mib: MiB = msgspec.field(name="memoryMiB")
    starts: tuple[Start, ...]
    max: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def plain(self) -> bool:
        """Return whether it is one without suffix: compute and memory, no media or graphics engines of its own."""
        return _PLAIN.fullmatch(self.name) is not None

    @property
    def media(self) -> int:
        """Return what it takes of a board's MEDIA, so that sums tell which profiles go together.

        `+me.all` takes everything and leaves room only for those with `-me`, which take nothing. `+me` takes its share of
        what exists once (JPEG and OFA engines), of whatever size it is, and leaves room for any number of others. Those
        without such a suffix have video decoders of their own.
        """
        _, _, suffix = self.name.partition("gb")
        engines = suffix.removeprefix("+").split(",")
        if suffix == "-me":
            return 0
        if "me.all" in engines:
            return MEDIA
        return (MEDIA - _MOST_SLICES) // max(self.max, 1) if "me" in engines else 1


class BoardModel(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What boards of one kind have in common. Equal values are one class for the planner.

    Attributes:
        name: product label as GPU feature discovery writes it (NVML's name with dashes).
        memory_mib: usable memory of the board in MiB, as the driver reports it.
        nominal_gb: the GB of the product's name, which MPS slices divide.
        compute: compute slices of the board (7 or 4); 0 without MIG.
        memory_units: memory units of the board (8, 4 or 12); 0 without MIG.
        profiles: its MIG profiles, smallest first; empty without MIG.
        volta: of NVIDIA's generation Volta or later. Boards before it serve fewer MPS clients, and limit nothing that
            they use (docs/adr/0033).
    """

    name: str
    memory_mib: int
    nominal_gb: int
    compute: int = 0
    memory_units: int = 0
    profiles: tuple[Profile, ...] = ()
    volta: bool = True

    @property
    def max_clients(self) -> int:
        """Return how many MPS clients one board serves."""
        return _CLIENTS if self.volta else _CLIENTS_BEFORE_VOLTA

    def profile(self, name: str) -> Profile | None:
        """Return the profile of that name (with `+`), or None if this model has none."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    def known_as(self, name: str) -> str:
        """Return what this model calls a profile that another version of the driver, or a wrong table, calls so.

        That is one with as many compute slices and memory units: `7g.79gb` is `7g.80gb`. Where it has none, the name itself.
        """
        return _known_as(self, name)


UNKNOWN: Final = BoardModel(name="", memory_mib=0, nominal_gb=0)
"""A board of which we know nothing but what is on it, so that nothing can be made there."""


def size_order(profile: Profile) -> tuple[int, int, bool, str]:
    """Return the key by which profiles are smallest first: memory units, compute, plain before `+me` and the like."""
    return profile.memory_units, profile.compute, not profile.plain, profile.name


def by_product(label: str) -> BoardModel | None:
    """Return the table's model for a product label, or None if no table knows it.

    The suffixes that NVIDIA's plugin adds (`-SHARED`, `-MIG-1g.5gb`) are cut off first.
    """
    return _models().get(_PLUGIN_SUFFIX.sub("", label))


def models() -> Iterable[BoardModel]:
    """Return every model of the table."""
    return _models().values()


def since_volta(product: str, capability: str | None) -> bool:
    """Return whether a board is of Volta or later; where it does not say so by its compute capability, by its product."""
    if capability is not None:
        return int(capability.partition(".")[0]) >= _VOLTA
    known = by_product(product)
    return known is None or known.volta


def nominal_gb(product: str, memory_mib: int) -> int:
    """Return the GB in the product's common name; for a model that no table knows, its total GiB rounded up."""
    known = by_product(product)
    return known.nominal_gb if known else math.ceil(memory_mib / 1024)


def mig_memory_gb(mig_mib: int, board_mib: int) -> int:
    """Return the GB in a profile's name for so many MiB of a board with so many MiB.

    Source: go-nvlib, getMigMemorySizeGB: eighths of the board rounded up, times the board's whole GiB, half up.
    """
    eighths = -(-8 * mig_mib // board_mib)
    return (eighths * -(-board_mib // 1024) + 4) // 8


def canonical_profile(key: str) -> str:
    """Return a profile as JSON and NVML spell it, from the spelling of keys: `1g.5gb.me` is `1g.5gb+me`."""
    return re.sub(r"(?<=gb)\.", "+", key, count=1)


# ---------------------------------------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"(\d+)g\.(\d+)gb(.*)")
_NEARLY: Final = 12  # names differ by at most one in so many GB: 11 and 12, 93 and 95, but not 5 and 6
_PLAIN: Final = re.compile(r"\d+g\.\d+gb")
_PLUGIN_SUFFIX: Final = re.compile(r"(-SHARED|-MIG-.*)$")

# profile: compute slices, memory units, starts, most on one board, id. Suffixes after the g stay in the name behind
# the memory; "D" is the profile with double memory, whose name has none.
_Row = tuple[int, int, tuple[int, ...], int, int]
_SEVEN: Final[Mapping[str, _Row]] = {
    "1g": (1, 1, (0, 1, 2, 3, 4, 5, 6), 7, 19),
    "1g+me": (1, 1, (0, 1, 2, 3, 4, 5, 6), 1, 20),
    "1gD": (1, 2, (0, 2, 4, 6), 4, 15),
    "2g": (2, 2, (0, 2, 4), 3, 14),
    "3g": (3, 4, (0, 4), 2, 9),
    "4g": (4, 4, (0,), 1, 5),
    "7g": (7, 8, (0,), 1, 0),
}
_A30: Final[Mapping[str, _Row]] = {
    "1g": (1, 1, (0, 1, 2, 3), 4, 14),
    "1g+me": (1, 1, (0, 1, 2, 3), 1, 21),
    "2g": (2, 2, (0, 2), 2, 5),
    "2g+me": (2, 2, (0, 2), 1, 6),
    "4g": (4, 4, (0,), 1, 0),
}
_RTX_PRO: Final[Mapping[str, _Row]] = {
    "1g": (1, 3, (0, 3, 6, 9), 4, 14),
    "1g+me": (1, 3, (0, 3, 6, 9), 1, 21),
    "1g+gfx": (1, 3, (0, 3, 6, 9), 4, 47),
    "1g+me.all": (1, 3, (0, 3, 6, 9), 1, 65),
    "1g-me": (1, 3, (0, 3, 6, 9), 4, 67),
    "2g": (2, 6, (0, 6), 2, 5),
    "2g+gfx": (2, 6, (0, 6), 2, 35),
    "2g+me.all": (2, 6, (0, 6), 1, 64),
    "2g-me": (2, 6, (0, 6), 2, 66),
    "4g": (4, 12, (0,), 1, 0),
    "4g+gfx": (4, 12, (0,), 1, 32),
}


class _Family(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the tables: products, memory, geometry, and what its profiles are called and really have."""

    products: tuple[str, ...]
    memory_mib: int
    nominal_gb: int
    rows: Mapping[str, _Row]
    compute: int = 7
    units: int = 8
    gb: Mapping[int, int]  # memory units -> GB in the name
    mib: Mapping[int, int] = {}  # memory units -> real MiB where a driver listing gives it


def _sevens(one: int, two: int, four: int, eight: int) -> dict[int, int]:
    return {1: one, 2: two, 4: four, 8: eight}


# Real memory: GiB as nvidia-smi prints it, times 1024; 9.62 is 9.625 and so on (two printed decimals of eighths).
_FAMILIES: Final = (
    _Family(
        products=("NVIDIA-A30",),
        memory_mib=24576, nominal_gb=24, rows=_A30, compute=4, units=4,
        gb={1: 6, 2: 12, 4: 24}, mib={1: 5952, 2: 11968, 4: 24000},
    ),
    _Family(
        products=("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"),
        memory_mib=40960, nominal_gb=40, rows=_SEVEN,
        gb=_sevens(5, 10, 20, 40), mib=_sevens(4864, 9856, 19968, 40192),
    ),
    _Family(
        products=("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-A800-SXM4-80GB", "NVIDIA-A800-80GB-PCIe"),
        memory_mib=81920, nominal_gb=80, rows=_SEVEN,
        gb=_sevens(10, 20, 40, 80), mib=_sevens(9728, 19968, 40192, 80384),
    ),
    _Family(
        products=("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H800"),
        memory_mib=81559, nominal_gb=80, rows=_SEVEN,
        gb=_sevens(10, 20, 40, 80), mib=_sevens(9984, 20096, 40448, 81152),
    ),
    _Family(
        products=("NVIDIA-H100-NVL",),
        memory_mib=95830, nominal_gb=94, rows=_SEVEN,
        gb=_sevens(12, 24, 47, 94), mib=_sevens(11008, 22144, 47488, 95360),
    ),
    _Family(products=("NVIDIA-GH200-480GB",), memory_mib=97871, nominal_gb=96, rows=_SEVEN, gb=_sevens(12, 24, 48, 96)),
    _Family(
        products=("NVIDIA-H200", "NVIDIA-H200-NVL"),
        memory_mib=143771, nominal_gb=141, rows=_SEVEN,
        gb=_sevens(18, 35, 71, 141), mib=_sevens(16384, 33024, 71168, 143360),
    ),
    _Family(products=("NVIDIA-GH200-144G-HBM3e",), memory_mib=147456, nominal_gb=144, rows=_SEVEN, gb=_sevens(18, 36, 72, 144)),
    _Family(
        products=("NVIDIA-B200",),
        memory_mib=183359, nominal_gb=180, rows=_SEVEN,
        gb=_sevens(23, 45, 90, 180), mib={1: 20992, 2: 45312},
    ),
    _Family(
        products=("NVIDIA-GB200",),
        memory_mib=189471, nominal_gb=186, rows=_SEVEN,
        gb=_sevens(23, 47, 93, 186), mib={2: 46592},
    ),
    _Family(products=("NVIDIA-B300-SXM6-AC",), memory_mib=275040, nominal_gb=269, rows=_SEVEN, gb=_sevens(34, 67, 135, 269)),
    _Family(products=("NVIDIA-GB300",), memory_mib=284208, nominal_gb=278, rows=_SEVEN, gb=_sevens(35, 70, 139, 278)),
    _Family(
        products=("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",),
        memory_mib=97887, nominal_gb=96, rows=_RTX_PRO, compute=4, units=12,
        gb={3: 24, 6: 48, 12: 96}, mib={3: 24192, 6: 48512, 12: 97408},
    ),
)  # fmt: skip

# Boards without MIG: product, MiB that the driver reports, GB of the name, whether they are of Volta or later.
_WITHOUT_MIG: Final = (
    ("Tesla-T4", 15360, 16, True),
    ("Tesla-V100-SXM2-16GB", 16384, 16, True),
    ("Tesla-V100-SXM2-32GB", 32768, 32, True),
    ("Tesla-V100-PCIE-16GB", 16384, 16, True),
    ("Tesla-V100-PCIE-32GB", 32768, 32, True),
    ("Tesla-P100-PCIE-16GB", 16384, 16, False),
    ("Tesla-P100-SXM2-16GB", 16384, 16, False),
    ("NVIDIA-A2", 15356, 16, True),
    ("NVIDIA-A10", 23028, 24, True),
    ("NVIDIA-A16", 15356, 16, True),
    ("NVIDIA-L4", 23034, 24, True),
    ("NVIDIA-A40", 46068, 48, True),
    ("NVIDIA-L40", 46068, 48, True),
    ("NVIDIA-L40S", 46068, 48, True),
    ("NVIDIA-RTX-A6000", 49140, 48, True),
    ("NVIDIA-RTX-6000-Ada-Generation", 49140, 48, True),
)


@lru_cache(maxsize=_REMEMBERED)
def _known_as(model: BoardModel, name: str) -> str:
    match = _NAME.fullmatch(name)
    if match is None or model.profile(name):
        return name
    compute, gigabytes, suffix = match.groups()
    near: list[tuple[int, str]] = []
    for profile in model.profiles:
        other = _NAME.fullmatch(profile.name)
        if other and other[1] == compute and other[3] == suffix:
            away = abs(int(other[2]) - int(gigabytes))
            near += [(away, profile.name)] if away * _NEARLY <= int(other[2]) else []
    return min(near)[1] if near else name


@cache
def _models() -> Mapping[str, BoardModel]:
    models = {product: _with_mig(product, family) for family in _FAMILIES for product in family.products}
    for product, memory_mib, gigabytes, volta in _WITHOUT_MIG:
        models[product] = BoardModel(name=product, memory_mib=memory_mib, nominal_gb=gigabytes, volta=volta)
    return models


def _with_mig(product: str, family: _Family) -> BoardModel:
    profiles = [
        Profile(
            name=_profile_name(kind, family.gb[units]),
            id=identifier,
            compute=compute,
            memory_units=units,
            # Where no listing was read: the board's MiB by memory units, rounded down.
            memory_mib=family.mib.get(units, family.memory_mib * units // family.units),
            starts=starts,
            max=most,
        )
        for kind, (compute, units, starts, most, identifier) in family.rows.items()
    ]
    return BoardModel(
        name=product,
        memory_mib=family.memory_mib,
        nominal_gb=family.nominal_gb,
        compute=family.compute,
        memory_units=family.units,
        profiles=tuple(sorted(profiles, key=size_order)),
    )


def _profile_name(kind: str, gigabytes: int) -> str:
    slices, suffix = kind[:2], kind[2:].removeprefix("D")
    return f"{slices}.{gigabytes}gb{suffix}"
