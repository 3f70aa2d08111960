"""The MPS daemons of a node's boards."""

from collections.abc import Callable

from reconciler.agent.driver import DriverError
from reconciler.agent.mps.daemon import Daemon, Pace
from reconciler.agent.mps.site import MpsSite


class Supervisor:
    """One control daemon per board, each a process of the node; of one board one thing is asked at a time.

    Args:
        site: where they live.
        pace: how patient we are with them.
        changed: called, by any thread, when a board gets a fault or is rid of it: a pass is due.
    """

    def __init__(self, site: MpsSite, *, pace: Pace | None = None, changed: Callable[[], None] = lambda: None) -> None:
        self._site, self._pace, self._changed = site, pace or Pace(), changed
        self._daemons: dict[str, Daemon] = {}

    def start(self, board: str, limit_mib: int | None, *, again: bool = True) -> None:
        """Keep a daemon for a board from now on: the one that runs, or a new one; unless `again`, only as long as it runs.

        Raises nothing: see `fault`.
        """
        if daemon := self._daemons.get(board):
            daemon.again = again
        else:
            self._daemons[board] = daemon = self._daemon(board, limit_mib, again=again)
            daemon.start()

    def stop(self, board: str) -> None:
        """End the daemon of a board, whether we or an agent before us kept it, with whatever uses it. Raises nothing."""
        (self._daemons.pop(board, None) or self._daemon(board, None, again=False)).stop()

    def kept(self, board: str) -> bool:
        """Return whether a daemon is kept for a board, whether it serves or not."""
        return board in self._daemons

    def retiring(self, board: str) -> bool:
        """Return whether the daemon of a board is kept only as long as it runs."""
        return board in self._daemons and not self._daemons[board].again

    def fault(self, board: str) -> str | None:
        """Return why the daemon of a board cannot serve; None if it can, or none is kept."""
        daemon = self._daemons.get(board)
        return daemon.fault() if daemon else None

    def limit(self, board: str, mib: int | None) -> None:
        """Let no client of a board have more memory than this, if anything. Raises DriverError if its daemon cannot serve."""
        daemon = self._daemons.get(board)
        if daemon is None:
            raise DriverError(f"no MPS control daemon is kept for {board}")
        daemon.limit(mib)

    def leave(self) -> None:
        """Keep none any longer, and leave all running: for the end of the agent, which takes no longer for many than for one."""
        leaving, self._daemons = tuple(self._daemons.values()), {}
        for daemon in leaving:
            daemon.hasten()
        for daemon in leaving:
            daemon.leave()

    def _daemon(self, board: str, limit_mib: int | None, *, again: bool) -> Daemon:
        return Daemon(self._site, board, limit_mib, again=again, pace=self._pace, changed=self._changed)
