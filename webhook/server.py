"""Serve the webhook by gunicorn: one process that answers, threads for its connections, TLS from memory.

One worker, so that one set of caches and metrics serves all; threads, so that the API server's kept-alive
connections are. No peer can hold up others for longer than the handshake timeout: a connection that says
nothing costs no thread, before its handshake or after it, a handshake and a request have deadlines
(`certs.sslcontext`), and the loop that all connections share never waits for one of them.
"""

import select
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from selectors import EVENT_READ
from socket import socket
from types import FrameType
from typing import Final

from flask import Flask
from gunicorn import util
from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import TConn, ThreadWorker
from msgspec import Struct

from certs.sslcontext import HANDSHAKE_TIMEOUT_S

THREADS: Final = 32
# Open connections, kept-alive ones included; below the common limit of 1024 open files.
MOST_CONNECTIONS: Final = 512
# Go's HTTP clients drop a connection that is idle for 90 s. They must be first: a request sent while we close
# would be lost.
KEEPALIVE_S: Final = 95
LINGER_S: Final = 1.0


class Serving(Struct, frozen=True, kw_only=True):
    """What a worker serves: the application, the TLS context for new handshakes, and how to end it all."""

    app: Flask
    context: Callable[[], ssl.SSLContext | None]
    close: Callable[[], None]


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn server for one listening address. `run()` returns by SystemExit."""

    def __init__(self, build: Callable[["Worker"], Serving], *, listen: str, drain_s: float) -> None:
        """Serve what `build` returns; it is called in the worker, so it may start threads.

        `listen` is `address:port`. After SIGTERM the server is unready, and goes on answering, for `drain_s`.
        """
        self._build = build
        self._listen = listen
        self._drain_s = drain_s
        self._worker: Worker | None = None
        self._serving: Serving | None = None
        super().__init__()

    def load_default_config(self) -> None:
        """Start from gunicorn's defaults, with TLS on."""
        self.cfg = _TlsConfig()

    def load_config(self) -> None:
        """Set what differs from gunicorn's defaults."""
        memory = "/dev/shm"  # noqa: S108 - gunicorn makes an unlinked file in it
        settings = {
            "bind": self._listen,
            "worker_class": Worker,
            "workers": 1,
            "threads": THREADS,
            "worker_connections": MOST_CONNECTIONS,
            "keepalive": KEEPALIVE_S,
            "do_handshake_on_connect": True,
            "ssl_context": lambda _config, _default: self._context(),
            "post_fork": lambda _arbiter, worker: self._forked(worker),
            "worker_exit": lambda _arbiter, _worker: self._close(),
            "graceful_timeout": int(self._drain_s) + 10,
            "worker_tmp_dir": memory if Path(memory).is_dir() else None,  # the heartbeat must not wait for a disk
            "logger_class": _Logger,
            "control_socket_disable": True,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Return the application; called in the worker."""
        if self._worker is None:
            raise RuntimeError("gunicorn loads the application in a worker")
        self._serving = self._build(self._worker)
        return self._serving.app

    def _forked(self, worker: "Worker") -> None:
        worker.drain_s = self._drain_s
        self._worker = worker

    def _context(self) -> ssl.SSLContext:
        context = self._serving.context() if self._serving else None
        if context is None:  # as if nobody listened, which is also what /readyz would say
            raise ConnectionResetError("there is no certificate yet")
        return context

    def _close(self) -> None:
        if self._serving:
            self._serving.close()


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's threaded worker, without its waits: see the module."""

    drain_s = 0.0

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.busy = 0  # connections being served or waiting for a thread; only the main thread changes it
        self.draining = False
        self._stop_at = 0.0  # on the monotonic clock; counts while draining

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """On SIGTERM: be unready and hand connections over, go on answering for `drain_s`, then stop."""
        if self.drain_s <= 0:
            super().handle_exit(sig, frame)
        elif not self.draining:
            self._stop_at = time.monotonic() + self.drain_s
            self.max_keepalived = 0  # each answer says that it closes its connection: the next goes elsewhere
        self.draining = True

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """On SIGINT or SIGQUIT: stop at once.

        Not as ThreadWorker has it: a signal may find the main thread inside the pool, for whose lock it would wait.
        """
        super(ThreadWorker, self).handle_quit(sig, frame)

    def notify(self) -> None:
        """Tell the parent that the loop turns, at least once a second; and see whether it is time to stop."""
        super().notify()
        if self.draining and time.monotonic() >= self._stop_at:
            self.alive = False

    def accept(self, listener: socket) -> None:
        """Take a new connection, and let it wait without a thread until its first bytes are there."""
        try:
            sock, client = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection = _Connection(self.cfg, sock, client, listener.getsockname())
        connection.timeout = time.monotonic() + HANDSHAKE_TIMEOUT_S
        self.nr_conns += 1
        self.pending_conns.append(connection)
        self.poller.register(sock, EVENT_READ, partial(self.on_pending_socket_readable, connection))

    def enqueue_req(self, conn: TConn) -> None:
        """Hand a connection with bytes to read to a thread."""
        self.busy += 1
        super().enqueue_req(conn)

    def handle(self, conn: "_Connection") -> bool:
        """Shake hands, or serve one request, in a thread; return whether the connection stays open."""
        if conn.initialized:
            stays = bool(super().handle(conn))
        else:
            stays = self._shake_hands(conn)
            if stays and conn.has_bytes():
                stays = bool(super().handle(conn))
        if not stays:
            conn.linger()
        return stays

    def _shake_hands(self, conn: "_Connection") -> bool:
        """Do the TLS handshake; the first request may come at once, or much later, like any that follows."""
        try:
            conn.init()
        except ssl.SSLError as error:  # the client does not trust us, or speaks no TLS
            self.log.warning("handshake with %s failed: %s", conn.client[0], error)
            return False
        except OSError as error:  # it hung up, or took too long
            self.log.debug("handshake with %s ended: %s", conn.client[0], error)
            return False
        return True

    def finish_request(self, conn: TConn, fs: "Future[bool]") -> None:
        """Put a connection back into the loop, or forget it; in the main thread."""
        self.busy -= 1
        super().finish_request(conn, fs)


class _Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """A connection that lingers where a thread can wait, and closes where none must."""

    def has_bytes(self) -> bool:
        """Return whether some of the next request is here already."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def linger(self) -> None:
        """Say goodbye so that the last answer arrives: wait for the peer to hang up, a moment at most."""
        if self.sock.fileno() >= 0:
            util.close_graceful(self.sock, timeout=LINGER_S)

    def close(self, graceful: bool = False) -> None:  # noqa: ARG002 - gunicorn's signature; grace came before
        """Close at once; harmless if closed already."""
        util.close(self.sock)


class _TlsConfig(Config):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn turns TLS on by file names. Ours has none: the context comes from the hook."""

    is_ssl = True


class _Logger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's messages by way of the process's own logging."""

    def setup(self, cfg: Config) -> None:
        """Leave handlers and levels to the root logger."""
        self.cfg = cfg
        self.error_log.propagate = True
