"""Boards in MPS mode: compute mode by NVML, slices as bins, and the control daemon that serves them.

In compute mode EXCLUSIVE_PROCESS one process may use a board: the daemon's server, so that nobody gets past it and its
limits.
"""

import pynvml
import structlog

from reconciler.agent.driver import DriverError, InvalidArgument, NotSupported, Slice
from reconciler.agent.mps.bins import Bins
from reconciler.agent.mps.shares import backstop_mib
from reconciler.agent.mps.supervisor import Supervisor
from reconciler.agent.mps.usage import Client
from reconciler.agent.nvml.discovery import MIB, Board, Handle
from reconciler.agent.nvml.errors import asking
from reconciler.agent.rules import layout_fault, rejection


class MpsBoards:
    """MPS on the boards of a node; on each board one thing is done at a time.

    Args:
        bins: where the slices are kept.
        daemons: which serve them.
    """

    def __init__(self, bins: Bins, daemons: Supervisor) -> None:
        self._bins, self._daemons = bins, daemons

    def slices(self, board: Board) -> tuple[Slice, ...]:
        """Return the MPS slices of a board. Raises DriverError, also if the file has some that cannot be."""
        found = self._bins.of(board.uuid)
        if why := _nonsense(board, found):
            raise DriverError(
                f"{self._bins.path}: {board.uuid}: {why}; mend that by hand, or remove the file and its slices"
            )
        return found

    def fault(self, board: str) -> str | None:
        """Return why the daemon of the board of this UUID cannot serve; None if it can, or none is kept."""
        return self._daemons.fault(board)

    def enabled(self, board: Board, *, mig: bool) -> bool | None:
        """Return whether a daemon is kept for a board and nobody gets past it; None if only a part of that is so.

        A daemon that is kept only as long as it runs, for the slices that are left, counts as none.
        """
        kept = self._daemons.kept(board.uuid)
        if not kept and board.uuid not in self._bins.boards():
            return False
        if self._daemons.retiring(board.uuid):
            return None if mig or not self._bins.of(board.uuid) else False
        if mig or not kept:
            return None
        try:
            with asking("ask for the compute mode"):
                mode = pynvml.nvmlDeviceGetComputeMode(board.handle)
        except DriverError:  # it can be neither known nor changed; the board has its fault from elsewhere
            return True
        return mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS or None

    def enable(self, board: Board) -> None:
        """Keep a daemon for a board from now on. Raises DriverError; what is wrong with the daemon is the board's fault."""
        backstop = backstop_mib(board.inventory, self.slices(board))
        self._bins.take_up(board.uuid)
        _set_compute_mode(board, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        self._daemons.start(board.uuid, backstop)

    def disable(self, board: Board, *, mig: bool) -> None:
        """End the daemon of a board, whoever started it, and open the board to all. Raises DriverError.

        As long as it has slices their daemon serves them, and is not started again when it ends. In MIG mode no slice of
        MPS can serve any more, and none is kept: those that pods hold are made again if the board comes back.
        """
        if not mig and (left := self.slices(board)):
            self._daemons.start(board.uuid, backstop_mib(board.inventory, left), again=False)
            return
        self._daemons.stop(board.uuid)
        if not mig:  # in which it is the default one, and cannot be set
            _set_compute_mode(board, pynvml.NVML_COMPUTEMODE_DEFAULT)
        self._bins.forget(board.uuid)

    def create(self, board: Board, item: Slice) -> None:
        """Make a slice. Raises DriverError."""
        if not self._daemons.kept(board.uuid):
            raise NotSupported(f"no MPS control daemon is kept for GPU {board.inventory.index}")
        present = self.slices(board)
        if item in present:
            raise InvalidArgument(f"{item} exists already")
        if error := rejection(board.model, [one.placement for one in present], item.placement):
            raise error
        self._daemons.limit(board.uuid, backstop_mib(board.inventory, (*present, item)))
        self._bins.add(board.uuid, item)

    def destroy(self, board: Board, item: Slice) -> None:
        """Remove a slice. Raises DriverError."""
        if item not in self.slices(board):
            raise InvalidArgument(f"there is no {item}")
        self._bins.remove(board.uuid, item)
        try:
            self._daemons.limit(board.uuid, backstop_mib(board.inventory, self.slices(board)))
        except DriverError as error:  # a backstop that is too large; the next daemon has the right one
            structlog.get_logger().warning("mps_limit_not_lowered", board=board.uuid, error=str(error))


def clients(handle: Handle) -> tuple[Client, ...]:
    """Return the processes that use a board by MPS. Raises pynvml.NVMLError."""
    found = pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)
    return tuple(Client(process.pid, (process.usedGpuMemory or 0) // MIB) for process in found)


def _nonsense(board: Board, items: tuple[Slice, ...]) -> str:
    """Return why these cannot be the MPS slices of a board, or ""."""
    if any(item.start is not None for item in items):
        return "has MIG slices"
    if len(set(items)) < len(items):
        return "names a slice twice"
    return str(layout_fault(board.model, [item.placement for item in items]) or "")


def _set_compute_mode(board: Board, mode: int) -> None:
    with asking(f"set the compute mode of GPU {board.inventory.index}"):
        pynvml.nvmlDeviceSetComputeMode(board.handle, mode)
