"""The files that a node names by its labels, in ConfigMaps of our namespace.

| label | says |
|---|---|
| `nos.nebuly.com/device-plugin-configs` | the ConfigMap with configurations of the device plugin |
| `nvidia.com/device-plugin.config` | which of its keys; may be missing where it has one key |
| `nos.nebuly.com/mig-parted-configs` | the ConfigMap with a file of mig-parted |
| `nvidia.com/mig.config` | the configuration in that file |

NVIDIA's labels alone mean nothing to us: its operator and nos leave them on nodes that the planner is to cut.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from policies import names
from policies.faults import UnsoundError
from reconciler.agent.fixed.migparted import MigRule, read_mig_config
from reconciler.agent.fixed.pluginconfig import PluginConfig, read_plugin_config

_MIG_PARTED_KEY: Final = "config.yaml"  # of the ConfigMap that the GPU operator makes
_T = TypeVar("_T")

ConfigMaps = Callable[[str], Mapping[str, str]]
"""Returns the data of a ConfigMap of our namespace, by its name. Raises ConfigMapError."""


class ConfigMapError(Exception):
    """A ConfigMap cannot be read now; the message says why."""


def no_config_maps(_name: str) -> Mapping[str, str]:
    """Have none. Raises ConfigMapError."""
    raise ConfigMapError("this agent reads none")


class Files(msgspec.Struct, frozen=True):
    """What the files of a node say; None where it names none.

    Attributes:
        plugin: the configuration of the device plugin.
        rules: the entries of the configuration of mig-parted.
    """

    plugin: PluginConfig | None = None
    rules: tuple[MigRule, ...] | None = None


class NodeFiles:
    """Reads the files of one node, each anew only when its text has changed."""

    def __init__(self, config_maps: ConfigMaps) -> None:
        self._config_maps = config_maps
        self._plugins: _Remembered[PluginConfig] = _Remembered()
        self._rules: _Remembered[tuple[MigRule, ...]] = _Remembered()

    def read(self, labels: Mapping[str, str], faults: list[str]) -> Files:
        """Return what the files say that these labels name; what cannot be read is a fault."""
        plugin: PluginConfig | None = None
        rules: tuple[MigRule, ...] | None = None
        if name := labels.get(names.PLUGIN_CONFIGS_LABEL, ""):
            file = self._file(name, labels.get(names.PLUGIN_CONFIG_LABEL, ""), faults)
            plugin = self._plugins.read(file, read_plugin_config, faults) if file else None
        if name := labels.get(names.MIG_PARTED_LABEL, ""):
            chosen = labels.get(names.MIG_CONFIG_LABEL, "")
            if not chosen:
                faults.append(
                    f"label {names.MIG_CONFIG_LABEL}: missing: which configuration of {_place(name)} is meant?"
                )
            elif file := self._file(name, _MIG_PARTED_KEY, faults):
                rules = self._rules.read((*file, chosen), partial(read_mig_config, name=chosen), faults)
        return Files(plugin, rules)

    def _file(self, name: str, key: str, faults: list[str]) -> tuple[str, str] | None:
        """Return a key of a ConfigMap, or its only one where none is named, as (place, text); None with a fault."""
        try:
            data = self._config_maps(name)
        except ConfigMapError as error:
            faults.append(f"{_place(name)}: {error}")
            return None
        if not key and len(data) == 1:
            (key,) = data
        if key in data:
            return f"{_place(name)}, {key}", data[key]
        lack = f"no key {key}" if key else f"name one of its keys by the label {names.PLUGIN_CONFIG_LABEL}"
        faults.append(f"{_place(name)}: {lack}: there are {', '.join(sorted(data)) or 'none'}")
        return None


class _Remembered(Generic[_T]):
    """What was read last: a file of a thousand lines takes a good part of a second, and passes are many."""

    def __init__(self) -> None:
        self._source: tuple[str, ...] = ()
        self._found: _T | UnsoundError | None = None

    def read(self, source: tuple[str, ...], read: Callable[[str], _T], faults: list[str]) -> _T | None:
        """Return what is read of a source, which is (place, text, ...); None with its faults."""
        if source != self._source:
            try:
                self._found = read(source[1])
            except UnsoundError as error:
                self._found = error
            self._source = source
        if isinstance(self._found, UnsoundError):
            faults += [f"{source[0]}: {fault}" for fault in self._found.faults]
            return None
        return self._found


def _place(name: str) -> str:
    return f"ConfigMap {names.SYSTEM_NAMESPACE}/{name}"
