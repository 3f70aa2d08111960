"""The machine that the agent runs on: its boards by NVML, its kubelet by sockets, and the threads that watch both."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from policies import names
from policies.boards import inventory_model
from policies.catalogue import BoardModel
from reconciler.agent.agent import NodeAgent
from reconciler.agent.cdi import CdiDevices
from reconciler.agent.deviceplugin.kubelet import GrpcKubelet
from reconciler.agent.driver import DriverError
from reconciler.agent.fixed.files import ConfigMaps
from reconciler.agent.fixed.layouts import FixedLayouts
from reconciler.agent.grants import Grants, by_variable
from reconciler.agent.handed import Handed
from reconciler.agent.mps.bins import Bins
from reconciler.agent.mps.memory import MemoryWatch
from reconciler.agent.mps.shares import Sharing
from reconciler.agent.mps.site import MpsSite
from reconciler.agent.mps.supervisor import Supervisor
from reconciler.agent.node import NodeState
from reconciler.agent.nvml import NvmlDriver
from reconciler.agent.nvml.events import BoardEvents
from reconciler.agent.nvml.mps import MpsBoards
from reconciler.agent.pods import Pods, Tell
from reconciler.agent.processes import Processes
from reconciler.agent.report import Patch, report_given_up, report_stopped
from reconciler.agent.retreat import retreat
from reconciler.agent.tenants import Tenants


class Machine:
    """Driver and kubelet of this node. Nothing is asked of either before the first pass.

    Args:
        kubelet: the kubelet's directory.
        state: directory of what must outlive the agent; it exists.
        mps: how MPS is set up.
        tell: tells people of a pod.
        config_maps: reads ConfigMaps of our namespace.
        pods: the pods of this node.
        changed: called when something has happened for which a pass is due.
        cdi: where the container runtime looks for CDI devices, if containers are told these; None: by a variable.
    """

    def __init__(
        self,
        *,
        kubelet: Path,
        state: Path,
        mps: MpsSite,
        tell: Tell,
        config_maps: ConfigMaps,
        cdi: Path | None,
        pods: Pods,
        changed: Callable[[], None],
    ) -> None:
        self._tell, self._pods, self._changed = tell, pods, changed
        self._daemons = Supervisor(mps, changed=changed)
        processes = Processes(pods)
        self._driver = NvmlDriver(MpsBoards(Bins(state / "bins.json"), self._daemons), name=processes.name)
        self._handed = Handed(state / "handed.json")
        self._cdi = CdiDevices(self._driver, state / "cdi.json", cdi) if cdi else None
        self._fixed = FixedLayouts(config_maps)
        grants = Grants(
            self._driver,
            naming=self._handed.remembering(self._cdi or by_variable),
            sharing=Sharing(mps, self._driver.boards),
            check=self._fixed.check,
        )
        self._kubelet = GrpcKubelet(kubelet, grants, pods, models=self._models)
        self._events = BoardEvents(self._driver.watch)
        self._memory = MemoryWatch(self._driver, self._kubelet, processes, pods, tell)

    def agent(self) -> NodeAgent:
        """Return an agent that cuts the boards of this machine."""
        return NodeAgent(
            self._driver,
            self._kubelet,
            Tenants(self._driver, self._handed, self._pods, self._tell),
            fixed=self._fixed,
            pods=self._pods,
            name_devices=self._name_devices,
        )

    def start(self) -> None:
        """Begin to watch."""
        self._kubelet.start(self._changed)
        self._events.start(self._changed)
        self._memory.start()

    def alive(self) -> bool:
        """Return whether both are watched."""
        return self._kubelet.alive() and self._events.alive()

    def silent(self, longer_s: float) -> tuple[int, ...]:
        """Return the indices of boards that have owed an answer for so long."""
        return self._driver.silent(longer_s)

    def conclude(self, node: NodeState, now: float) -> Patch | None:
        """Return what to say last of the node; if it is not ours any more, what was set of its boards is undone first."""
        if node.labels.get(names.PARTITIONING_LABEL):
            return report_stopped(node, now)
        if node.condition is None:
            return None
        return report_given_up(node, retreat(self._driver, self._kubelet, node), now)

    def close(self) -> None:
        """Take our devices from the kubelet, end the threads, and let go of the driver; MPS daemons go on to serve."""
        self._events.stop()
        self._memory.stop()
        self._kubelet.close()
        self._daemons.leave()
        self._driver.close()

    def _models(self) -> Mapping[str, BoardModel]:
        """Return the models of the boards; none where the driver does not answer, since no pod is to fail for that."""
        try:
            return {board.uuid: inventory_model(board) for board in self._driver.boards()}
        except DriverError:
            return {}

    def _name_devices(self, ids: Iterable[str], held: Collection[str]) -> None:
        """Make sure that containers can be told these devices. Raises StateError."""
        self._handed.check()
        if self._cdi:
            self._cdi.refresh(ids, held)
