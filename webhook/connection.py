"""One connection, for as long as its peer may keep us waiting: handshake, request, goodbye. Nothing here blocks.

So a peer that dawdles costs a little memory and no thread: a thread gets requests that are there as a whole.
"""

import re
import ssl
from collections import deque
from enum import Enum, auto
from socket import SHUT_WR
from typing import Final

from webhook.endpoint import MOST_BYTES

_RECORD: Final = 16 * 1024  # bytes: TLS has no more in one record, so a read leaves nothing decrypted behind
_TURN: Final = 32  # records read from one peer before the others have their turn
_MOST_HEADERS: Final = 16 * 1024  # bytes; the API server sends less than one thousand
_END: Final = b"\r\n\r\n"
_FRAMING: Final = re.compile(rb"\r\n(content-length|transfer-encoding):([^\r]*)", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"[ \t]*([0-9]{1,9})[ \t]*")


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

    def __init__(self, sock: ssl.SSLSocket, client: tuple[str, int], server: tuple[str, int], memory: Memory) -> None:
        self.sock = sock
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
        self._head = 0  # bytes of the headers of the request that is arriving
        self._needed: int | None = None  # bytes of all of it; None while that is not known
        sock.setblocking(False)  # noqa: FBT003 - the socket interface

    def advance(self) -> bool:
        """Take what has arrived; return whether a request is there. Raises OSError if the peer is gone, or not wanted."""
        try:
            if self.owes is Owes.HANDSHAKE:
                self.sock.do_handshake()
                self.owes = Owes.NOTHING
            for _ in range(_TURN):
                if self._is_there():
                    break
                self._read()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            pass  # the rest comes later
        self._hold(len(self._received))
        if self._received:
            self.owes = Owes.REQUEST
        return self._is_there()

    def take(self) -> tuple[bytes, bytes]:
        """Return headers and body of the request that is there. Its bytes count as held until `done`."""
        with memoryview(self._received) as received:
            head, body = bytes(received[: self._head]), bytes(received[self._head : self._needed])
        del self._received[: self._needed]
        self._needed, self.served = None, True
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
        self._received.clear()
        self._hold(0)
        self.sock.close()

    def _read(self) -> None:
        record = self.sock.recv(_RECORD)
        if not record:
            raise ConnectionResetError("the peer has hung up")
        if self.owes is not Owes.GOODBYE:
            self._received += record

    def _is_there(self) -> bool:
        if self._needed is None and (end := self._received.find(_END)) >= 0:
            self._head = end + len(_END)
            size, self.whole = _measure(bytes(self._received[: self._head]))
            self._needed = self._head + size
        elif self._needed is None and len(self._received) > _MOST_HEADERS:
            raise ConnectionResetError("its headers have no end")
        return self._needed is not None and len(self._received) >= self._needed

    def _hold(self, size: int) -> None:
        self._memory.held += size - self.held
        self.held = size


def _measure(head: bytes) -> tuple[int, bool]:
    """Return how many bytes of its body a request is answered after, and whether that is all of it.

    A body in chunks, beyond the limit, or of a length that is not told plainly is refused unread.
    """
    told = _FRAMING.findall(head)
    if not told:
        return 0, True
    (name, value), *others = told
    length = _LENGTH.fullmatch(value) if not others and name.lower() == b"content-length" else None
    return (int(length[1]), True) if length and int(length[1]) <= MOST_BYTES else (0, False)
