"""Reads a configuration of NVIDIA's mig-parted: for each of its names, which boards are cut into how many of what.

Source: NVIDIA/mig-parted, api/spec/v1. Boards that no entry means are left as they are, as mig-parted does.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from policies.annotations import BoardInventory
from policies.catalogue import canonical_profile
from policies.faults import UnsoundError, fault
from reconciler.agent.fixed.devices import Selection, read_selection
from reconciler.agent.fixed.reading import read_file

_ID: Final = re.compile(r"0x([0-9A-Fa-f]{4})10DE", re.IGNORECASE)
_MOST: Final = 64

# PCI device ids by product label. Source: mig-parted's own configuration, and the PCI ID repository for which is which.
_IDS: Final[Mapping[str, tuple[str, ...]]] = {
    "NVIDIA-A30": ("20B7",),
    "NVIDIA-A100-SXM4-40GB": ("20B0",),
    "NVIDIA-A100-PCIE-40GB": ("20B1", "20F1"),
    "NVIDIA-A100-SXM4-80GB": ("20B2",),
    "NVIDIA-A100-80GB-PCIe": ("20B5",),
    "NVIDIA-A800-SXM4-80GB": ("20F3",),
    "NVIDIA-A800-80GB-PCIe": ("20F5",),
    "NVIDIA-H100-80GB-HBM3": ("2330",),
    "NVIDIA-H100-PCIe": ("2331",),
    "NVIDIA-H800": ("2322", "2324"),
    "NVIDIA-H100-NVL": ("2321",),
    "NVIDIA-GH200-480GB": ("2342",),
    "NVIDIA-GH200-144G-HBM3e": ("2348",),
    "NVIDIA-H200": ("2335",),
    "NVIDIA-H200-NVL": ("233B",),
    "NVIDIA-B200": ("2901",),
    "NVIDIA-B300-SXM6-AC": ("3182",),
    "NVIDIA-GB200": ("2941",),
    "NVIDIA-GB300": ("31C2",),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": ("2BB5",),
}


class MigRule(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a configuration.

    Attributes:
        place: where it stands, for faults.
        ids: PCI device ids of the boards that it is for, in capitals; empty: of any.
        devices: which boards of those it means.
        mig: whether MIG mode is to be on.
        profiles: the slices of each board, sorted, with `+`.
    """

    place: str
    ids: frozenset[str] = frozenset()
    devices: Selection
    mig: bool
    profiles: tuple[str, ...] = ()

    def of(self, boards: Sequence[BoardInventory], faults: list[str]) -> tuple[BoardInventory, ...]:
        """Return the boards that the entry means. By index boards are counted on the node, filtered or not."""
        chosen = self.devices.of(boards, f"{self.place}.devices", faults)
        return tuple(board for board in chosen if self._passes(board, faults))

    def _passes(self, board: BoardInventory, faults: list[str]) -> bool:
        if not self.ids:
            return True
        if board.model not in _IDS:
            faults.append(
                f"{self.place}.device-filter: GPU {board.index} is a {board.model}, whose PCI device id is not known here; "
                "leave the filter out and name the GPU in devices"
            )
            return False
        return not self.ids.isdisjoint(_IDS[board.model])


def read_mig_config(text: str, name: str) -> tuple[MigRule, ...]:
    """Return the entries of the configuration of this name. Raises UnsoundError with the faults of all of the file."""
    document = read_file(text, _Document)
    faults: list[str] = []
    rules = {
        each: tuple(_rule(entry, f"mig-configs[{each}][{index}]", faults) for index, entry in enumerate(entries))
        for each, entries in document.configs.items()
    }
    if name not in rules:
        faults.append(f"mig-configs: there is no {name}: there are {', '.join(sorted(rules)) or 'none'}")
    if faults:
        raise UnsoundError(faults)
    return rules[name]


# ---------------------------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    devices: object
    mig_enabled: bool
    mig_devices: dict[str, int] = {}
    device_filter: str | tuple[str, ...] = ()


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Literal["v1"]
    configs: dict[str, tuple[_Entry, ...]] = msgspec.field(name="mig-configs")


def _rule(entry: _Entry, place: str, faults: list[str]) -> MigRule:
    written = (entry.device_filter,) if isinstance(entry.device_filter, str) else entry.device_filter
    ids = [_ID.fullmatch(each) for each in written]
    faults += [
        fault(f"{place}.device-filter", each, "no PCI id of NVIDIA: write 0x, four digits of the device, and 10DE")
        for each, match in zip(written, ids, strict=True)
        if match is None
    ]
    for profile, count in entry.mig_devices.items():
        if not 0 <= count <= _MOST:
            faults.append(fault(f"{place}.mig-devices[{profile}]", count, f"a count is from 0 to {_MOST}"))
    if entry.mig_devices and not entry.mig_enabled:
        faults.append(f"{place}.mig-enabled: false: with mig-devices it must be true")
    return MigRule(
        place=place,
        ids=frozenset(match[1].upper() for match in ids if match),
        devices=read_selection(entry.devices, f"{place}.devices", faults),
        mig=entry.mig_enabled,
        profiles=tuple(
            sorted(
                canonical_profile(profile)
                for profile, count in entry.mig_devices.items()
                for _ in range(min(count, _MOST))
            )
        ),
    )
