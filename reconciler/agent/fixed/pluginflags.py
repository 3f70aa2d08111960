"""The flags in a configuration of NVIDIA's device plugin: what they ask of us that we do in another way."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from policies.faults import fault
from reconciler.agent.fixed.reading import Part

# What we do in one way only, by its place under `flags`: the values by which that is asked for, and what to do instead of
# asking for another. What is not listed concerns feature discovery, or has no effect beside these.
_ONE_WAY: Final[Mapping[str, tuple[tuple[object, ...], str]]] = {
    "nvidiaDriverRoot": (("", "/"), "the agent finds the driver by itself: leave it out"),
    "nvidiaDevRoot": (("", "/"), "the agent finds the driver by itself: leave it out"),
    "gdsEnabled": ((False,), "containers get no GPUDirect Storage from us: leave it out"),
    "mofedEnabled": ((False,), "containers get no Mellanox devices from us: leave it out"),
    "gdrcopyEnabled": ((False,), "containers get no GDRCopy from us: leave it out"),
    "deviceDiscoveryStrategy": (("auto", "nvml"), "boards are found by NVML: write auto"),
    "plugin.passDeviceSpecs": ((False,), "containers get devices from NVIDIA's runtime: leave it out"),
    "plugin.deviceListStrategy": (
        ("envvar", ["envvar"], "cdi-cri", ["cdi-cri"]),
        "the agent's own option --device-ids says how devices are named: write envvar or cdi-cri",
    ),
    "plugin.deviceIDStrategy": (("uuid",), "an index means another board after a reboot: write uuid"),
    "mps.root": (("", "/run/nvidia/mps"), "the agent's own option says where its daemons are: leave it out"),
}


class _PluginFlags(Part, frozen=True, kw_only=True):
    pass_device_specs: object = None
    device_list_strategy: object = None
    device_id_strategy: object = msgspec.field(default=None, name="deviceIDStrategy")
    cdi_annotation_prefix: object = None
    nvidia_ctk_path: object = msgspec.field(default=None, name="nvidiaCTKPath")
    nvidia_cdi_hook_path: object = msgspec.field(default=None, name="nvidiaCDIHookPath")
    container_driver_root: object = None


class _MpsFlags(Part, frozen=True):
    root: object = None


class Flags(Part, frozen=True, kw_only=True):
    """The flags; all that the plugin knows, since what it does not know is a fault."""

    mig_strategy: Literal["none", "single", "mixed"] = "none"
    fail_on_init_error: bool = True  # without boards there is a condition on the node, whatever stands here
    nvidia_driver_root: object = None
    nvidia_dev_root: object = None
    gds_enabled: object = None
    mofed_enabled: object = None
    gdrcopy_enabled: object = None
    use_node_feature_api: object = msgspec.field(default=None, name="useNodeFeatureAPI")
    device_discovery_strategy: object = None
    plugin: _PluginFlags = _PluginFlags()
    gfd: object = None
    mps: _MpsFlags = _MpsFlags()


def flag_faults(flags: Flags) -> list[str]:
    """Return what is asked of the plugin that we do in another way."""
    written: dict[str, object] = msgspec.to_builtins(flags)
    for section in ("plugin", "mps"):
        inside: dict[str, object] = msgspec.to_builtins(getattr(flags, section))
        written |= {f"{section}.{key}": value for key, value in inside.items()}
    return [
        fault(f"flags.{place}", written[place], way_out)
        for place, (ways, way_out) in _ONE_WAY.items()
        if written[place] is not None and written[place] not in ways
    ]
