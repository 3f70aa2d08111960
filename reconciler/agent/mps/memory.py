"""Watches what the pods of a node use of the memory of boards in MPS mode, and tells of those that use more than their slices.

MPS limits each process by itself; what the processes of a pod have together only NVML knows, by their PIDs. So the agent
must see the PIDs of the node (hostPID).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

import structlog

from policies import names
from policies.annotations import BoardInventory
from policies.placement import bin_gb
from policies.view import PodView
from reconciler.agent.driver import DriverError, read_device_id
from reconciler.agent.kubelet import Holder, Kubelet, KubeletError
from reconciler.agent.mps.overuse import Overuse, Use
from reconciler.agent.mps.shares import limit_mib
from reconciler.agent.mps.usage import Process, memory_by_pod, pod_of

LOOK_S: Final = 10.0  # so that half a minute is three looks
PROC: Final = Path("/proc")

Pods = Callable[[], Iterable[PodView]]
Tell = Callable[[PodView, str, str], None]

_log: Final = structlog.get_logger()


class Clients(Protocol):
    """What is asked of the driver."""

    def boards(self) -> tuple[BoardInventory, ...]:
        """Return the boards. Raises DriverError."""
        ...

    def clients(self, board: str) -> tuple[Process, ...]:
        """Return the processes that use a board by MPS. Raises DriverError."""
        ...


class MemoryWatch:
    """Looks every ten seconds, in a thread of its own.

    Args:
        driver: of the boards.
        kubelet: which knows who holds what.
        tell: tells people of a pod: reason and message.
        proc: where processes are seen.
    """

    def __init__(self, driver: Clients, kubelet: Kubelet, tell: Tell, *, proc: Path = PROC) -> None:
        self._driver, self._kubelet, self._tell, self._proc = driver, kubelet, tell, proc
        self._overuse = Overuse()
        self._fault = ""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, pods: Pods) -> None:
        """Begin, unless it goes on already; `pods` returns those of the node."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(pods,), name="mps memory", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End after the look that is under way."""
        self._stopped.set()
        if self._thread:
            self._thread.join()

    def look(self, pods: Iterable[PodView], now: float) -> None:
        """Look once, at `now` seconds, never set back. Raises DriverError, KubeletError; then nothing is remembered of it."""
        by_key = {pod.key: pod for pod in pods}
        held = {device: holder for device, holder in self._kubelet.allocated().items() if _is_mps(device)}
        boards = {board.uuid: board for board in self._driver.boards()} if held else {}
        uses: dict[tuple[str, str], Use] = {}
        for board, shares in _shares(held, boards).items():
            processes = self._driver.clients(board)
            pods_of = {process.pid: uid for process in processes if (uid := self._pod(process.pid))}
            used = memory_by_pod(processes, pods_of)
            for holder, share_mib in shares.items():
                if pod := by_key.get(holder):
                    uses[board, pod.uid] = Use(board, pod.uid, used[pod.uid], share_mib)
        by_uid = {pod.uid: pod for pod in by_key.values()}
        for use in self._overuse.look(uses, now):
            pod, index = by_uid[use.pod], boards[use.board].index
            message = f"it has {use.mib} MiB on GPU {index}, and a slice of {use.share_mib} MiB: MPS limits each process by itself"
            _log.warning("memory_above_slice", pod=pod.key, board=use.board, mib=use.mib, share_mib=use.share_mib)
            self._tell(pod, names.MEMORY_ABOVE_SLICE, message)

    def _pod(self, pid: int) -> str | None:
        try:
            return pod_of((self._proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
        except OSError:  # it has ended
            return None

    def _run(self, pods: Pods) -> None:
        while not self._stopped.wait(LOOK_S):
            try:
                self.look(pods(), time.monotonic())
                fault = ""
            except (DriverError, KubeletError) as error:
                fault = str(error)
            if fault and fault != self._fault:
                _log.warning("memory_of_pods_not_known", error=fault)
            self._fault = fault


def _is_mps(device: str) -> bool:
    return bin_gb(read_device_id(device)[1].profile) is not None


def _shares(held: Mapping[str, Holder], boards: Mapping[str, BoardInventory]) -> dict[str, Counter[Holder]]:
    """Return board -> holder -> MiB of its MPS slices there."""
    shares: dict[str, Counter[Holder]] = {}
    for device, holder in held.items():
        board, item = read_device_id(device)
        if board in boards:
            shares.setdefault(board, Counter())[holder] += limit_mib(boards[board], item.profile)
    return shares
