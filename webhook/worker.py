"""The process that answers: gunicorn's threaded worker, without its waits.

No peer can hold up others: the loop that all connections share reads what arrives and waits for none of them, a thread
gets a request only when all of it is there, and who owes us a handshake or the rest of a request is hung up on after
`PATIENCE_S`. Nor can peers use us up: of requests about `MOST_HELD` bytes are in memory at most, and when there are too
many connections the one of least use makes room for the next.
"""

import ssl
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from io import BytesIO
from selectors import EVENT_READ
from socket import socket
from types import FrameType
from typing import Final

from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import ThreadWorker

from webhook.connection import Connection, Memory, Owes

THREADS: Final = 32
# Open connections, kept-alive ones included; below the common limit of 1024 open files.
MOST_CONNECTIONS: Final = 512
# Go's HTTP clients drop a connection that is idle for 90 s. They must be first: a request sent while we close
# would be lost.
KEEPALIVE_S: Final = 95
# A peer on a cluster's network needs milliseconds for a handshake, a request, or to take an answer.
PATIENCE_S: Final = 2.0
# Twice the largest review.
MOST_HELD: Final = 16 * 1024 * 1024


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's threaded worker, without its waits."""

    drain_s = 0.0
    context: Callable[[], ssl.SSLContext]
    pending_conns: deque[Connection]  # those that owe us something, by when we hang up
    keepalived_conns: deque[Connection]  # those that are idle, by when we hang up

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.busy = 0  # requests being served or waiting for a thread; only the main thread changes it
        self.max_keepalived = self.worker_connections  # we make room ourselves, see `accept`
        self._memory = Memory()
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
        """Take a new connection, and let it wait without a thread."""
        try:
            sock, client = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        try:
            tls = self.context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:  # there is no certificate yet, or the peer is gone again
            self.log.debug("connection with %s ended: %s", client[0], error)
            sock.close()
            return
        waiting = (*self.pending_conns, *self.keepalived_conns) if self.nr_conns + 1 >= self.worker_connections else ()
        if waiting:  # strangers go first, then who has been waited for longest
            self._hang_up(min(waiting, key=lambda conn: (conn.served, conn.since)))
        self.nr_conns += 1
        self._await(Connection(tls, client, listener.getsockname(), self._memory))

    def murder_pending(self) -> None:
        """Hang up on those who have owed us something for too long."""
        now = time.monotonic()
        while self.pending_conns and self.pending_conns[0].timeout <= now:
            self._hang_up(self.pending_conns[0])

    def enqueue_req(self, conn: Connection) -> None:
        """Hand a connection whose request is there to a thread."""
        self.busy += 1
        super().enqueue_req(conn)

    def handle(self, conn: Connection) -> bool:
        """Serve one request, in a thread; return whether the connection stays open."""
        request = None
        try:
            conn.sock.settimeout(PATIENCE_S)
            head, body = conn.take()
            request = next(RequestParser(self.cfg, (head,), conn.client))
            request.body = BytesIO(body)  # gunicorn's own reader would copy it five times
            return bool(self.handle_request(request, conn)) and conn.whole
        except OSError as error:  # it hung up, or does not take its answer
            self.log.debug("answer to %s not taken: %s", conn.client[0], error)
        except StopIteration:
            self.log.debug("no request from %s", conn.client[0])
        except Exception as error:  # noqa: BLE001 - the connection ends, the process goes on
            self.handle_error(request, conn.sock, conn.client, error)
        return False

    def finish_request(self, conn: Connection, fs: Future[bool]) -> None:
        """Put a connection back into the loop; in the main thread."""
        self.busy -= 1
        try:
            conn.done(stays=not fs.cancelled() and fs.exception() is None and fs.result())
        except OSError:
            self._forget(conn)
            return
        self._await(conn)
        if conn.held:  # the next request has arrived with this one
            self._readable(conn)

    def _readable(self, conn: Connection, _sock: socket | None = None) -> None:
        """Take what has arrived on a connection."""
        if conn.queue is None:
            return  # hung up on since the poller saw it, to make room
        owed = conn.owes
        try:
            there = conn.advance()
        except ssl.SSLError as error:  # the client does not trust us, or speaks no TLS
            self.log.warning("handshake with %s failed: %s", conn.client[0], error)
            self._hang_up(conn)
            return
        except OSError as error:
            self.log.debug("connection with %s ended: %s", conn.client[0], error)
            self._hang_up(conn)
            return
        if there:
            self._unqueue(conn)
            self.enqueue_req(conn)
        elif conn.owes is not owed:
            self._unqueue(conn)
            self._await(conn)
        while self._memory.held > MOST_HELD and self.pending_conns:
            largest = max(self.pending_conns, key=lambda conn: conn.held)
            self.log.warning("too much arrives at once: hung up on %s", largest.client[0])
            self._hang_up(largest)

    def _await(self, conn: Connection) -> None:
        """Let a connection wait for its peer, in the loop."""
        idle = conn.owes is Owes.NOTHING
        conn.since = time.monotonic()
        conn.timeout = conn.since + (KEEPALIVE_S if idle and self.alive else PATIENCE_S)
        conn.queue = self.keepalived_conns if idle else self.pending_conns
        conn.queue.append(conn)
        self.poller.register(conn.sock, EVENT_READ, partial(self._readable, conn))

    def _unqueue(self, conn: Connection) -> None:
        if conn.queue is not None:
            conn.queue.remove(conn)
            conn.queue = None
            self.poller.unregister(conn.sock)

    def _hang_up(self, conn: Connection) -> None:
        self._unqueue(conn)
        self._forget(conn)

    def _forget(self, conn: Connection) -> None:
        self.nr_conns -= 1
        conn.close()
