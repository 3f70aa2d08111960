"""What stands behind the driver in the tests of the agent: boards in memory, or real NVML calls to the mock library.

`World.hardware` is one of these classes. Both call `world.interrupt` before each operation, by the simulated driver's name of it.
"""

import shutil
import tempfile
from pathlib import Path

import msgspec
import pynvml

from reconciler.agent.driver import Slice
from reconciler.agent.mps.bins import Bins
from reconciler.agent.nvml import NvmlDriver
from reconciler.agent.nvml.mps import MpsBoards
from reconciler.agent.simulated.driver import (
    CREATE_BIN,
    CREATE_COMPUTE_INSTANCE,
    CREATE_GPU_INSTANCE,
    DESTROY_BIN,
    DESTROY_COMPUTE_INSTANCE,
    DESTROY_GPU_INSTANCE,
    ENABLE_MIG,
    LIST,
    SWITCH_MPS,
    SimulatedDriver,
)
from tests.mps.daemons import NoProcesses
from tests.nvml.machine import Machine

CALLS = {
    "nvmlDeviceCreateGpuInstanceWithPlacement": CREATE_GPU_INSTANCE,
    "nvmlGpuInstanceCreateComputeInstance": CREATE_COMPUTE_INSTANCE,
    "nvmlComputeInstanceDestroy": DESTROY_COMPUTE_INSTANCE,
    "nvmlGpuInstanceDestroy": DESTROY_GPU_INSTANCE,
    "nvmlDeviceSetMigMode": ENABLE_MIG,
    "nvmlDeviceSetComputeMode": SWITCH_MPS,
}


class SimulatedHardware:
    """Boards in memory, which outlive the agent with their driver."""

    def __init__(self, world, memory, present):
        self._driver = SimulatedDriver(
            memory.boards,
            present=present,
            unavailable=memory.fault,
            in_use=world.holds,
            interrupt=world.interrupt,
        )

    def driver(self):
        """Return the driver of an agent that starts now."""
        return self._driver

    def reboot(self, *, mode=False, renumbered=False):
        """Lose all instances, and MIG mode where it does not outlive a reboot (Hopper and later); see `Machine.reboot`."""
        for board, present in self._driver._on.items():
            self._driver._on[board] = {item: whole for item, whole in present.items() if item.start is None}
            if mode:
                self._driver._boards[board] = msgspec.structs.replace(self._driver._boards[board], mig=False)
        if renumbered:
            boards = self._driver._boards
            for index, board in enumerate(sorted(boards.values(), key=lambda board: -board.index)):
                boards[board.uuid] = msgspec.structs.replace(board, index=index)


class NvmlHardware:
    """Boards behind NVML: each agent that starts has a driver of its own."""

    _entered = None

    def __init__(self, world, memory, present):
        self.leave()
        self._world = world
        self._directory = Path(tempfile.mkdtemp(prefix="machine-"))
        self.machine = Machine(
            self._directory,
            *(board.model for board in memory.boards),
            mig=[bool(board.mig) for board in memory.boards],
            uuids=[board.uuid for board in memory.boards],
        ).enter()
        NvmlHardware._entered = self
        at_first = NvmlDriver(MpsBoards(self.bins(), NoProcesses()))
        for uuid, items in present.items():
            if any(item.start is None for item in items):
                at_first.enable_mps(uuid)
            for item in items:
                at_first.create(uuid, item)

    @classmethod
    def leave(cls):
        if cls._entered:
            cls._entered.machine.leave()
            shutil.rmtree(cls._entered._directory)
            cls._entered = None

    def bins(self):
        return Bins(self._directory / "bins.json")

    def reboot(self, *, mode=False, renumbered=False):
        self.machine.reboot(renumbered=renumbered)
        if mode:
            pynvml.nvmlInit()
            for uuid in self.machine.uuids:
                pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByUUID(uuid), 0)
            pynvml.nvmlShutdown()

    def daemons(self):
        """Return what keeps the MPS daemons of an agent that starts now."""
        return NoProcesses()

    def driver(self):
        mps = MpsBoards(_Bins(self._directory / "bins.json"), self.daemons())
        return _Watched(self._world, self.machine, mps)

    @classmethod
    def install(cls, monkeypatch):
        """Let every change that is asked of NVML be a boundary."""
        for name, operation in CALLS.items():
            monkeypatch.setattr(pynvml, name, _interrupted(operation, getattr(pynvml, name)))


_asked = []  # the driver whose call goes on, with board and slice


def _interrupted(operation, function):
    def call(*arguments):
        if _asked:
            world, board, item = _asked[-1]
            world.interrupt(operation, board, item)
        return function(*arguments)

    return call


class _Bins(Bins):
    def add(self, board, item):
        world, *_ = _asked[-1]
        world.interrupt(CREATE_BIN, board, item)
        super().add(board, item)

    def remove(self, board, item):
        world, *_ = _asked[-1]
        world.interrupt(DESTROY_BIN, board, item)
        super().remove(board, item)


class _Watched(NvmlDriver):
    """The real driver, which tells for what it calls NVML, on a machine where pods are processes."""

    def __init__(self, world, machine, mps):
        super().__init__(mps)
        self._world, self._machine = world, machine

    def slices(self, board):
        self._world.interrupt(LIST, board, None)
        return super().slices(board)

    def create(self, board, item):
        self._ask(super().create, board, item)

    def destroy(self, board, item):
        self._machine.mend()
        ids = {profile.name: profile.id for entry in self.boards() if entry.uuid == board for profile in entry.profiles}
        whole = super().slices(board)
        for (identifier, start), number in self._machine.numbers(board).items():
            name = next(name for name, one in ids.items() if one == identifier)
            if Slice(name, start) in whole and self._world.holds(f"{board}/{name}/{start}"):
                self._machine.hold(board, number, 4711)
        self._ask(super().destroy, board, item)

    def enable_mps(self, board):
        self._ask(lambda board, _: super(_Watched, self).enable_mps(board), board, None)

    def disable_mps(self, board):
        self._ask(lambda board, _: super(_Watched, self).disable_mps(board), board, None)

    def enable_mig(self, board):
        self._ask(lambda board, _: super(_Watched, self).enable_mig(board), board, None)

    def _ask(self, call, board, item):
        _asked.append((self._world, board, item))
        try:
            call(board, item)
        finally:
            _asked.pop()
