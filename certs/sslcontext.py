"""Serve TLS with the newest consistent certificate, without restarts and without waiting for slow peers.

`ServerContext.current()` gives the context for one new handshake. It is built anew only when the certificate's
content has changed: one context for many connections makes handshakes cheap and keeps TLS sessions resumable.
Content counts, not file times: mounted Secrets are swapped by symlink. A pair that does not fit together
(half-written, or a certificate without its key) is passed over until it does.
"""

import errno
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from certs.issue import KeyPair

# A peer on a cluster's network needs milliseconds. Whoever needs longer must not hold a thread.
HANDSHAKE_TIMEOUT_S: Final = 2.0
# timeoutSeconds of our webhook configurations: after that the API server has given up on the call.
REQUEST_TIMEOUT_S: Final = 5.0

_log = structlog.get_logger(__name__)


class TimedSocket(ssl.SSLSocket):
    """A server's TLS socket on which each request must arrive within a deadline.

    gunicorn makes the socket blocking when it starts to read a request (and non-blocking while it waits for
    one); from there the deadline runs, however slowly the bytes drip. A peer that exceeds it is treated like
    one that has hung up.
    """

    _deadline = 0.0  # on the monotonic clock; set before the first read

    def setblocking(self, flag: bool) -> None:
        """Start the deadline of a request, or (`False`) make the socket non-blocking."""
        self._deadline = time.monotonic() + REQUEST_TIMEOUT_S
        self.settimeout(REQUEST_TIMEOUT_S if flag else 0.0)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Return at most so many bytes; raises ConnectionResetError when the deadline has passed."""
        if timeout := self.gettimeout():
            self.settimeout(min(timeout, max(self._deadline - time.monotonic(), 0.001)))
        try:
            return super().recv(buflen, flags)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "the request did not arrive in time") from None


class TimedContext(ssl.SSLContext):
    """A server context whose handshakes end within `HANDSHAKE_TIMEOUT_S`, one way or the other."""

    sslsocket_class = TimedSocket

    def wrap_socket(  # noqa: PLR0917 - the parent's signature
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """Return the socket after its handshake; raises ConnectionResetError if that took too long."""
        sock.settimeout(HANDSHAKE_TIMEOUT_S)
        try:
            wrapped = super().wrap_socket(
                sock,
                server_side=server_side,
                do_handshake_on_connect=do_handshake_on_connect,
                suppress_ragged_eofs=suppress_ragged_eofs,
                server_hostname=server_hostname,
                session=session,
            )
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "the handshake did not end in time") from None
        wrapped.setblocking(True)  # noqa: FBT003 - the socket interface: the deadline of the first request
        return wrapped


class ServerContext:
    """The TLS context for new handshakes, following a source of certificates. Thread-safe."""

    def __init__(self, read: Callable[[], KeyPair | None]) -> None:
        """Follow `read`, which returns the newest pair or None; it is called for every new connection."""
        self._read = read
        self._lock = threading.Lock()
        self._seen: KeyPair | None = None  # the pair looked at last, good or bad
        self._context: ssl.SSLContext | None = None
        self._expires_at: float | None = None

    def current(self) -> ssl.SSLContext | None:
        """Return the context of the newest pair that fits together; None until there has been one."""
        pair = self._read()
        with self._lock:
            if pair is not None and pair != self._seen:
                self._seen = pair
                self._adopt(pair)
            return self._context

    def expires_at(self) -> float | None:
        """Return when the served certificate expires, in seconds since the epoch; None without one."""
        return self._expires_at

    def _adopt(self, pair: KeyPair) -> None:
        try:
            context = build_context(pair)
            certificate = x509.load_pem_x509_certificate(pair.certificate)
        except (ssl.SSLError, ValueError) as error:
            _log.warning("certificate_ignored", error=str(error), serving=self._context is not None)
            return
        self._context = context
        self._expires_at = certificate.not_valid_after_utc.timestamp()
        _log.info("certificate_served", serial=f"{certificate.serial_number:x}", not_after=self._expires_at)


def build_context(pair: KeyPair) -> ssl.SSLContext:
    """Return a server context for a pair. Raises ssl.SSLError if the two do not fit or cannot be read."""
    context = TimedContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could make the server repeat its costly half
    # The ssl module reads keys from files only: a directory of our own (mode 0700), in memory where there is
    # such a place, for as long as the call takes.
    memory = "/dev/shm"  # noqa: S108 - the directory made in it has a random name and is ours alone
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        both = Path(directory, "pair.pem")
        both.write_bytes(pair.certificate + b"\n" + pair.key)
        context.load_cert_chain(both)
    return context


def handshake_fault(context: ssl.SSLContext, bundle: bytes, host: str) -> str | None:
    """Return why a client that trusts only this bundle would refuse to talk to the host; None if it would not.

    A whole handshake, in memory: it finds what comparing certificates would miss.
    """
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client_context.load_verify_locations(cadata=bundle.decode("ascii"))
        client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
        server = context.wrap_bio(to_server, to_client, server_side=True)
        # The client speaks first and last; one more round lets it read the server's end.
        return None if [_advance(side) for side in (client, server, client, server)][-1] else "it did not end"
    except (ssl.SSLError, ValueError) as error:
        return str(error)


def _advance(side: ssl.SSLObject) -> bool:
    """Take a handshake as far as the bytes at hand allow; return whether it has ended."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
