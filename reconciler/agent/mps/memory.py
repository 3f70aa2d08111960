"""Watches what the pods of a node use of the memory of boards in MPS mode, and tells of those that use more than their slices.

MPS limits each process by itself; what the processes of a pod have together only NVML knows, by their PIDs. So the agent
must see the PIDs of the node (hostPID).
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from policies import names
from policies.annotations import BoardInventory
from policies.placement import bin_gb
from reconciler.agent.driver import DriverError, is_ours, read_device_id
from reconciler.agent.kubelet import Holder, Kubelet, KubeletError
from reconciler.agent.mps.shares import limit_mib
from reconciler.agent.mps.usage import Client, Overuse, Use
from reconciler.agent.pods import Pods, Tell
from reconciler.agent.processes import Processes

LOOK_S: Final = 10.0  # so that half a minute is three looks

_log: Final = structlog.get_logger()


class Clients(Protocol):
    """What is asked of the driver."""

    def boards(self) -> tuple[BoardInventory, ...]:
        """Return the boards. Raises DriverError."""
        ...

    def clients(self, board: str) -> tuple[Client, ...]:
        """Return the processes that use a board by MPS. Raises DriverError."""
        ...


class MemoryWatch:
    """Looks every ten seconds, in a thread of its own.

    Args:
        driver: of the boards.
        kubelet: which knows who holds what.
        processes: which know of which pod they are.
        pods: the pods of the node.
        tell: called of those that use too much.
    """

    def __init__(self, driver: Clients, kubelet: Kubelet, processes: Processes, pods: Pods, tell: Tell) -> None:
        self._driver, self._kubelet, self._processes = driver, kubelet, processes
        self._pods, self._tell = pods, tell
        self._overuse = Overuse()
        self._fault = ""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="mps memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the look that is under way."""
        self._stopped.set()
        if self._thread:
            self._thread.join()

    def look(self, now: float) -> None:
        """Look once, at `now` seconds, never set back. Raises DriverError, KubeletError; then nothing is remembered of it."""
        pods = {pod.key: pod for pod in self._pods()}
        held = {device: holder for device, holder in self._kubelet.allocated().items() if _is_mps(device)}
        boards = {board.uuid: board for board in self._driver.boards()} if held else {}
        uses = list[Use]()
        for board, shares in _shares(held, boards).items():
            used = Counter[str | None]()
            for client in self._driver.clients(board):
                used[self._processes.pod(client.pid)] += client.mib
            uses += [Use(board, pods[key].uid, used[pods[key].uid], mib) for key, mib in shares.items() if key in pods]
        by_uid = {pod.uid: pod for pod in pods.values()}
        for use in self._overuse.look(uses, now):
            pod, index = by_uid[use.pod], boards[use.board].index
            message = f"it has {use.mib} MiB on GPU {index}, and a slice of {use.share_mib} MiB: MPS limits each process by itself"
            _log.warning("memory_above_slice", pod=pod.key, board=use.board, mib=use.mib, share_mib=use.share_mib)
            self._tell(pod, names.MEMORY_ABOVE_SLICE, message)

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_S):
            try:
                self.look(time.monotonic())
                fault = ""
            except (DriverError, KubeletError) as error:
                fault = str(error)
            if fault and fault != self._fault:
                _log.warning("memory_of_pods_not_known", error=fault)
            self._fault = fault


def _is_mps(device: str) -> bool:
    return is_ours(device) and bin_gb(read_device_id(device)[1].profile) is not None


def _shares(held: Mapping[str, Holder], boards: Mapping[str, BoardInventory]) -> dict[str, Counter[Holder]]:
    """Return board -> holder -> MiB of its MPS slices there."""
    shares: dict[str, Counter[Holder]] = {}
    for device, holder in held.items():
        board, item = read_device_id(device)
        if board in boards:
            shares.setdefault(board, Counter())[holder] += limit_mib(boards[board], item.profile)
    return shares
