"""Load on an HTTPS server from one process: kept-alive connections, closed or open loop. Run as a program of its own.

Closed loop: every connection sends its next request when the last is answered. Open loop: requests are due at fixed
times, whether or not the last are answered, and a latency counts from when a request was due (no coordinated
omission). Prints JSON: the requests per second and the latencies in seconds.

One thread over non-blocking sockets, so that the load itself takes little of a small machine.
"""

import json
import re
import selectors
import socket
import ssl
import sys
import time
from collections import deque
from pathlib import Path

WARM_UP_S = 2.0
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Connection:
    """One kept-alive TLS connection with at most one request under way."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
        self._answer = b""
        self._since = 0.0

    def send(self, request: bytes, since: float) -> None:
        """Send a request whose latency counts from `since`."""
        self._since = since
        self.socket.settimeout(None)
        self.socket.sendall(request)
        self.socket.settimeout(0)

    def receive(self) -> float | None:
        """Take what has arrived; return the latency if that completes the answer."""
        while True:
            try:
                part = self.socket.recv(1 << 16)
            except ssl.SSLWantReadError:
                return None
            if not part:
                raise SystemExit("the server closed a connection")
            self._answer += part
            head, end, body = self._answer.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if end and length and len(body) >= int(length[1]):
                if not head.startswith(b"HTTP/1.1 200 "):
                    raise SystemExit(f"answered {head.splitlines()[0]!r}")
                self._answer = b""
                return time.monotonic() - self._since


def load(connections: list[Connection], requests: list[bytes], seconds: float, rate: float) -> list[float]:
    """Return the latencies of all requests sent within so many seconds; `rate` 0 is closed loop."""
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    idle, latencies = deque(connections), []
    began, sent, busy = time.monotonic(), 0, 0
    while True:
        now = time.monotonic()
        due = began + sent / rate if rate else now
        while idle and due <= now < began + seconds:
            idle.popleft().send(requests[sent % len(requests)], due)
            sent, busy = sent + 1, busy + 1
            due = began + sent / rate if rate else now
        if not busy and now >= began + seconds:
            selector.close()
            return latencies
        for key, _ in selector.select(max(0.0, due - now) if rate and idle else None):
            latency = key.data.receive()
            if latency is not None:
                latencies.append(latency)
                idle.append(key.data)
                busy -= 1


def main(port: int, bodies: list[str], connections: int, seconds: float, rate: float) -> None:
    """Warm up, measure, print."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # this machine's own server, measured only
    head = "POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
    requests = [head.format(len(body)).encode() + body for body in map(str.encode, bodies)]
    opened = []
    for _ in range(connections):
        opened.append(Connection(port, context))
        load(opened[-1:], requests, 0.001, 0)  # at once, as a client does that has connected in order to ask
    load(opened, requests, WARM_UP_S, 0)
    latencies = load(opened, requests, seconds, rate)
    print(json.dumps({"rate": len(latencies) / seconds, "latencies": latencies}))


if __name__ == "__main__":
    port, path, *numbers = sys.argv[1:]
    main(int(port), Path(path).read_text().splitlines(), int(numbers[0]), float(numbers[1]), float(numbers[2]))
