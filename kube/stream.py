"""What comes back over a connection: a whole body in time, a watch line by line, or Unreachable if it breaks."""

import contextlib
import ssl
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, ReadTimeoutError
from urllib3.exceptions import SSLError as TLSError

from kube.errors import TimedOut, Unreachable

CHUNK: Final = 1 << 16


class Stream:
    """An open watch: iterate over its lines, each as soon as it arrives; use as a context manager.

    Ends when the server ends it, dropping a last line that was cut short. Raises Unreachable if it breaks, TimedOut if
    it is silent for longer than the read timeout.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._response.close()
        self._response.release_conn()

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        while chunk := self._next():
            head, newline, tail = chunk.rpartition(b"\n")
            if not newline:
                rest += chunk
                continue
            yield from (line for line in (rest + head).split(b"\n") if line)
            rest = tail

    def _next(self) -> bytes:
        try:
            with unreachable_if_broken():
                chunk = self._response.read1(CHUNK)  # what is there, without waiting for more
        except (Unreachable, ValueError):  # ValueError: the socket was shut between two reads
            if self._interrupted:
                return b""
            raise
        return b"" if self._interrupted else chunk  # a socket of TLS that was shut hands out what is still encrypted

    def interrupt(self) -> None:
        """End the iteration of another thread, which may be waiting for a line."""
        self._interrupted = True
        with contextlib.suppress(RuntimeError, ValueError, OSError):  # it has ended already
            self._response.shutdown()


def read_all(response: urllib3.BaseHTTPResponse, path: str, deadline: float) -> bytes:
    """Return the body of an answer. Raises TimedOut if it has not ended by `deadline`, in seconds of the monotonic clock."""
    chunks = []
    with unreachable_if_broken():
        while chunk := response.read1(CHUNK):
            chunks.append(chunk)
            if time.monotonic() > deadline:
                response.close()
                raise TimedOut(f"{path}: the answer did not end in time")
    return b"".join(chunks)


@contextlib.contextmanager
def unreachable_if_broken() -> Iterator[None]:
    """Raise Unreachable, or TimedOut, for what the library raises when there is no answer."""
    try:
        yield
    except (HTTPError, OSError) as error:
        kind = TimedOut if isinstance(error, ReadTimeoutError) else Unreachable
        never_sent = isinstance(error, ConnectTimeoutError) or _is_untrusted(error)
        raise kind(f"{type(error).__name__}: {error}", maybe_done=not never_sent) from error


def _is_untrusted(error: Exception) -> bool:
    """Tell whether the server's certificate was refused: the handshake ends before a request is sent."""
    return isinstance(error, TLSError) and any(isinstance(cause, ssl.SSLCertVerificationError) for cause in error.args)
