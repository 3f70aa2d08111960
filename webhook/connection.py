"""One connection, for as long as its peer may keep us waiting: handshake, request, goodbye. Nothing here blocks.

So a peer that dawdles costs a little memory and no thread: a thread gets requests that are there as a whole.
"""

import re
import ssl
from enum import Enum, auto
from socket import SHUT_WR, socket
from typing import Final

from webhook.endpoint import MOST_BYTES

_PIECE: Final = 64 * 1024  # bytes read at once
_TURN: Final = 512 * 1024  # bytes read from one peer before the others have their turn
_MOST_HEADERS: Final = 64 * 1024
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)


class Owes(Enum):
    """What a peer owes us."""

    HANDSHAKE = auto()
    NOTHING = auto()  # it is idle
    REQUEST = auto()  # the rest of it
    GOODBYE = auto()  # to read its last answer, and to hang up


class Memory:
    """How many bytes of requests all connections hold, those among them that are being answered."""

    held = 0


class Connection:
    """A peer and what has arrived from it. For one thread at a time.

    Attributes:
        sock: its socket, non-blocking outside of threads.
        client: its address.
        server: ours.
        owes: what it owes us.
        timeout: when we hang up, on the monotonic clock; set by who waits for it.
        since: since when it is waited for, on the same clock.
        served: whether it has had an answer.
        whole: whether the request that was measured last is answered after its whole body.
        held: bytes of its requests that are in memory.
    """

    def __init__(self, sock: socket, client: tuple[str, int], server: tuple[str, int], memory: Memory) -> None:
        self.sock: socket = sock
        self.client = client
        self.server = server
        self.owes = Owes.HANDSHAKE
        self.timeout = self.since = 0.0
        self.served = False
        self.whole = True
        self.held = 0
        self._memory = memory
        self._received = bytearray()
        self._looked = 0  # up to where there is no end of the headers
        self._needed: int | None = None  # bytes of the request that is arriving; None while that is not known
        sock.setblocking(False)  # noqa: FBT003 - the socket interface

    def wrap(self, context: ssl.SSLContext) -> None:
        """Begin the handshake, now that the peer has begun it. Raises OSError."""
        self.sock = context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)

    @property
    def wrapped(self) -> bool:
        """Return whether the handshake has begun."""
        return isinstance(self.sock, ssl.SSLSocket)

    def advance(self) -> bool:
        """Take what has arrived; return whether a request is there. Raises OSError if the peer is gone, or not wanted."""
        try:
            if self.owes is Owes.HANDSHAKE and isinstance(self.sock, ssl.SSLSocket):
                self.sock.do_handshake()
                self.owes = Owes.NOTHING
            self._read()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            pass  # later
        self._hold(len(self._received))
        if self._received:
            self.owes = Owes.REQUEST
        return self._is_there()

    def take(self) -> bytes:
        """Return the request that is there. Its bytes count as held until `done`."""
        request = bytes(self._received[: self._needed])
        del self._received[: self._needed]
        self._looked, self._needed, self.served = 0, None, True
        return request

    def done(self, *, stays: bool) -> None:
        """Go on after an answer: with the next request, or with the end, before which the answer has to arrive."""
        self.sock.setblocking(False)  # noqa: FBT003 - the socket interface
        if not stays:
            self._received.clear()
            self.sock.shutdown(SHUT_WR)
        self.owes = Owes.NOTHING if stays else Owes.GOODBYE
        self._hold(len(self._received))

    def close(self) -> None:
        """Close at once; harmless if closed already."""
        self._hold(0)
        self.sock.close()

    def _read(self) -> None:
        taken = 0
        while taken < _TURN or self._pending():  # what TLS has decrypted already wakes nobody later
            piece = self.sock.recv(_PIECE)
            if not piece:
                raise ConnectionResetError("the peer has hung up")
            taken += len(piece)
            if self.owes is not Owes.GOODBYE:
                self._received += piece

    def _pending(self) -> bool:
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def _is_there(self) -> bool:
        if self._needed is None:
            end = self._received.find(_END, max(0, self._looked - len(_END)))
            self._looked = len(self._received)
            if end < 0 and self._looked > _MOST_HEADERS:
                raise ConnectionResetError("its headers have no end")
            if end >= 0:
                self._needed, self.whole = _measure(bytes(self._received[: end + len(_END)]))
        return self._needed is not None and len(self._received) >= self._needed

    def _hold(self, size: int) -> None:
        self._memory.held += size - self.held
        self.held = size


def _measure(head: bytes) -> tuple[int, bool]:
    """Return how many bytes a request has that can be answered, and whether that is all of it.

    A body in chunks or beyond the limit is refused unread, so its headers are enough.
    """
    length = _LENGTH.search(head)
    size = int(length[1]) if length else 0
    whole = size <= MOST_BYTES and not _CHUNKED.search(head)
    return len(head) + (size if whole else 0), whole
