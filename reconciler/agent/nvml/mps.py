"""Boards in MPS mode: compute mode by NVML, slices as bins, and the control daemon that serves them.

In compute mode EXCLUSIVE_PROCESS one process may use a board: the daemon's server, so that nobody gets past it and its
limits.
"""

import pynvml
import structlog

from policies.annotations import BoardInventory
from reconciler.agent.driver import DriverError, InUse, InvalidArgument, NotSupported, Slice
from reconciler.agent.mps.bins import Bins
from reconciler.agent.mps.shares import backstop_mib
from reconciler.agent.mps.supervisor import Supervisor
from reconciler.agent.mps.usage import Client
from reconciler.agent.nvml.discovery import MIB, Board, Handle
from reconciler.agent.nvml.errors import asking
from reconciler.agent.rules import rejection


class MpsBoards:
    """MPS on the boards of a node; on each board one thing is done at a time.

    Args:
        bins: where the slices are kept.
        daemons: which serve them.
    """

    def __init__(self, bins: Bins, daemons: Supervisor) -> None:
        self._bins, self._daemons = bins, daemons

    def slices(self, board: str) -> tuple[Slice, ...]:
        """Return the MPS slices of the board of this UUID. Raises DriverError."""
        return self._bins.of(board)

    def fault(self, board: str) -> str | None:
        """Return why the daemon of the board of this UUID cannot serve; None if it can, or none is kept."""
        return self._daemons.fault(board)

    def enabled(self, board: Board) -> bool:
        """Return whether a daemon is kept for a board, and nobody gets past it."""
        if not self._daemons.kept(board.uuid):
            return False
        try:
            with asking("ask for the compute mode"):
                mode = pynvml.nvmlDeviceGetComputeMode(board.handle)
        except DriverError:  # it can be neither known nor changed; the board has its fault from elsewhere
            return True
        return bool(mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)

    def enable(self, board: Board) -> None:
        """Keep a daemon for a board from now on. Raises DriverError; what is wrong with the daemon is the board's fault."""
        _set_compute_mode(board, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        self._daemons.start(board.uuid, backstop_mib(board.inventory, self.slices(board.uuid)))

    def disable(self, board: Board) -> None:
        """End the daemon of a board and open the board to all. Raises InUse while it has slices, DriverError."""
        if self.slices(board.uuid):
            raise InUse(f"end the MPS control daemon of GPU {board.inventory.index}: it has MPS slices")
        self._daemons.stop(board.uuid)
        _set_compute_mode(board, pynvml.NVML_COMPUTEMODE_DEFAULT)

    def create(self, board: Board, item: Slice) -> None:
        """Make a slice. Raises DriverError."""
        if not self._daemons.kept(board.uuid):
            raise NotSupported(f"no MPS control daemon is kept for GPU {board.inventory.index}")
        present = self.slices(board.uuid)
        if item in present:
            raise InvalidArgument(f"{item} exists already")
        if error := rejection(board.model, [one.placement for one in present], item.placement):
            raise error
        self._daemons.limit(board.uuid, backstop_mib(board.inventory, (*present, item)))
        self._bins.add(board.uuid, item)

    def destroy(self, board: BoardInventory, item: Slice) -> None:
        """Remove a slice. Raises DriverError."""
        if item not in self.slices(board.uuid):
            raise InvalidArgument(f"there is no {item}")
        self._bins.remove(board.uuid, item)
        try:
            self._daemons.limit(board.uuid, backstop_mib(board, self.slices(board.uuid)))
        except DriverError as error:  # a backstop that is too large; the next daemon has the right one
            structlog.get_logger().warning("mps_limit_not_lowered", board=board.uuid, error=str(error))


def clients(handle: Handle) -> tuple[Client, ...]:
    """Return the processes that use a board by MPS. Raises pynvml.NVMLError."""
    found = pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)
    return tuple(Client(process.pid, (process.usedGpuMemory or 0) // MIB) for process in found)


def _set_compute_mode(board: Board, mode: int) -> None:
    with asking(f"set the compute mode of GPU {board.inventory.index}"):
        pynvml.nvmlDeviceSetComputeMode(board.handle, mode)
