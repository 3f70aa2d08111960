"""Waits for what boards report by themselves, so that a failed one is looked at at once and not with the next pass."""

import threading
from collections.abc import Callable
from typing import Final

import structlog

from reconciler.agent.driver import DriverError
from reconciler.agent.nvml.xids import WatchEnded, XidWatch

WAIT_S: Final = 1.0  # how long the driver is asked to wait, and so what stopping may take
WAITS: Final = 60  # after which the boards are asked for anew: some may have answered only since
AGAIN_S: Final = 5.0  # for a driver that is not there
STOP_S: Final = 5.0

_log: Final = structlog.get_logger()


class BoardEvents:
    """A thread that says when something has happened to a board; what it was, the driver tells with the boards.

    Args:
        watch: makes a watch. Raises DriverError as long as there is no driver.
        wait_s: how long one wait takes, in seconds.
        again_s: pause after a failure, in seconds.
    """

    def __init__(self, watch: Callable[[], XidWatch], *, wait_s: float = WAIT_S, again_s: float = AGAIN_S) -> None:
        self._watch, self._wait_s, self._again_s = watch, wait_s, again_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, changed: Callable[[], None]) -> None:
        """Begin; `changed` is called when a pass is due."""
        self._thread = threading.Thread(target=self._run, args=(changed,), name="board events", daemon=True)
        self._thread.start()

    def alive(self) -> bool:
        """Return whether somebody waits."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End after the wait that is under way."""
        self._stopped.set()
        if self._thread:
            self._thread.join(STOP_S)

    def _run(self, changed: Callable[[], None]) -> None:
        fault = ""
        while not self._stopped.is_set():
            try:
                self._listen(changed)
                fault = ""
            except DriverError as error:
                if str(error) != fault:
                    _log.warning("no_board_events", error=str(error))
                fault = str(error)
                self._stopped.wait(self._again_s)

    def _listen(self, changed: Callable[[], None]) -> None:
        watch = self._watch()
        try:
            for _ in range(WAITS):
                if self._stopped.is_set():
                    break
                if watch.take(self._wait_s):
                    changed()
        except WatchEnded:
            pass  # by us: what there is to watch now is asked for at once
        except DriverError:
            changed()  # a board that is lost fails the wait for all
            raise
        finally:
            try:
                watch.close()
            except DriverError as error:
                _log.debug("not_closed", error=str(error))
