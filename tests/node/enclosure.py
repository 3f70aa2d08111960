"""A part of this machine in which a node's programs run as root and leave nothing behind.

Processes in it share the machine's network and files, but have process ids, mounts and cgroups of their own (see
`inside`). When it is left, or when this process ends in any way, the kernel ends all of them, however they were
started, and their mounts go with them; the cgroups are removed after that, by the next one if need be.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from console.sandbox.locks import exclusive
from tests.node import cgroups

# linux/sched.h
_NEWNS: Final = 0x00020000
_NEWCGROUP: Final = 0x02000000
_NEWPID: Final = 0x20000000

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_INSIDE: Final = Path(__file__).with_name("inside.py")
_END_S: Final = 30.0


class Impossible(Exception):  # noqa: N818 - what it is, in one word
    """This machine does not let us have an enclosure; the message says what it lacks."""


class Process:
    """A process of the enclosure, in a group of its own.

    Attributes:
        log: file with its output.
    """

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child = child
        self.log = log

    @property
    def pid(self) -> int:
        """Its id, as seen from outside."""
        return self._child.pid

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return self._child.poll() is not None

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to its group and return its exit status once it has ended. Raises TimeoutExpired."""
        if not self.has_ended():
            os.killpg(self.pid, number)
        return self._child.wait(_END_S)

    def ends_within(self, timeout_s: float) -> bool:
        """Return as soon as it has ended, true, or after so many seconds, false."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout_s)
        return self.has_ended()


class Enclosure:
    """An open enclosure.

    Attributes:
        directory: for files of its processes, their logs among them; seen alike from inside and outside.
    """

    def __init__(self, directory: Path, init: int, started: list[Process]) -> None:
        self.directory = directory
        self._init = init
        self._started = started

    def start(self, name: str, *arguments: str | Path, environment: Mapping[str, str]) -> Process:
        """Start a program inside, with this environment only; its output is appended to `<directory>/<name>.log`."""
        log = self.directory / f"{name}.log"
        with log.open("ab") as output, _children_in(self._namespace("pid_for_children")):
            child = subprocess.Popen(
                [str(argument) for argument in arguments],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=self._enter,  # noqa: PLW1509 - no locks are taken between fork and exec
            )
        process = Process(child, log)
        self._started.append(process)
        return process

    def run(self, *arguments: str | Path, environment: Mapping[str, str], timeout_s: float = 60) -> str:
        """Run a program inside and return its output. Raises RuntimeError, with its output, if it fails."""
        name = Path(arguments[0]).name
        process = self.start(name, *arguments, environment=environment)
        if not process.ends_within(timeout_s):
            process.end(signal.SIGKILL)
        status = process.end()
        said = process.log.read_text(errors="replace")
        process.log.unlink()
        if status:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: status {status}: {said}")
        return said

    def path(self, inside: str) -> Path:
        """Return where a file of the enclosure is seen from outside."""
        return Path(f"/proc/{self._init}/root{inside}")

    def _namespace(self, kind: str) -> Path:
        return Path(f"/proc/{self._init}/ns/{kind}")

    def _enter(self) -> None:
        cgroups.enter_leaf()
        with ExitStack() as opened:
            for kind, flag in (("cgroup", _NEWCGROUP), ("mnt", _NEWNS)):
                namespace = opened.enter_context(self._namespace(kind).open("rb"))
                _check(_LIBC.setns(namespace.fileno(), flag), "setns")


@contextmanager
def enclosed(directory: Path) -> Iterator[Enclosure]:
    """Open an enclosure for the block, with an empty directory for its files.

    A machine has one at a time, since their cgroups have one name: another one is waited for. Raises Impossible.
    """
    if os.geteuid() != 0:
        raise Impossible("only root can run a kubelet and containers")
    if not cgroups.ours():
        raise Impossible("no cgroups are mounted")
    with exclusive(cgroups.root()), ExitStack() as stack:
        try:
            stack.enter_context(cgroups.made())
        except OSError as error:
            raise Impossible(f"cgroups cannot be made: {error}") from error
        started: list[Process] = []
        init = stack.enter_context(_running(directory, started))
        yield Enclosure(directory, init.pid, started)


@contextmanager
def _running(directory: Path, started: Iterable[Process]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the first process during the block; the kernel has ended all others when the block has been left."""
    scratch, log = directory / "scratch", directory / "inside.log"
    scratch.mkdir()
    try:
        with log.open("wb") as output, _children_in(None):
            init = subprocess.Popen(
                [sys.executable, "-P", str(_INSIDE), str(scratch)],
                stdin=subprocess.PIPE,  # Its other end closes when this process ends, however that ends.
                stdout=subprocess.PIPE,
                stderr=output,
                process_group=0,  # A Ctrl-C in the terminal is for us, who end it in order.
                preexec_fn=_separate,  # noqa: PLW1509 - no locks are taken between fork and exec
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise Impossible(f"namespaces cannot be made: {error}") from error
    with init:
        try:
            if init.stdout is None or init.stdout.readline() != b"ready\n":
                raise Impossible(f"mounts of its own cannot be made: {log.read_text().strip()}")
            yield init
        finally:
            init.kill()
            for process in started:  # Its end waits until all others have been waited for.
                process.end(signal.SIGKILL)


@contextmanager
def _children_in(namespace: Path | None) -> Iterator[None]:
    """Let children of this thread be in a pid namespace, a new one if None; there must be no new threads meanwhile."""
    with Path("/proc/self/ns/pid").open("rb") as ours:
        if namespace is None:
            _check(_LIBC.unshare(_NEWPID), "unshare")
        else:
            with namespace.open("rb") as theirs:
                _check(_LIBC.setns(theirs.fileno(), _NEWPID), "setns")
        try:
            yield
        finally:
            _check(_LIBC.setns(ours.fileno(), _NEWPID), "setns")


def _separate() -> None:
    """Between fork and exec: begin a view of mounts and cgroups; what is below our cgroups is all that is seen of them."""
    cgroups.enter()
    _check(_LIBC.unshare(_NEWNS | _NEWCGROUP), "unshare")
    cgroups.enter_leaf()


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
