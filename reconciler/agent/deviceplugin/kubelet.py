"""`Kubelet` over the sockets of the real one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from policies import names
from reconciler.agent.deviceplugin.plugins import LOOK_S, Plugins
from reconciler.agent.deviceplugin.podresources import PodResources
from reconciler.agent.driver import is_ours
from reconciler.agent.grants import Grants
from reconciler.agent.kubelet import Devices, Holder, KubeletBehind, KubeletError, Models
from reconciler.agent.pods import Pods

PLUGINS: Final = "device-plugins"
POD_RESOURCES: Final = "pod-resources"


class GrpcKubelet:
    """The kubelet of this node. `start` it once; asked by one thread at a time, as all of a node's agent.

    Args:
        directory: the kubelet's, `/var/lib/kubelet` on most nodes, with device-plugins and pod-resources in it.
        grants: what containers get with their devices.
        pods: the pods of the node.
        models: the models of the boards by UUID, as far as they are known.
        look_s: seconds between looks at the sockets.
    """

    def __init__(
        self, directory: Path, grants: Grants, pods: Pods = tuple, *, models: Models = dict, look_s: float = LOOK_S
    ) -> None:
        self._held: frozenset[str] = frozenset()
        self._announced: Devices = {}
        self._pods = pods
        self._plugins = Plugins(directory / PLUGINS, grants, lambda: self._held, models=models, look_s=look_s)
        self._resources = PodResources(directory / POD_RESOURCES)

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to look after the sockets; `changed` is called when a pass is due."""
        self._plugins.start(changed)

    def alive(self) -> bool:
        """Return whether the sockets are looked after."""
        return self._plugins.alive()

    def announce(self, devices: Devices) -> Mapping[str, str]:
        """Make these the devices of our plugins; return resource -> why, of those that it refuses. Raises KubeletError."""
        self._announced = devices
        return self._plugins.announce(devices)

    def allocatable(self) -> frozenset[str]:
        """Return the ids of our healthy devices that it may give to pods.

        Raises KubeletError, also if it lists devices of another plugin as ours: one resource has one plugin.
        """
        ours = set[str]()
        for resource, device in self._resources.allocatable():
            if is_ours(device):
                ours.add(device)
            elif resource in self._announced:
                raise KubeletError(
                    f"another device plugin announces {resource} here, for one {device}: keep it off nodes with the "
                    f"label {names.PARTITIONING_LABEL}"
                )
        return frozenset(ours)

    def allocated(self) -> Mapping[str, Holder]:
        """Return which pod holds which device, of whatever plugin. Raises KubeletError.

        A kubelet that starts answers before it has heard of its pods, as if nothing were held. So it has to know all
        that run by the API server; until then KubeletBehind is raised.
        """
        running = {pod.key for pod in self._pods() if pod.running}
        pods = self._resources.pods()
        if unknown := sorted(running - pods.keys()):
            raise KubeletBehind(f"the kubelet does not know of pods that run on this node: {', '.join(unknown)}")
        found = {device: pod for pod, devices in pods.items() for device in devices}
        self._held = frozenset(found)
        return found

    def close(self) -> None:
        """Take our plugins from it."""
        self._plugins.close()
        self._resources.close()
