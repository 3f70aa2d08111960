"""What probes and Prometheus ask of a process: /healthz, /readyz and /metrics over plain HTTP."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

STUCK_S: Final = 60.0  # a cycle takes milliseconds; one that lasts this long will not end


class Pulse:
    """Tells whether a loop still turns: one that holds the lease without working must be ended from outside."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, stuck_s: float = STUCK_S) -> None:
        self._clock, self._stuck_s = clock, stuck_s
        self._last: float | None = None

    def beat(self) -> None:
        """Note that the loop turns."""
        self._last = self._clock()

    def rest(self) -> None:
        """Note that there is no loop that should turn."""
        self._last = None

    def alive(self) -> bool:
        """Return whether the loop, if there should be one, has turned lately."""
        return self.still_s() < self._stuck_s

    def still_s(self) -> float:
        """Return for how long the loop, if there should be one, has not turned, in seconds."""
        last = self._last
        return 0.0 if last is None else self._clock() - last


@contextlib.contextmanager
def serve(port: int, alive: Callable[[], bool], ready: Callable[[], bool] | None = None) -> Iterator[int]:
    """Answer on this port (0: any free one) of all addresses until the context ends; yield the port.

    /healthz is 200 while `alive` says so, else 503; /readyz goes by `ready`, if it is given. Raises OSError if the port
    is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0  # a client that says nothing holds a thread no longer

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(), CONTENT_TYPE_LATEST)
            elif path == "/readyz" and ready is not None:
                self._answer(*((200, b"ok\n") if ready() else (503, b"not ready yet\n")))
            elif path in {"/healthz", "/readyz"}:
                self._answer(*((200, b"ok\n") if alive() else (503, b"the loop is stuck\n")))
            else:
                self._answer(404, b"there are /healthz, /readyz and /metrics\n")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it so)
            """Probes come every few seconds; nobody reads of them."""

        def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="health", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
