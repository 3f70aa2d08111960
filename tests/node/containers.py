"""The containers of a pod on this machine, and what their processes were given, by the kernel: their word is not needed."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from console.sandbox.lifecycle import Sandbox
from tests.node.image import PROGRAM
from tests.sandbox.waiting import eventually

_COMMAND: Final = f"{PROGRAM}\0".encode()


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A running container with one process.

    Attributes:
        id: of containerd; another one after a restart.
        restarts: how often the kubelet has started it again.
        pid: of its process.
    """

    id: str
    restarts: int
    pid: int

    @property
    def environment(self) -> dict[str, str]:
        """With which it was started."""
        entries = Path(f"/proc/{self.pid}/environ").read_bytes().decode().split("\0")
        return dict(entry.split("=", 1) for entry in entries if entry)

    @property
    def uid(self) -> int:
        """Its effective user."""
        return Path(f"/proc/{self.pid}").stat().st_uid

    @property
    def mounts(self) -> set[str]:
        """Where something is mounted in it."""
        lines = Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()
        return {line.split()[4] for line in lines}

    @property
    def ipc(self) -> str:
        """Its IPC namespace."""
        return str(Path(f"/proc/{self.pid}/ns/ipc").readlink())

    def kill(self) -> None:
        """Kill its process and wait for its end; the kubelet starts the container again."""
        descriptor = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)

    def path(self, inside: str) -> Path:
        """Return where a file that it sees is seen from outside."""
        return Path(f"/proc/{self.pid}/root{inside}")


class _ContainerStatus(msgspec.Struct, rename={"id": "containerID", "restarts": "restartCount"}):
    id: str = ""
    restarts: int = 0


class _PodStatus(msgspec.Struct, rename="camel"):
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _Pod(msgspec.Struct):
    status: _PodStatus


def container_of(sandbox: Sandbox, namespace: str, name: str) -> Container:
    """Return the container of a pod that has one and is running.

    It is waited for: what has been started is for some milliseconds still runc, with an environment of its own, and what
    has ended is still in the status.
    """
    found: list[Container] = []

    def runs() -> bool:
        with sandbox.client() as client:
            pod = msgspec.json.decode(client.get(f"/api/v1/namespaces/{namespace}/pods/{name}"), type=_Pod)
        found[:] = [
            Container(id=status.id, restarts=status.restarts, pid=pid)
            for status in pod.status.container_statuses
            for pid in _processes(status.id.rpartition("/")[2])
        ]
        return bool(found)

    eventually(runs, f"{PROGRAM} runs in {namespace}/{name}")
    (container,) = found
    return container


def _processes(container: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # It has ended.
                if container in (entry / "cgroup").read_text() and (entry / "cmdline").read_bytes() == _COMMAND:
                    yield int(entry.name)
