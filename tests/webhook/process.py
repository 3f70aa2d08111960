"""A webhook server as a process of its own (`serving.py`), and clients of it."""

import datetime as dt
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from certs.issue import KeyPair, issue_leaf
from tests.apiserver.server import PATIENCE_S

HOST = "127.0.0.1"
BODY = b'{"request":{}}'


class Process:
    """A server process on a port of its own, and clients of it."""

    def __init__(self, directory: Path, authority: KeyPair, drain_s: float, certificate: bool) -> None:
        self.directory, self.authority = directory, authority
        self.log = directory / "log"
        self.connections: list[http.client.HTTPSConnection] = []
        if certificate:
            self.mount()
        # The socket is made here, so connections queue until the server takes them: nothing to poll for.
        with socket.create_server((HOST, 0), backlog=512) as listener:
            self.address = listener.getsockname()
            program = [sys.executable, Path(__file__).with_name("serving.py")]
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(
                    [*program, str(listener.fileno()), directory, str(drain_s)],
                    pass_fds=[listener.fileno()],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # so that its worker ends with it, whatever a test does
                )

    def mount(self) -> str:
        """Put a new certificate in place, as cert-manager and the kubelet would; return its PEM."""
        pair = issue_leaf(self.authority, [HOST], dt.datetime.now(dt.UTC))
        for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
            (self.directory / "new").write_bytes(content)
            (self.directory / "new").replace(self.directory / name)
        return pair.certificate.decode()

    def connect(self, timeout_s: float = PATIENCE_S) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        connection = http.client.HTTPSConnection(*self.address, timeout=timeout_s, context=context)
        self.connections.append(connection)
        return connection

    def stop(self) -> None:
        for connection in self.connections:
            connection.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process.stdout.close()


@contextmanager
def serving(directory, authority, drain_s=0.0, certificate=True) -> Iterator[Process]:
    process = Process(directory, authority, drain_s, certificate)
    try:
        yield process
    finally:
        process.stop()


def ask(connection, method="POST", path="/mutate", body=BODY):
    """Make one request and return its status and body."""
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def seconds(action):
    started = time.monotonic()
    action()
    return time.monotonic() - started


@contextmanager
def stuck_peers(address, silent, half):
    """Hold so many connections that never say a word, and so many that stop in the middle of a handshake."""
    with ExitStack() as stack:
        for count, first_words in ((silent, b""), (half, b"\x16\x03\x01\x02\x00\x01")):
            for _ in range(count):
                peer = stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
                peer.sendall(first_words)
        yield
