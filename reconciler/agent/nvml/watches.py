"""The event sets of one session of NVML: one that is asked with each look at the boards, and those of threads that wait."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet

import pynvml
import structlog

from reconciler.agent.driver import DriverError
from reconciler.agent.nvml.discovery import Board
from reconciler.agent.nvml.xids import XidWatch

_log: Final = structlog.get_logger()


class Watches:
    """Watches of all boards of a session but those that are being switched. Any thread may use it.

    Args:
        boards: by UUID, as they are known at any time.
        stricken: UUID -> why, of boards that an XID has told of; added to.
    """

    def __init__(self, boards: Mapping[str, Board], stricken: dict[str, str]) -> None:
        self._boards, self._stricken = boards, stricken
        self._let_go: frozenset[str] = frozenset()
        self._own: XidWatch | None = None
        self._given: WeakSet[XidWatch] = WeakSet()
        self._closed = False
        self._blind = ""  # why there are no events, as was told
        self._turn = threading.Lock()

    def watch(self) -> XidWatch:
        """Return a watch for a thread that waits; it is closed when the boards to watch are others. Raises DriverError."""
        with self._turn:
            watch = self._new()
            self._given.add(watch)
            return watch

    def look(self) -> None:
        """Note which boards have failed. Without events boards serve all the same; a lost one is seen when it is asked."""
        with self._turn:
            self._look()

    @contextmanager
    def without(self, board: str) -> Iterator[None]:
        """Let no event set of ours hold a board meanwhile (pain A05); all others are watched on."""
        with self._turn:
            self._let_go |= {board}
            self._look()
        try:
            yield
        finally:
            with self._turn:
                self._let_go -= {board}
                self._look()

    def close(self) -> None:
        """Let go of all, for good. Raises nothing."""
        with self._turn:
            self._closed = True
            for watch in (*self._given, self._own):
                if watch:
                    quietly(watch.close)

    def _look(self) -> None:
        wanted = self._wanted().keys()
        for watch in tuple(self._given):
            if watch.boards != wanted:
                quietly(watch.close)
        try:
            if self._own is None or self._own.boards != wanted:
                self._renew()
            elif not self._closed:
                self._note(self._own)
            self._blind = ""
        except DriverError as error:
            if str(error) != self._blind:  # once, and not with each pass
                _log.warning("no_xid_events", error=str(error))
            self._blind = str(error)

    def _renew(self) -> None:
        """Watch what is to be watched now, before what was is let go: of boards that are in both nothing is missed."""
        before, self._own = self._own, None
        try:
            self._own = self._new()
            if before:
                self._note(before)
        finally:
            if before:
                quietly(before.close)

    def _new(self) -> XidWatch:
        if self._closed:
            raise DriverError("watch for XID events: NVML has been closed")
        return XidWatch({uuid: board.handle for uuid, board in self._wanted().items()})

    def _wanted(self) -> dict[str, Board]:
        return {uuid: board for uuid, board in dict(self._boards).items() if uuid not in self._let_go}

    def _note(self, watch: XidWatch) -> None:
        for uuid, xid in watch.take():
            self._stricken[uuid] = f"XID error {xid}: see the node's kernel log; mend it and restart the agent"
            _log.error("board_stricken", board=uuid, xid=xid)


def quietly(close: Callable[[], object]) -> None:
    """Let go of something that may be gone already: what we wanted to be rid of must not keep us."""
    try:
        close()
    except (DriverError, pynvml.NVMLError) as error:
        _log.debug("not_closed", error=str(error))
