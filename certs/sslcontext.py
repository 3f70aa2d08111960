"""Serve TLS with the newest consistent certificate, without restarts.

`ServerContext.current()` gives the context for one new handshake. It is built anew only when the certificate's
content has changed: one context for many connections makes handshakes cheap and keeps TLS sessions resumable.
Content counts, not file times: mounted Secrets are swapped by symlink. A pair that does not fit together
(half-written, or a certificate without its key) is passed over until it does.
"""

import os
import ssl
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import structlog
from cryptography import x509

from certs.issue import KeyPair

_log = structlog.get_logger(__name__)


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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
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
