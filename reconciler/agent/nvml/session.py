"""NVML while it is open: the boards that it knows, those that it cannot describe yet, and XIDs that it has reported."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import pynvml
import structlog

from policies.annotations import BoardInventory
from reconciler.agent.driver import DriverError, InvalidArgument, NotOpen, NotSupported, unanswered
from reconciler.agent.nvml.calls import Calls
from reconciler.agent.nvml.discovery import Board, describe, identify
from reconciler.agent.nvml.errors import asking
from reconciler.agent.nvml.watches import Watches, quietly

_TURN_S: Final = 5.0
_log: Final = structlog.get_logger()


class Session:
    """NVML, from when this is made until it is closed. Raises DriverError without library, driver or boards.

    Attributes:
        boards: those that have been described, by UUID.
        lost: whether a call has found that the library has lost the driver.
        closed: why nothing can be asked any more; "" while it is open.
        watches: of the XIDs of its boards.

    Args:
        stricken: UUID -> why, of boards that an XID has told of; added to.
        calls: told of each board that is being asked.
    """

    def __init__(self, stricken: dict[str, str], calls: Calls) -> None:
        self.boards: dict[str, Board] = {}
        self.lost = False
        self.closed = ""
        self._stricken, self._calls = stricken, calls
        self._undescribed: dict[int, BoardInventory] = {}  # by index, each with its fault
        self.watches = Watches(self.boards, stricken)
        with asking("open NVML"):
            pynvml.nvmlInit()
        try:
            self._count = _count()
            if not self._count:
                raise NotSupported("the driver knows no GPU on this node")
        except DriverError:
            quietly(pynvml.nvmlShutdown)
            raise
        self._ask(range(self._count))

    @property
    def undescribed(self) -> tuple[BoardInventory, ...]:
        """Return the boards that did not answer, as far as they are known, each with its fault."""
        return tuple(self._undescribed.values())

    def ask_again(self) -> None:
        """Ask the boards that did not answer, and for events. Raises nothing."""
        self._ask(tuple(self._undescribed))
        self.watches.look()

    def outdated(self) -> bool:
        """Return whether NVML has to be opened anew: it has lost the driver, or there are more boards than there were."""
        try:
            return self.lost or _count() > self._count
        except NotOpen:
            self.lost = True
        except DriverError as error:
            _log.warning("boards_not_counted", error=str(error))
        return self.lost

    def board(self, uuid: str) -> Board:
        """Return a board. Raises InvalidArgument, or DriverError if it has not answered yet."""
        if board := self.boards.get(uuid):
            return board
        for entry in self.undescribed:
            if entry.uuid == uuid:
                raise DriverError(entry.fault)
        raise InvalidArgument(f"there is no board {uuid}")

    def fault(self, uuid: str) -> str | None:
        """Return why a board that answers cannot serve: an XID."""
        return self._stricken.get(uuid)

    def close(self) -> None:
        """Let go of NVML, when nobody works on a board any more, but for calls that hang: handles are worth nothing after that."""
        if self.closed:
            return
        turns = [board.turn for board in self.boards.values() if board.turn.acquire(timeout=_TURN_S)]
        self.watches.close()
        self.closed = "NVML has been opened anew"
        quietly(pynvml.nvmlShutdown)
        for turn in turns:
            turn.release()

    @contextmanager
    def on(self, board: Board) -> Iterator[Board]:
        """Take one's turn on a board. Raises DriverError if NVML has been closed meanwhile."""
        with board.turn, self._calls.to(board.inventory.index):
            if self.closed:
                raise DriverError(self.closed)
            try:
                yield board
            except NotOpen:
                self.lost = True
                raise

    def redescribe(self, board: Board) -> Board:
        """Return a board as it says now that it is, to who has its turn. Raises DriverError."""
        with asking(f"describe GPU {board.inventory.index}"):
            found = self.boards[board.uuid] = describe(board)
        return found

    def _ask(self, indices: range | tuple[int, ...]) -> None:
        for index in indices:
            entry = unanswered(index)
            try:
                with self._calls.to(index), asking(f"describe GPU {index}"):
                    board = identify(index)
                    entry = board.inventory
                    board = describe(board)
            except DriverError as error:
                self.lost = self.lost or isinstance(error, NotOpen)
                self._undescribed[index] = msgspec.structs.replace(entry, fault=str(error))
            else:
                self._undescribed.pop(index, None)
                self.boards[board.uuid] = board


def _count() -> int:
    with asking("count the GPUs"):
        return int(pynvml.nvmlDeviceGetCount())
