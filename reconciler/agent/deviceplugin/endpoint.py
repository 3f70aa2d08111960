"""A device plugin on its socket, in the kubelet's directory: served, registered, and whether it still is."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final

import grpc

from reconciler.agent.deviceplugin.plugin import OPTIONS, DevicePlugin
from reconciler.agent.kubelet import KubeletError
from reconciler.agent.proto import deviceplugin_pb2 as pb
from reconciler.agent.proto.deviceplugin_pb2_grpc import RegistrationStub, add_DevicePluginServicer_to_server

KUBELET_SOCKET: Final = "kubelet.sock"
VERSION: Final = "v1beta1"
ANSWER_S: Final = 5.0  # the kubelet calls back before it answers
STOP_S: Final = 5.0
THREADS: Final = 4  # one listens for the kubelet as long as it is connected; they are made when they are needed
LONGEST_NAME: Final = (
    48  # of the file: with its directories it may have 107 characters, and their names differ among nodes
)

_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

File = tuple[int, int]
"""What tells a file from another one of the same name: inode, and time of its making, as inodes are used again."""


def file_at(path: Path) -> File | None:
    """Return which file is at a path; None if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


class RefusedError(Exception):
    """The kubelet does not take this resource; the message says why."""


class Endpoint:
    """One plugin; used by one thread at a time.

    Args:
        directory: where the kubelet's socket is.
        plugin: what answers.
    """

    def __init__(self, directory: Path, plugin: DevicePlugin) -> None:
        self.plugin = plugin
        self._path = directory / socket_name(plugin.resource)
        self._times = count()
        self._kubelet_path = directory / KUBELET_SOCKET
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._file: File | None = None  # our socket
        self._kubelet: File | None = None  # the socket of the kubelet that knows us

    def up(self, kubelet: File) -> bool:
        """Return whether it is served, and registered with the kubelet of this socket, which has not hung up."""
        return kubelet == self._kubelet and self._file is not None and file_at(self._path) == self._file

    def open(self, kubelet: File) -> None:
        """Serve, in place of whatever is on the socket, then register: the kubelet calls at once.

        Raises KubeletError if it does not answer, RefusedError if it does not take this resource.
        """
        self.close()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=self.plugin.resource)
        self._server = grpc.server(self._pool)
        add_DevicePluginServicer_to_server(self.plugin, self._server)
        # A server removes the file that it has made when it is gone at last, which may be after the next one was made.
        made = self._path.with_suffix(f".{next(self._times)}")
        try:
            self._server.add_insecure_port(f"unix:{made}")
            self._server.start()
            made.replace(self._path)
        except (OSError, RuntimeError) as error:
            raise KubeletError(f"no device plugin can be served on {self._path}: {error}") from error
        self._file, self._kubelet = file_at(self._path), kubelet  # before the kubelet can hang up again
        try:
            self._register()
        except (KubeletError, RefusedError):
            self.drop()
            raise

    def drop(self) -> None:
        """Count on the kubelet no longer: it has hung up. Any thread may call."""
        self._kubelet = None

    def close(self) -> None:
        """Hang up and remove the socket."""
        if self._file is not None and file_at(self._path) == self._file:
            self._path.unlink(missing_ok=True)
        self._kubelet = self._file = None
        self.plugin.forget()
        if self._server:
            self._server.stop(grace=None).wait(STOP_S)
            self._server = None
        if self._pool:
            self._pool.shutdown(wait=False)  # an answer may still wait for the driver
            self._pool = None

    def _register(self) -> None:
        request = pb.RegisterRequest(
            version=VERSION, endpoint=self._path.name, resource_name=self.plugin.resource, options=OPTIONS
        )
        with grpc.insecure_channel(f"unix:{self._kubelet_path}") as channel:
            try:
                RegistrationStub(channel).Register(request, timeout=ANSWER_S)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self.plugin.listened_to:
                    return  # it is slow to answer, but knows us
                why = f"the kubelet does not register {self.plugin.resource}: {error.code().name}: {error.details()}"
                raise (KubeletError if error.code() in _AWAY else RefusedError)(why) from error


def socket_name(resource: str) -> str:
    """Return the name of a resource's socket, the same each time: the resource's own, as far as the path of a socket bears it."""
    name = f"apportion-{resource.replace('/', '_')}"
    if len(name) > LONGEST_NAME - len(".sock"):
        name = f"{name[:32]}-{hashlib.sha256(resource.encode()).hexdigest()[:8]}"
    return f"{name}.sock"
