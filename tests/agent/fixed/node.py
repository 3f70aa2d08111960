"""A node whose layout is fixed by files: the world of the agent's tests with ConfigMaps, and without a leader."""

import msgspec

from policies import names
from reconciler.agent.driver import device_id
from reconciler.agent.fixed.files import ConfigMapError
from reconciler.agent.fixed.layouts import FixedLayouts
from reconciler.agent.pace import SETTLE_S
from reconciler.agent.pods import read_pod
from tests.agent.world import World
from tests.builders import raw_pod

PLUGIN = {names.PLUGIN_CONFIGS_LABEL: "plugins"}


def mig(name="chosen"):
    """Return the labels that name a configuration of mig-parted."""
    return {names.MIG_PARTED_LABEL: "default-mig-parted-config", names.MIG_CONFIG_LABEL: name}


def mig_parted(*entries):
    """Return a file of mig-parted whose configuration `chosen` has these entries."""
    return f"version: v1\nmig-configs: {{chosen: [{', '.join(f'{{{entry}}}' for entry in entries)}]}}"


def sharing(section, *entries, strategy="none", **flags):
    """Return a configuration of the device plugin with these entries in one section of `sharing`."""
    marks = "".join(f"{key}: {value}, " for key, value in flags.items())
    resources = ", ".join(f"{{{entry}}}" for entry in entries)
    return (
        f"version: v1\nflags: {{migStrategy: {strategy}}}\nsharing: {{{section}: {{{marks}resources: [{resources}]}}}}"
    )


class FixedNode(World):
    """A node with ConfigMaps: `plugin` and `mig_parted` are their files. Whatever a test is about, steps are kept."""

    def __init__(self, *args, plugin=None, mig_parted=None, labels=None, **fields):
        self.config_maps = {}
        marks = dict(labels or {})
        if plugin:
            self.config_maps["plugins"] = {"default": plugin}
            marks = {**PLUGIN, **marks}
        if mig_parted:
            self.config_maps["default-mig-parted-config"] = {"config.yaml": mig_parted}
            marks = {**mig(), **marks}
        self.told_at = {}
        super().__init__(*args, labels=marks, **fields)

    def bind(self, key, resource, count=1):
        pod = raw_pod(key, limits={resource: count}, node="n1", uid=f"uid-{key}")
        self.pods[key] = read_pod(msgspec.json.encode(pod))

    def fix(self, mig_parted):
        """Fix the layout of a node that is there already, by this file of mig-parted."""
        self.config_maps["default-mig-parted-config"] = {"config.yaml": mig_parted}
        self.node["metadata"]["labels"] |= mig()

    def label(self, **labels):
        """Set labels of the node by their names in policies.names; None takes one away."""
        for name, value in labels.items():
            key = getattr(names, name)
            if value is None:
                self.node["metadata"]["labels"].pop(key, None)
            else:
                self.node["metadata"]["labels"][key] = value

    def act(self):
        outcome = super().act()
        for uuid in self.uuids:
            for item in self.driver.slices(uuid):
                device = device_id(uuid, item)
                withdrawn = [one for one in self.read().reported_of(uuid) if one.withdrawn]
                if any(one.start == item.start for one in withdrawn):
                    self.told_at.setdefault(device, self.now)
                else:
                    self.told_at.pop(device, None)
        return outcome

    def resources(self):
        """Return NVIDIA's resources of which the node offers any."""
        return {name: int(n) for name, n in self.read().allocatable.items() if int(n)}

    def devices(self, key):
        """Return the devices that a pod holds, without the UUID of their board."""
        held = self._kubelet.allocated()
        return sorted(device.partition("/")[2] for device, holder in held.items() if holder == key)

    def _options(self):
        self.fixed = FixedLayouts(self._config_map)
        return {"fixed": self.fixed, "pods": self.pods.values}

    def _config_map(self, name):
        if name not in self.config_maps:
            raise ConfigMapError("there is none: create it, or take the label from the node")
        return self.config_maps[name]

    def _assert_allowed(self, board, item):
        if not self.inventory(self.uuids.index(board)).fixed:
            super()._assert_allowed(board, item)
            return
        device = device_id(board, item)
        assert not any(held.startswith(device) for held in self._kubelet.allocated()), "destroyed under a pod"
        assert not any(one.startswith(device) for one in self._kubelet.allocatable()), "destroyed while offered"
        assert self.now - self.told_at.get(device, self.now) >= SETTLE_S, "destroyed before it had got about"
