"""One connection, for as long as its peer may keep us waiting: handshake, request, goodbye. Nothing here blocks.

So a peer that dawdles costs a little memory and no thread: a thread gets requests that are there as a whole.
"""

import re
import ssl
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from socket import SHUT_WR, socket
from typing import Final

from webhook.endpoint import MOST_BYTES

_PIECE: Final = 16 * 1024  # bytes read at once: TLS has no more in one record
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
        wake: what the loop calls when something has arrived.
        queue: where it waits; None while a thread has it.
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
        self.wake: Callable[[socket], None] | None = None
        self.queue: deque[Connection] | None = None
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
        self._head = 0  # bytes of the headers of the request that is arriving
        self._needed: int | None = None  # bytes of all of it; None while that is not known
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
            there = self._read()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            there = self._is_there()  # the rest comes later
        self._hold(len(self._received))
        if self._received:
            self.owes = Owes.REQUEST
        return there

    def take(self) -> tuple[bytes, bytes]:
        """Return headers and body of the request that is there. Its bytes count as held until `done`."""
        with memoryview(self._received) as received:
            head, body = bytes(received[: self._head]), bytes(received[self._head : self._needed])
        del self._received[: self._needed]
        self._looked, self._needed, self.served = 0, None, True
        return head, body

    def done(self, *, stays: bool) -> None:
        """Go on after an answer: with the next request, or with the end, before which the answer has to arrive."""
        self.sock.setblocking(False)  # noqa: FBT003 - the socket interface
        if not stays:
            self._received.clear()
            self.sock.shutdown(SHUT_WR)
        self.owes = Owes.NOTHING if stays else Owes.GOODBYE
        self._hold(len(self._received))

    def close(self) -> None:
        """Close at once and let go of everything; harmless if closed already."""
        self.wake = None  # it holds us
        self._received.clear()
        self._hold(0)
        self.sock.close()

    def _read(self) -> bool:
        """Read until a request is there or it is the others' turn; return whether one is there."""
        taken, there = 0, False
        while (not there and taken < _TURN) or self._pending():  # what TLS has decrypted already wakes nobody later
            piece = self.sock.recv(_PIECE)
            if not piece:
                raise ConnectionResetError("the peer has hung up")
            taken += len(piece)
            if self.owes is not Owes.GOODBYE:
                self._received += piece
                there = self._is_there()
        return there

    def _pending(self) -> bool:
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def _is_there(self) -> bool:
        if self._needed is None:
            end = self._received.find(_END, max(0, self._looked - len(_END)))
            self._looked = len(self._received)
            if end < 0 and self._looked > _MOST_HEADERS:
                raise ConnectionResetError("its headers have no end")
            if end >= 0:
                self._head = end + len(_END)
                size, self.whole = _measure(bytes(self._received[: self._head]))
                self._needed = self._head + size
        return self._needed is not None and len(self._received) >= self._needed

    def _hold(self, size: int) -> None:
        self._memory.held += size - self.held
        self.held = size


def _measure(head: bytes) -> tuple[int, bool]:
    """Return how many bytes of its body a request is answered after, and whether that is all of it.

    A body in chunks or beyond the limit is refused unread.
    """
    length = _LENGTH.search(head)
    size = int(length[1]) if length else 0
    whole = size <= MOST_BYTES and not _CHUNKED.search(head)
    return size if whole else 0, whole
