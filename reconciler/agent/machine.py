"""The machine that the agent runs on: its boards by NVML, its kubelet by sockets, and the threads that watch both."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from reconciler.agent.agent import NodeAgent
from reconciler.agent.deviceplugin.kubelet import GrpcKubelet
from reconciler.agent.events import BoardEvents
from reconciler.agent.grants import Grants, Naming, by_variable
from reconciler.agent.nvml import NvmlDriver

NAMINGS: Final[Mapping[str, Naming]] = {"env": by_variable}
"""How containers can be told their devices, by the setting's value."""


class Machine:
    """Driver and kubelet of this node. Nothing is asked of either before the first pass.

    Args:
        kubelet: the kubelet's directory.
        device_ids: one of NAMINGS.
    """

    def __init__(self, kubelet: Path, *, device_ids: str = "env") -> None:
        self._driver = NvmlDriver()
        self._kubelet = GrpcKubelet(kubelet, Grants(self._driver, naming=NAMINGS[device_ids]))
        self._events = BoardEvents(self._driver.watch)

    def agent(self) -> NodeAgent:
        """Return an agent that cuts the boards of this machine."""
        return NodeAgent(self._driver, self._kubelet)

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to watch; `changed` is called when something has happened for which a pass is due."""
        self._kubelet.start(changed)
        self._events.start(changed)

    def alive(self) -> bool:
        """Return whether both are watched."""
        return self._kubelet.alive() and self._events.alive()

    def close(self) -> None:
        """Take our devices from the kubelet, end the threads, and let go of the driver."""
        self._events.stop()
        self._kubelet.close()
        self._driver.close()
