"""Where sandboxes live on this machine: one directory each, held by a lock while it is used.

All of a user's lie in one directory of the system's temporary space. The process that looks after a sandbox holds the
lock of its directory, and the kernel frees it however that process ends: a directory that nobody holds is what a crash
left behind. What is static about a sandbox is in `config.json`, what changes in `state.json`.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from console.sandbox import marks
from console.sandbox.errors import SandboxError
from console.sandbox.locks import try_lock
from console.sandbox.nodes import NodeGroup

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sandbox is to be.

    Attributes:
        name: by which people address it.
        id: unique on this machine and for all time; every process of the sandbox bears it.
        binaries: paths of the control plane's programs by name.
        nodes: simulated nodes that it has from the beginning.
        services: which of our processes run on it (names of `services.ALL`); none: a bare control plane.
    """

    name: str
    id: str
    binaries: Mapping[str, str]
    nodes: tuple[NodeGroup, ...] = ()
    services: tuple[str, ...] = ()


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a sandbox.

    Attributes:
        pid: None while it has ended and waits to be started again.
        port: what it serves on 127.0.0.1, if anything.
        restarts: how often it had to be started again.
    """

    name: str
    pid: int | None = None
    port: int | None = None
    restarts: int = 0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox is now.

    Attributes:
        supervisor: process that looks after it.
        server: address of the API server.
        version: of Kubernetes, once ready.
        ports: all that it has taken, so that others do not.
        processes: in the order in which they were started.
        ready: whether it can be used.
        boot_s: seconds from the first process to readiness, once ready.
    """

    supervisor: int
    server: str = ""
    version: str = ""
    ports: tuple[int, ...] = ()
    processes: tuple[ProcessState, ...] = ()
    ready: bool = False
    boot_s: float | None = None


class Room:
    """The directory of a sandbox, claimed: while its lock is held, nobody else uses or removes it.

    Attributes:
        directory: where everything of the sandbox lies.
        lock: descriptor that holds the lock; a process that inherits it holds the lock too.
    """

    def __init__(self, directory: Path, lock: int) -> None:
        self.directory = directory
        self.lock = lock

    def write_config(self, config: Config) -> None:
        """Record what the sandbox is to be. Its id is thereby known before any of its processes runs."""
        (self.directory / "config.json").write_bytes(msgspec.json.encode(config))

    def write_state(self, state: State) -> None:
        """Record what the sandbox is now; readers see the old or the new one, never half."""
        partial = self.directory / "state.json.partial"
        partial.write_bytes(msgspec.json.encode(state))
        partial.replace(self.directory / "state.json")

    def wipe(self) -> None:
        """End every process of the sandbox that last had this room, and remove its files but not the room itself."""
        config = _read(self.directory / "config.json", Config)
        if config is not None:
            marks.kill_marked(config.id)
        for entry in self.directory.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def remove(self) -> None:
        """Remove the directory with everything in it, and the directory of sandboxes with the last one."""
        shutil.rmtree(self.directory)
        with suppress(OSError):
            self.directory.parent.rmdir()
        self.leave()

    def leave(self) -> None:
        """Let go of the lock; it is free once no other process has inherited it."""
        os.close(self.lock)


def root() -> Path:
    """Return this user's directory of sandboxes, made if it is missing.

    Raises SandboxError if somebody else made it: they could then read the credentials in it.
    """
    path = Path(tempfile.gettempdir()) / f"apportion-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SandboxError(f"{path}: not a directory of yours alone (mode 0700); remove it, or set TMPDIR")
    return path


def names() -> list[str]:
    """Return the names of the sandboxes that have a directory, running or left behind, in order."""
    return sorted(entry.name for entry in root().iterdir() if entry.is_dir())


def check_name(name: str) -> None:
    """Raise SandboxError unless a sandbox can be called so."""
    if not _NAME.fullmatch(name):
        raise SandboxError(f"name {name!r}: write at most 40 of a-z, 0-9 and - (not at either end)")


def claim(name: str) -> Room | None:
    """Return the directory of that name, made if it is missing; None if a running sandbox has it."""
    while True:
        directory = root() / name
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # The last one to leave removed it, or its parent, in between.
        if not try_lock(lock):
            os.close(lock)
            return None
        if _is_directory(directory, lock):
            return Room(directory, lock)
        os.close(lock)  # Locked, but removed in between: not the one that others would find.


def is_held(name: str) -> bool:
    """Return whether a process holds the room of that name; false if there is no such room."""
    try:
        descriptor = os.open(root() / name, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def read_config(name: str) -> Config | None:
    """Return what a sandbox was to be; None if there is none or its start ended before that was written."""
    return _read(root() / name / "config.json", Config)


def read_state(name: str) -> State | None:
    """Return what a sandbox last said of itself; None if there is none or it has not begun yet."""
    return _read(root() / name / "state.json", State)


def clean(name: str) -> bool:
    """End and remove what a crashed sandbox left; return whether there was any. A running one is left alone."""
    room = claim(name)
    if room is None:
        return False
    room.wipe()
    room.remove()
    return True


def taken_ports() -> set[int]:
    """Return the ports that sandboxes of this user have taken, whether or not they listen on them yet."""
    states = [read_state(name) for name in names()]
    return {port for state in states if state is not None for port in state.ports}


def _is_directory(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None  # A crash may leave a file half written; an older version may have written other fields.
