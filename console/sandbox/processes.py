"""One process of a sandbox: started so that it cannot outlive its parent, ended together with all that it started."""

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_TAIL_BYTES: Final = 2000


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is started.

    Attributes:
        name: unique in the sandbox; its log is called so.
        arguments: program and arguments.
        port: what it serves on 127.0.0.1, if anything.
        environment: added to that of all processes.
        ready: whether it serves now; asked again and again while the sandbox starts, so it answers at once.
        grace_s: seconds that it gets to end by itself before it is killed.
    """

    name: str
    arguments: tuple[str, ...]
    port: int | None = None
    environment: Mapping[str, str] = {}
    ready: Callable[[], bool] = lambda: True
    grace_s: float = 3.0


class Process:
    """A running command, in a process group of its own, its output in `<logs>/<name>.log`.

    The kernel kills it when the thread that started it ends, however that ends (PR_SET_PDEATHSIG): start it from a
    thread that lives as long as the sandbox.
    """

    def __init__(self, command: Command, *, directory: Path, logs: Path, environment: Mapping[str, str]) -> None:
        self.command = command
        self.log = logs / f"{command.name}.log"
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                command.arguments,
                cwd=directory,
                env={**environment, **command.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # A Ctrl-C in the terminal is for whoever started the sandbox.
                preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 - the supervisor has one thread
            )

    @property
    def pid(self) -> int:
        """Process id, which is also that of its group."""
        return self._child.pid

    def has_ended(self) -> bool:
        """Return whether it has ended. Its id stays taken until `clear`, so that its group can still be signalled."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to all that it started."""
        os.killpg(self.pid, number)

    def clear(self) -> int:
        """Kill what is left of its group, wait for its end and return its exit status, negative for a signal."""
        self.signal(signal.SIGKILL)
        return self._child.wait()

    def last_words(self) -> str:
        """Return the end of its log, for a message about its failure."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace").strip()


def end(processes: Sequence[Process]) -> None:
    """End processes together: ask each, wait for the grace of the most patient at most, then kill those that are left."""
    began = time.monotonic()
    for process in processes:
        process.signal(signal.SIGTERM)
    for process in sorted(processes, key=lambda process: process.command.grace_s):
        _wait(process, began + process.command.grace_s - time.monotonic())
        process.clear()


def _wait(process: Process, timeout_s: float) -> None:
    """Wait until a child has ended, for at most so long; the child is not reaped."""
    descriptor = os.pidfd_open(process.pid)
    try:
        select.select([descriptor], [], [], max(0.0, timeout_s))
    finally:
        os.close(descriptor)


class _die_with:  # noqa: N801 - used as a function
    """Between fork and exec: have the kernel kill this process when its parent ends, which may just have happened."""

    def __init__(self, parent: int) -> None:
        self._parent = parent

    def __call__(self) -> None:
        if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != self._parent:
            os._exit(127)
