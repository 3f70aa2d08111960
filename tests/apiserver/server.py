"""The scripted server: routes of steps, each of which answers one request; every request is recorded.

A step is a function of (request, wire). The steps of a route are played in turn, the last one again and again. A
request without a route is answered by `otherwise`: a 404 Status, unless a test gives it objects (objects.py).
"""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

import trustme

PATIENCE_S = 30.0  # how long a test waits for what should come at once


class Request(NamedTuple):
    """What the client has asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def watch(self) -> bool:
        return self.query.get("watch") == "1"


class Wire:
    """The way back to the client, down to half a line and a cut connection."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler
        self._chunked = False

    def reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self._handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self._handler.send_header(name, value)
        self._handler.send_header("Content-Length", str(len(body)))
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def json(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        self.reply(status, json.dumps(body).encode(), headers)

    def send(self, data: bytes) -> None:
        """Send a piece of a stream, flushed at once; the first one sends the head too."""
        self.open()
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def open(self) -> None:
        if not self._chunked:
            self._chunked = True
            self._handler.send_response(200)
            self._handler.send_header("Transfer-Encoding", "chunked")
            self._handler.end_headers()

    def event(self, kind: str, obj: object) -> None:
        self.send(json.dumps({"type": kind, "object": obj}).encode() + b"\n")

    def end(self) -> None:
        """End the stream in good order, as the server does at timeoutSeconds."""
        self.open()
        self._handler.wfile.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """Break the connection off."""
        self._handler.close_connection = True
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Say nothing more, until the client, or the test's end, closes the connection."""
        self.open()
        self.stall()

    def stall(self) -> None:
        """Like hold, but without even the head of an answer."""
        self._handler.close_connection = True
        while self._handler.connection.recv(1024):
            pass


Step = Callable[[Request, Wire], None]


class ApiServer:
    """A server on a free port of this machine; use as a context manager."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.connections = 0  # accepted so far
        self._arrived = threading.Condition()
        self._routes: dict[tuple[str, str, bool], list[Step]] = {}
        self.otherwise: Step = _no_route
        self._authority = trustme.CA()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert("127.0.0.1").configure_cert(self._tls)
        self._open: set[socket.socket] = set()
        # Bound and never listening: while the server is down the port is refused to clients, and not given to anybody else.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = self._reserved.getsockname()[1]
        self.up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        self._reserved.close()

    def up(self) -> None:
        """Listen, on the same port each time."""
        self._http = _Http(self)
        self._accepting = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._accepting.start()

    def down(self) -> None:
        """Refuse connections and break off those that are open."""
        self._http.shutdown()
        self._accepting.join()
        for connection in list(self._open):
            _shut(connection)
        self._http.server_close()  # joins the threads of the connections

    def route(self, method: str, path: str, *steps: Step, watch: bool = False) -> None:
        """Answer requests of this method and path by these steps, in turn; the last one is repeated. No steps: no route."""
        self._routes[method, path, watch] = list(steps)

    def asked(self, method: str, path: str, *, watch: bool = False) -> list[Request]:
        """Return the requests so far of this kind."""
        return [r for r in list(self.requests) if (r.method, r.path, r.watch) == (method, path, watch)]

    def wait_for(self, count: int, method: str, path: str, *, watch: bool = False) -> list[Request]:
        """Wait until so many requests of this kind have arrived, and return them."""
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.asked(method, path, watch=watch)) >= count, PATIENCE_S)
        assert arrived, f"{len(self.asked(method, path, watch=watch))} of {count} requests {method} {path} {watch=}"
        return self.asked(method, path, watch=watch)

    def kubeconfig(self, directory: Path, user: Mapping[str, object] | None = None) -> str:
        """Write a kubeconfig for this server and return its path."""
        authority = directory / "ca.crt"
        self._authority.cert_pem.write_to_path(str(authority))
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(authority)},
                }
            ],
            "users": [{"name": "test", "user": user or {"token": "secret"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path = directory / "kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)

    def play(self, request: Request, wire: Wire) -> None:
        steps = self._routes.get((request.method, request.path, request.watch), [])
        step = steps[0] if len(steps) == 1 else steps.pop(0) if steps else self.otherwise
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        step(request, wire)


class _Http(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128  # the default of 5 makes clients that connect together wait a second

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        super().__init__(("127.0.0.1", api.port), _Handler)

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self.api.connections += 1
        # The handshake is left to the thread of the connection, so that a slow client delays nobody.
        tls = self.api._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self.api._open.add(tls)
        return tls, address

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        self.api._open.discard(request)
        _shut(request)
        request.close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of every script."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def _answer(self) -> None:
        target = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        request = Request(self.command, target.path, dict(parse_qsl(target.query)), self.headers, body)
        self.server.api.play(request, Wire(self))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 (http.server's names)

    def log_message(self, *_: object) -> None:
        """Tests speak by assertions."""


def _no_route(_: Request, wire: Wire) -> None:
    wire.json(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "no route", "code": 404})


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
