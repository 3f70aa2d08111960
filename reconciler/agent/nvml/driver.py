"""`GpuDriver` over NVML. Nothing is opened before the first call, and a call that finds no driver can be repeated."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import pynvml

from policies import names
from policies.annotations import BoardInventory
from reconciler.agent.driver import DriverError, InUse, InvalidArgument, NotSupported, Slice
from reconciler.agent.mps.usage import Client
from reconciler.agent.nvml import instances
from reconciler.agent.nvml.calls import Calls
from reconciler.agent.nvml.discovery import Board, mig_mode
from reconciler.agent.nvml.errors import asking, driver_error
from reconciler.agent.nvml.mps import MpsBoards, clients
from reconciler.agent.nvml.session import Session
from reconciler.agent.nvml.xids import XidWatch
from reconciler.agent.rules import rejection

_FIRST_PAUSE_S: Final = 1.0  # between opening NVML and opening it again; doubles
_LONGEST_PAUSE_S: Final = 60.0
_NO_MPS: Final = f"this agent has no MPS control daemon; label the node {names.PARTITIONING_LABEL}={names.MIG}"


class NvmlDriver:
    """The boards of this node. Any thread may ask; on each board one thing is done at a time.

    NVML is opened at the first call. When it has lost its driver, or there are more boards than it knew, the next look at the
    boards opens it anew, with pauses that grow as long as that does not help.

    Args:
        mps: slices and daemons of boards in MPS mode; None where there can be no daemons.
        name: names a process to people, by its PID.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        mps: MpsBoards | None = None,
        *,
        name: Callable[[int], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mps, self._name, self._clock = mps, name, clock
        self._opened_at = self._pause_s = 0.0
        self._stricken: dict[str, str] = {}
        self._calls = Calls(clock)
        self._session: Session | None = None
        self._opening = threading.Lock()

    def boards(self) -> tuple[BoardInventory, ...]:
        """Return the boards, by index. Raises DriverError without library, driver or boards."""
        with self._opening:
            session = self._renewed(self._open())
            session.ask_again()
        found = [self._now(session, board) for board in tuple(session.boards.values())]
        return tuple(sorted((*found, *session.undescribed), key=lambda board: board.index))

    def slices(self, board: str) -> tuple[Slice, ...]:
        """Return the complete slices of a board. Raises DriverError."""
        with self._on(board) as found:
            if self._mig(found):
                return tuple(instance.item for instance in self._instances(found) if instance.whole)
            return self._mps.slices(found) if self._mps else ()

    def orphans(self, board: str) -> tuple[Slice, ...]:
        """Return GPU instances without a compute instance; one that is divided among several is not ours to remove."""
        with self._on(board) as found:
            return tuple(instance.item for instance in self._instances(found) if not instance.parts)

    def create(self, board: str, item: Slice) -> None:
        """Make a slice at its placement, or nothing. Raises DriverError."""
        with self._on(board) as found:
            mig = self._mig(found)
            if mig is not (item.start is not None):
                raise NotSupported(f"MIG mode of GPU {found.inventory.index} is {'on' if mig else 'off'}")
            if item.start is None:
                self._with_mps().create(found, item)
                return
            profile = found.model.profile(item.profile)
            if profile is None:
                raise InvalidArgument(f"{found.model.name} has no profile {item.profile}")
            present = self._instances(found)
            for instance in present:
                if instance.item == item:
                    raise InvalidArgument(f"{item} {_already(found, instance)}")
            try:
                instances.create(found, profile, item.start)
            except DriverError as error:
                # NVML says only that it cannot be. Instances that are no slices are in no report, but take room.
                if why := rejection(found.model, instances.placements(present), item.placement):
                    error.args = (f"{error}: {why}",)
                raise

    def destroy(self, board: str, item: Slice) -> None:
        """Remove a slice or an orphan. Raises DriverError; InUse names the processes."""
        with self._on(board) as found:
            if item.start is None:
                self._with_mps().destroy(found, item)
                return
            present = self._instances(found, item.profile)
            instance = next((one for one in present if one.item == item and (one.whole or not one.parts)), None)
            if instance is None:
                raise InvalidArgument(f"there is no {item}")
            try:
                instances.destroy(instance)
            except InUse as error:
                error.args = (f"{error}{instances.holders(found, self._name, instance.number)}",)
                raise

    def enable_mig(self, board: str) -> None:
        """Switch MIG mode on where that needs no reset. Raises NotSupported where it does, InUse where something runs."""
        session, found = self._find(board)
        with session.on(found):
            if found.inventory.switch != "live":
                raise NotSupported(f"{found.model.name} cannot switch MIG mode on without a reset")
            what = f"switch MIG mode of GPU {found.inventory.index} on"
            if self._mps and self._mps.slices(found):
                raise InUse(f"{what}: it has MPS slices")
            with asking(what), session.watches.without(board):
                status = pynvml.nvmlDeviceSetMigMode(found.handle, pynvml.NVML_DEVICE_MIG_ENABLE)
            if status != pynvml.NVML_SUCCESS:  # the mode is set, but pending
                error = driver_error(what, pynvml.NVMLError(status))
                error.args = (f"{error}{instances.holders(found, self._name)}",)
                raise error

    def mps_enabled(self, board: str) -> bool | None:
        """Return whether a control daemon is kept for a board and nobody gets past it; None: a part of it. Raises DriverError."""
        with self._on(board) as found:
            return self._mps.enabled(found, mig=self._mig(found)) if self._mps else False

    def enable_mps(self, board: str) -> None:
        """Keep a control daemon for a board; whether it serves, `boards` says. Raises NotSupported in MIG mode."""
        with self._on(board) as found:
            if self._mig(found):
                raise NotSupported(f"MIG mode of GPU {found.inventory.index} is on")
            self._with_mps().enable(found)

    def disable_mps(self, board: str) -> None:
        """End the control daemon of a board; as long as it has MPS slices, only start it no more. Raises DriverError."""
        with self._on(board) as found:
            self._with_mps().disable(found, mig=self._mig(found))

    def clients(self, board: str) -> tuple[Client, ...]:
        """Return the processes that use a board by MPS, by their PIDs on the node. Raises DriverError."""
        with self._on(board) as found, asking(f"list the MPS clients of GPU {found.inventory.index}"):
            return clients(found.handle)

    def device_uuid(self, board: str, item: Slice) -> str:
        """Return the UUID by which a container gets a slice: the MIG device's, of MPS the board's. Raises DriverError."""
        with self._on(board) as found:
            if item.start is None:
                return board
            uuid = self._uuids(found, item.profile).get(item)
        if uuid is None:
            raise InvalidArgument(f"there is no {item}")
        return uuid

    def device_uuids(self, board: str) -> dict[Slice, str]:
        """Return the UUIDs of all MIG slices of a board: less work than asking for each. Raises DriverError."""
        with self._on(board) as found:
            return self._uuids(found)

    def watch(self) -> XidWatch:
        """Return a watch of all boards that are known now, for a thread that waits for events. Raises DriverError."""
        with self._opening:
            return self._open().watches.watch()

    def silent(self, longer_s: float) -> tuple[int, ...]:
        """Return the indices of boards that have owed an answer for so long; who waits for one of them waits as well."""
        return self._calls.lasting(longer_s)

    def close(self) -> None:
        """Let go of NVML; the next call opens it again."""
        with self._opening:
            if self._session:
                self._session.close()
            self._session = None
            self._stricken = {}

    # NVML -------------------------------------------------------------------------------------------------------------

    def _open(self) -> Session:
        if self._session is None:
            self._session = Session(self._stricken, self._calls)
        return self._session

    def _renewed(self, session: Session) -> Session:
        """Return NVML opened anew if it has to be; the same one while it is too early for that, or cannot be."""
        if not session.outdated():
            self._pause_s = 0.0
            return session
        now = self._clock()
        if now < self._opened_at + self._pause_s:
            return session
        self._opened_at, self._pause_s = now, min(_LONGEST_PAUSE_S, 2 * self._pause_s or _FIRST_PAUSE_S)
        session.close()
        try:
            self._session = Session(self._stricken, self._calls)
        except DriverError as error:  # what boards there are is known: they have not gone
            session.closed = str(error)
            return session
        return self._session

    def _find(self, board: str) -> tuple[Session, Board]:
        with self._opening:
            session = self._open()
            return session, session.board(board)

    @contextmanager
    def _on(self, board: str) -> Iterator[Board]:
        """Return a board that nobody else works on meanwhile: an instance that goes while they are listed fails the list."""
        session, found = self._find(board)
        with session.on(found):
            yield found

    def _now(self, session: Session, board: Board) -> BoardInventory:
        """Return a board with what may have changed since it was described; None for what it does not say now."""
        fault, mig = session.fault(board.uuid), None
        try:
            with session.on(board):
                mig = self._mig(board)
                if mig and not board.inventory.mig_capable:  # it said otherwise when it was described
                    board = session.redescribe(board)
        except DriverError as error:
            fault = str(error)
        if self._mps and not mig:  # a daemon that is left on a board in MIG mode is in nobody's way
            fault = fault or self._mps.fault(board.uuid)
        return msgspec.structs.replace(board.inventory, mig=mig, fault=fault)

    def _mig(self, board: Board) -> bool:
        with asking(f"ask for the MIG mode of GPU {board.inventory.index}"):
            return bool(mig_mode(board.handle))

    def _instances(self, board: Board, profile: str | None = None) -> tuple[instances.Instance, ...]:
        """Return the GPU instances of a board, all or those of one profile; none where MIG mode is off."""
        if not self._mig(board):
            return ()
        with asking(f"list the instances of GPU {board.inventory.index}"):
            return instances.instances(board, profile)

    def _uuids(self, board: Board, profile: str | None = None) -> dict[Slice, str]:
        """Return the UUIDs of the MIG devices of a board, all or those of one profile."""
        present = self._instances(board, profile)
        with asking(f"name the MIG devices of GPU {board.inventory.index}"):
            uuids = instances.device_uuids(board) if present else {}
        return {one.item: uuids[one.number] for one in present if one.whole and one.number in uuids}

    def _with_mps(self) -> MpsBoards:
        if self._mps is None:
            raise NotSupported(_NO_MPS)
        return self._mps


def _already(board: Board, instance: instances.Instance) -> str:
    """Return why there cannot be another instance at the same place, and what a person who has divided it can do."""
    if instance.whole or not instance.parts:
        return "exists already"
    which = f"-i {board.inventory.index} -gi {instance.number}"
    return (
        f"cannot be made: somebody has divided the GPU instance at its place among {len(instance.parts)} compute instances; remove "
        f"them and it: nvidia-smi mig -dci {which}; nvidia-smi mig -dgi {which}"
    )
