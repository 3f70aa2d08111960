"""The process of a control daemon: started, or found running by an agent that has been started anew.

A daemon outlives the agent that started it, since the programs that use the board would die with it: it has a session of
its own, and, where the site says so, a cgroup and the node's files too. Whoever started it, its end is seen by a file
descriptor of the process, so nothing is asked of it again and again.
"""

import contextlib
import os
import select
import signal
from pathlib import Path
from typing import Final

import structlog

from reconciler.agent.mps.control import cannot_run
from reconciler.agent.mps.site import PIPES, MpsSite

PID_FILE: Final = "nvidia-cuda-mps-control.pid"  # the daemon writes it into its pipe directory

_log: Final = structlog.get_logger()


class Process:
    """A control daemon that runs, or did a moment ago. `close` lets go of it and leaves it running."""

    def __init__(self, pid: int, descriptor: int, *, child: bool = False) -> None:
        self.pid = pid
        self._descriptor, self._child = descriptor, child

    @classmethod
    def start(cls, site: MpsSite, board: str) -> "Process":
        """Start the daemon of a board, whose directories are there. Raises DriverError if it cannot be run."""
        command, output = site.command("-f"), str(site.output(board))
        try:
            pid = os.posix_spawnp(
                command[0],
                command,
                site.environment(board),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    # Appending, so that it can be cut short while the daemon writes.
                    (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigdef=[signal.SIGPIPE],  # which Python ignores
            )
        except OSError as error:
            raise cannot_run(site, error) from error
        started = cls(pid, os.pidfd_open(pid), child=True)
        if site.cgroup:
            _move(pid, site.cgroup)
        return started

    @classmethod
    def find(cls, site: MpsSite, board: str) -> "Process | None":
        """Return the daemon of a board that runs already; None if there is none.

        Everybody may write to the file that names it. So it is believed only of a process of our own user with that
        pipe directory, and the process is held while it is looked at: another may have the number by now.
        """
        try:
            pid = int((site.pipes(board) / PID_FILE).read_text(encoding="ascii"))
            found = cls(pid, os.pidfd_open(pid))
        except (OSError, ValueError, OverflowError):
            return None
        if _is_daemon(pid, site.pipes(board)) and not found.ended():
            return found
        found.close()
        return None

    def ended(self) -> bool:
        """Return whether it has ended."""
        return self.wait(0.0)

    def wait(self, seconds: float, bell: "Bell | None" = None) -> bool:
        """Wait until it ends, at most so long, or until the bell rings; return whether it has ended."""
        return self._descriptor in _readable(seconds, self._descriptor, *([bell.descriptor] if bell else ()))

    def end(self, patience_s: float) -> None:
        """Wait for it to end of itself, at most so long; then end it, and its servers with it."""
        if not self.wait(patience_s):
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._descriptor, number)
                if self.wait(1.0):
                    break

    def close(self) -> None:
        """Let go of it."""
        if self._child and self.ended():
            os.waitpid(self.pid, 0)
        os.close(self._descriptor)


class Bell:
    """Rung once, from any thread; who waits for a process hears it too."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0)

    def ring(self) -> None:
        """Wake who waits, now and ever after."""
        os.eventfd_write(self.descriptor, 1)

    def wait(self, seconds: float) -> bool:
        """Return whether it has been rung, or is within so many seconds."""
        return bool(_readable(seconds, self.descriptor))

    def close(self) -> None:
        """Let go of it: nobody may wait any more."""
        os.close(self.descriptor)


def _readable(seconds: float, *descriptors: int) -> set[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(max(0, round(1000 * seconds)))}


def _is_daemon(pid: int, pipes: Path) -> bool:
    directory = Path("/proc") / str(pid)
    try:
        mine = directory.stat().st_uid == os.geteuid()
        variables = (directory / "environ").read_bytes().split(b"\0")
        arguments = (directory / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return mine and f"{PIPES}={pipes}".encode() in variables and b"-f" in arguments


def _move(pid: int, cgroup: Path) -> None:
    """Move a process to a cgroup, which is made if it is not there. Where that fails it serves all the same, in ours."""
    try:
        cgroup.mkdir(exist_ok=True)
        # Not made if it is missing: then this is no cgroup, as where the kernel's first version of them is used.
        with (cgroup / "cgroup.procs").open("r+", encoding="ascii") as file:
            file.write(str(pid))
    except OSError as error:
        _log.error("mps_daemon_will_end_with_its_agent", pid=pid, cgroup=str(cgroup), error=str(error))
