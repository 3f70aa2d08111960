"""The few calls that the sandbox itself makes to a component: is it ready, and create this object.

On the standard library alone: the process that looks after a sandbox stays small and starts at once. Everything that
reads or watches the cluster uses `kube/`.
"""

import http.client
import ssl
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

_TIMEOUT_S: Final = 5.0


class Refused(Exception):  # noqa: N818 - what the server did, in one word
    """The server answered, but not with success. The message has its status and the beginning of its answer."""


class ApiClient:
    """One connection to a component on 127.0.0.1, opened when it is needed and kept until closed or left.

    Not for several threads.
    """

    def __init__(self, port: int, ca: Path, token: str) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_S, context=context)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def get(self, path: str) -> bytes:
        """Return the body of an answer. Raises Refused, or OSError if the server cannot be reached."""
        return self._ask("GET", path, None)

    def create(self, path: str, body: object) -> bytes:
        """Create an object in the collection at `path` and return it. Raises as `get`."""
        return self._ask("POST", path, msgspec.json.encode(body))

    def answers(self, path: str) -> bool:
        """Return whether `path` is answered with success now: false while the server starts or says not yet."""
        try:
            self._ask("GET", path, None)
        except (OSError, Refused):
            return False
        return True

    def close(self) -> None:
        """Close the connection; the next call opens one."""
        self._connection.close()

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        try:
            self._connection.request(method, path, body, self._headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        if answer.status >= http.client.BAD_REQUEST:
            raise Refused(f"{method} {path}: HTTP {answer.status}: {content[:256].decode(errors='replace')}")
        return content


def loopback_answers(port: int, path: str) -> bool:
    """Return whether a plain HTTP server on 127.0.0.1 answers `path` with success now."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < http.client.BAD_REQUEST
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
