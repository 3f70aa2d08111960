import json
import signal
import socket
import ssl
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from selectors import DefaultSelector
from types import SimpleNamespace

import pytest

from tests.apiserver.server import PATIENCE_S
from tests.webhook.process import HOST, ask, seconds, serving, stuck_peers
from webhook.connection import Connection, Memory
from webhook.server import Server
from webhook.worker import Worker


@pytest.fixture(scope="module")
def server(replica):
    return replica


def test_reviews_are_answered_over_one_kept_alive_connection(server):
    connection = server.connect()
    assert ask(connection) == (200, b'{"response":{"allowed":true},"bytes":14}')
    first = connection.sock
    assert ask(connection, path="/validate") == (200, b'{"response":{"allowed":false}}')
    assert ask(connection, body=b"x" * 6_000_000) == (200, b'{"response":{"allowed":true},"bytes":6000000}')
    assert ask(connection, "GET", "/readyz") == (200, b"ok\n")
    assert connection.sock is first


def test_connections_outlive_the_idle_timeout_of_go_clients():
    """Go drops idle connections after 90 s; were we first, a request sent at that moment would be lost."""
    config = Server(lambda _: None, listen="127.0.0.1:0", drain_s=5.0).cfg
    assert config.keepalive > 90
    assert (config.worker_class, config.workers, config.threads) == (Worker, 1, 32)
    assert config.graceful_timeout == 15


def test_peers_that_fall_silent_after_the_handshake_cost_no_thread(server):
    """Go's transport dials ahead: it keeps a connection that it turns out not to need yet. More of them than threads."""
    idle = [server.connect() for _ in range(40)]
    for connection in idle:
        assert seconds(connection.connect) < 1.0
    assert seconds(lambda: ask(server.connect())) < 1.0
    for connection in idle:
        assert ask(connection)[0] == 200


def test_silent_peers_are_hung_up_on(server):
    with socket.create_connection(server.address, timeout=PATIENCE_S) as peer:
        assert peer.recv(1) == b""  # the end, within the handshake timeout and a turn of the loop


def test_a_client_that_distrusts_us_harms_nobody(server):
    for _ in range(5):
        with socket.create_connection(server.address) as raw, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(raw, server_hostname=HOST)
    assert ask(server.connect())[0] == 200


def test_a_failed_review_is_logged_as_one_line_without_the_object(server):
    """Objects hold secrets in their env; a traceback must not carry them into the log."""
    assert ask(server.connect(), body=b"fail with env TOKEN=s3cr3t") == (500, b"internal error: RuntimeError\n")
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    (failed,) = [line for line in lines if line["event"] == "review_failed"]
    assert (failed["level"], failed["webhook"]) == ("error", "mutate")
    assert failed["exception"][0]["exc_type"] == "RuntimeError"
    assert "s3cr3t" not in server.log.read_text()


class Load:
    """Clients that ask without pause, on kept connections and on new ones, and note every failure."""

    def __init__(self, server) -> None:
        self.server = server
        self.stop = threading.Event()
        self.failures, self.answers, self.certificates = [], 0, set()
        self.threads = [threading.Thread(target=self.run, args=(kept,), daemon=True) for kept in (True, True, False)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)

    def run(self, kept: bool) -> None:
        connection = self.server.connect()
        while not self.stop.is_set():
            try:
                status, _ = ask(connection)
                if status != 200:
                    self.failures.append(status)
                self.answers += 1
                if not kept:
                    der = connection.sock.getpeercert(binary_form=True)
                    self.certificates.add(ssl.DER_cert_to_PEM_cert(der))
                    connection.close()
            except OSError as error:
                self.failures.append(error)

    def reaches(self, condition, timeout_s=PATIENCE_S) -> bool:
        deadline = time.monotonic() + timeout_s
        while not condition() and time.monotonic() < deadline:
            self.stop.wait(0.01)
        return condition()


def test_a_certificate_is_swapped_under_load_without_a_failed_request(server):
    """C01: new handshakes get the new pair; kept connections go on."""
    with Load(server) as load:
        assert load.reaches(lambda: load.answers > 50)
        new = server.mount()
        assert load.reaches(lambda: new in load.certificates)
        answers = load.answers
        assert load.reaches(lambda: load.answers > answers + 50)
    assert load.failures == []
    assert len(load.certificates) >= 2


def test_after_sigterm_a_replica_is_unready_but_answers_then_ends(tmp_path, authority):
    """I09: the endpoints are removed while calls still arrive; and stuck peers do not hold up the end."""
    with serving(tmp_path, authority, drain_s=4.0) as process, stuck_peers(process.address, silent=4, half=4):
        kept = process.connect()
        assert ask(kept, "GET", "/readyz") == (200, b"ok\n")
        process.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 3.0
        while (answer := ask(kept, "GET", "/readyz"))[0] == 200 and time.monotonic() < deadline:
            pass
        assert answer == (503, b"shutting down\n")
        assert ask(kept)[0] == 200
        assert ask(process.connect())[0] == 200  # a new connection, as the Service may still send them
        assert process.process.wait(PATIENCE_S) == 0
        assert process.process.stdout.read() == b"closed\n"


def test_a_second_signal_ends_it_at_once(tmp_path, authority):
    with serving(tmp_path, authority, drain_s=60.0) as process:
        ask(process.connect())
        process.process.send_signal(signal.SIGTERM)
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(PATIENCE_S) == 0, "and not when it has drained"
        assert process.process.stdout.read() == b"closed\n"


def test_before_there_is_a_certificate_connections_are_refused(tmp_path, authority):
    with serving(tmp_path, authority, certificate=False) as process:
        with pytest.raises(OSError):  # noqa: PT011 - reset or end of file, as it comes
            ask(process.connect())
        process.mount()
        assert ask(process.connect())[0] == 200


def test_a_signal_that_arrives_inside_the_pool_does_not_wait_for_the_pool():
    """It once did, for ever: the handler wanted a lock that the code below it held."""
    worker = object.__new__(Worker)
    worker.cfg = SimpleNamespace(worker_int=lambda _worker: None)
    worker.tpool = ThreadPoolExecutor(1)

    def interrupted():
        with suppress(SystemExit), worker.tpool._shutdown_lock:
            worker.handle_quit(signal.SIGINT, None)

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_who_is_hung_up_on_while_the_poller_has_news_of_it_is_counted_once():
    """Room for one peer is made by hanging up on another, of which the same turn of the loop may tell something."""
    worker = object.__new__(Worker)
    worker.pending_conns, worker.poller, worker.alive, worker.nr_conns = deque(), DefaultSelector(), True, 2
    ours, theirs = socket.socketpair()
    with theirs, worker.poller:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        worker._await(Connection(tls, (HOST, 1), (HOST, 2), Memory()))
        theirs.sendall(b"\x16")
        ((key, _),) = worker.poller.select(5)
        worker._hang_up(worker.pending_conns[0])
        key.data(key.fileobj)
    assert worker.nr_conns == 1
