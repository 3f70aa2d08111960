"""Serve the webhook by gunicorn: one process that answers, with threads for requests and TLS from memory.

One worker, so that one set of caches and metrics serves all; threads, so that the API server's kept-alive
connections are.
"""

import ssl
from collections.abc import Callable
from pathlib import Path

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.glogging import Logger
from msgspec import Struct

from webhook.worker import KEEPALIVE_S, MOST_CONNECTIONS, THREADS, Worker


class Serving(Struct, frozen=True, kw_only=True):
    """What a worker serves: the application, the TLS context for new connections, and how to end it all."""

    app: Flask
    context: Callable[[], ssl.SSLContext | None]
    close: Callable[[], None]


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn server for one listening address. `run()` returns by SystemExit."""

    def __init__(self, build: Callable[[Worker], Serving], *, listen: str, drain_s: float) -> None:
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

    def _forked(self, worker: Worker) -> None:
        worker.drain_s = self._drain_s
        worker.context = self._context
        self._worker = worker

    def _context(self) -> ssl.SSLContext:
        context = self._serving.context() if self._serving else None
        if context is None:  # as if nobody listened, which is also what /readyz would say
            raise ConnectionResetError("there is no certificate yet")
        return context

    def _close(self) -> None:
        if self._serving:
            self._serving.close()


class _TlsConfig(Config):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn turns TLS on by file names. Ours has none: the context comes from the hook."""

    is_ssl = True


class _Logger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's messages by way of the process's own logging."""

    def setup(self, cfg: Config) -> None:
        """Leave handlers and levels to the root logger."""
        self.cfg = cfg
        self.error_log.propagate = True
