"""Keeps the control daemon of one board: starts it or takes over the one that runs, looks after it, starts it again.

A daemon that has ended is started again, after pauses that double. One that runs and does not serve is left as it is: the
programs that use the board would end with it, and most of what is wrong ends with them. In both cases the board has a
fault until a check has passed; and a check holds for a minute.
"""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kube.backoff import Backoff
from reconciler.agent.driver import DriverError
from reconciler.agent.mps.control import FAULTY, STARTING, Control
from reconciler.agent.mps.logs import Logs
from reconciler.agent.mps.process import Bell, Process
from reconciler.agent.mps.site import MpsSite

POLL_S: Final = 0.05  # how soon a daemon or server that is starting is asked again

_log: Final = structlog.get_logger()


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How patient we are with a daemon, in seconds.

    Attributes:
        check_s: between checks.
        answer_s: for an answer.
        start_s: until a new daemon answers, and until its server is active.
        first_s: until `start` returns, although it is not known yet how it goes.
        fresh_s: for which a check holds, and a server's failure counts.
        restart: pauses before a daemon that has ended is started again.
    """

    check_s: float = 20.0
    answer_s: float = 5.0
    start_s: float = 10.0
    first_s: float = 2.0
    fresh_s: float = 60.0
    restart: Backoff = Backoff(1.0, 60.0)


class Daemon:
    """The control daemon of one board, from `start` until `stop` or `leave`.

    Attributes:
        again: whether it is started when it has ended.

    Args:
        site: where it lives.
        board: UUID of its board.
        limit_mib: memory that no client may exceed; None where the board limits nothing.
        again: whether it is started where it does not run.
        pace: how patient we are.
        changed: called, by any thread, when the board gets a fault, another one, or is rid of it.
        clock: seconds, never set back.
        chance: in [0, 1).
    """

    def __init__(
        self,
        site: MpsSite,
        board: str,
        limit_mib: int | None,
        *,
        again: bool = True,
        pace: Pace,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.again = again
        self._site, self._board, self._limit_mib, self._pace = site, board, limit_mib, pace
        self._changed, self._clock, self._chance = changed, clock, chance
        self._control = Control(site, board, pace.answer_s)
        logs = site.logs(board)
        self._logs = Logs((site.output(board), logs / "control.log"), (logs / "server.log",))
        self._process: Process | None = None
        self._fault: str | None = "its MPS control daemon is starting"
        self._said = threading.Event()
        self._checked = clock()
        self._server_failure = ("", 0.0)
        self._bell = Bell()
        self._thread = threading.Thread(target=self._keep, name=f"mps {board}", daemon=True)

    def start(self) -> None:
        """Begin to keep it; return when it is known how it goes, or soon. Raises nothing: see `fault`."""
        self._thread.start()
        self._said.wait(self._pace.first_s)

    def fault(self) -> str | None:
        """Return why it cannot serve; None if it can, by a check within the last minute."""
        age_s = self._clock() - self._checked
        if self._fault is None and age_s > self._pace.fresh_s:
            return f"its MPS control daemon has not been checked for {age_s:.0f} s"
        return self._fault

    def limit(self, mib: int | None) -> None:
        """Let no client have more memory than this; daemons that are started later as well. Raises DriverError."""
        self._limit_mib = mib
        if self._fault:
            raise DriverError(self._fault)
        if mib is not None:
            self._control.limit(mib)

    def stop(self) -> None:
        """End it, with its servers, whether it serves or not, and whoever started it. Raises nothing."""
        self._end_thread()
        self._process = self._process or Process.find(self._site, self._board)
        if self._process:
            try:
                self._control.quit()
            except DriverError as error:
                _log.warning("mps_daemon_not_asked_to_quit", board=self._board, error=str(error))
            self._process.end(self._pace.answer_s)
            self._process.close()
            _log.info("mps_daemon_ended", board=self._board, pid=self._process.pid)

    def hasten(self) -> None:
        """Do nothing more than what is being asked of it now; `leave` or `stop` is about to wait for that."""
        self._bell.ring()

    def leave(self) -> None:
        """Keep it no longer and leave it running, for the programs that use the board and for the next agent."""
        self._end_thread()
        if self._process:
            self._process.close()

    def _end_thread(self) -> None:
        self.hasten()
        if self._thread.is_alive():
            self._thread.join()
        self._bell.close()

    # In the thread ----------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        failures, began = 0, self._clock()
        while True:
            try:
                if self._process is None:
                    began = self._clock()
                    self._process = self._begin()
                else:
                    self._check()
                fault = None
            except (DriverError, OSError) as error:
                fault = str(error)
            if self._bell.wait(0.0):
                return
            self._say(fault)
            if self._process:
                if not self._process.wait(self._pace.check_s, self._bell):
                    continue
                self._process.close()
                self._process = None
                self._say(f"its MPS control daemon has ended{self._words()}")
            failures = failures + 1 if self._clock() - began < self._pace.fresh_s else 1
            if self._bell.wait(self._pace.restart.delay_s(failures, self._chance())):
                return

    def _begin(self) -> Process:
        """Return the daemon, which serves. Raises DriverError; then what was started is ended, and what ran goes on."""
        found = Process.find(self._site, self._board)
        if not (found or self.again):
            raise DriverError("its MPS control daemon has ended, and is not started again: the board is to leave MPS")
        self._site.prepare(self._board)
        self._logs.skip()
        self._server_failure = ("", 0.0)
        process = found or Process.start(self._site, self._board)
        try:
            self._await_answer(process)
            if self._limit_mib is not None:
                self._control.limit(self._limit_mib)
            self._check()
        except (DriverError, OSError):
            if not found:
                process.end(0.0)
            process.close()
            raise
        _log.info("mps_daemon_found" if found else "mps_daemon_started", board=self._board, pid=process.pid)
        return process

    def _await_answer(self, process: Process) -> None:
        until = self._clock() + self._pace.start_s
        while True:
            try:
                self._control.servers()
            except DriverError:
                if process.ended():
                    raise DriverError(f"its MPS control daemon ends as soon as it is started{self._words()}") from None
                if self._clock() >= until:
                    raise
            else:
                return
            self._pause()

    def _check(self) -> None:
        """Raise DriverError if it cannot serve. docs/mps.md says what each of these proves."""
        self._site.check(self._board)
        if not self._control.servers():
            self._control.start_server()
        server = self._active_server()
        owner, uid = _owner(server), self._site.uid
        # A server of another user is replaced when the next client comes, but not before its own have ended (pain W32).
        if owner not in (uid, None) and self._control.clients(server):
            raise DriverError(
                f"its MPS server runs as uid {owner}: programs of uid {uid} wait until its own have ended"
            )
        if server not in self._control.servers_as_client():
            raise DriverError(f"uid {uid} is told of other MPS servers than the agent")

    def _active_server(self) -> int:
        until = self._clock() + self._pace.start_s
        while True:
            self._look_for_failed_servers()
            states = {server: self._control.status(server) for server in self._control.servers()}
            if FAULTY in states.values():
                raise DriverError(
                    "its MPS server has failed, by a program's fault: it recovers when its programs have ended"
                )
            if active := [server for server, state in states.items() if state != STARTING]:
                return active[0]
            if self._clock() >= until:
                raise DriverError(f"no MPS server for uid {self._site.uid} has become active{self._words()}")
            self._pause()

    def _look_for_failed_servers(self) -> None:
        """Raise DriverError if a server failed within the last minute: it may do so with each client (pain A19)."""
        if failure := self._logs.failed_server():
            self._server_failure = failure, self._clock()
        failure, when = self._server_failure
        if failure and self._clock() - when < self._pace.fresh_s:
            raise DriverError(f"its MPS servers fail: {failure}")

    def _pause(self) -> None:
        if self._bell.wait(POLL_S):
            raise DriverError("the agent ends")

    def _say(self, fault: str | None) -> None:
        before, self._fault, self._checked = self._fault, fault, self._clock()
        self._said.set()
        if fault != before:
            if fault:
                _log.warning("mps_board_cannot_serve", board=self._board, error=fault)
            self._changed()

    def _words(self) -> str:
        words = self._logs.last_words()
        return f": {words}" if words else ""


def _owner(pid: int) -> int | None:
    """Return the uid of a process; None if it is not seen here."""
    try:
        return (Path("/proc") / str(pid)).stat().st_uid
    except OSError:
        return None
