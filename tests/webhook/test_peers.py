"""Peers that dawdle, shout or come in crowds: they cost little memory and no thread, and delay nobody.

The bar is the patience of 2 s that we have with a peer; what is asserted is mostly half of that, on a busy machine.
"""

import http.client
import resource
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.apiserver.server import PATIENCE_S
from tests.webhook.process import ask, seconds, stuck_peers

HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _open_files():
    """This process holds the other ends of a thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def server(replica):
    return replica


@pytest.fixture
def kept(server):
    """A connection as the API server has them."""
    connection = server.connect()
    ask(connection)
    return connection


def peak_mib(server) -> float:
    """Return the most memory that the worker has ever used."""
    pid = server.process.pid
    (worker,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (line,) = (line for line in Path(f"/proc/{worker}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def longest_wait(kept, during_s: float) -> float:
    """Ask all the time, and return how long an answer took at most."""
    waits, end = [], time.monotonic() + during_s
    while time.monotonic() < end:
        waits.append(seconds(lambda: ask(kept)))
    return max(waits)


def test_half_handshakes_and_silent_peers_delay_nobody(server, kept):
    """Three times as many as there are threads."""
    with stuck_peers(server.address, silent=100, half=100):
        assert longest_wait(kept, 2.5) < 1.0
        assert seconds(lambda: ask(server.connect())) < 1.0


@contextmanager
def dripping(server, count, first, drip):
    """Keep so many peers that have shaken hands and said `first`, and from then on send a little all the time."""
    peers = [server.connect() for _ in range(count)]
    for peer in peers:
        peer.connect()
        peer.sock.sendall(first)
    done = threading.Event()

    def run():
        while not done.wait(0.05):
            for peer in peers:
                with suppress(OSError):  # it is hung up on
                    peer.sock.sendall(drip)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield peers
    finally:
        done.set()
        thread.join(PATIENCE_S)
        for peer in peers:
            peer.close()


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        pytest.param(b"POST /mut", b"a", id="headers that never end"),
        pytest.param(HEAD + b"Content-Length: 100000\r\n\r\n{", b" ", id="a body that never ends"),
    ],
)
def test_requests_that_drip_delay_nobody_and_are_hung_up_on(server, kept, first, drip):
    """Slowloris: every byte is in time, the request as a whole is not."""
    with dripping(server, 100, first, drip) as peers:
        assert longest_wait(kept, 1.5) < 1.0
        assert seconds(lambda: ask(server.connect())) < 1.0
        peers[0].sock.settimeout(PATIENCE_S)
        with suppress(ConnectionError, ssl.SSLError):  # a reset, or an end without a goodbye; no timeout
            assert peers[0].sock.recv(1) == b""


def shout(server, size, pause_s=0.0):
    """Send a body of so many bytes, unless we are hung up on, and wait for the answer."""
    peer = server.connect(timeout_s=PATIENCE_S)
    with suppress(OSError):
        peer.connect()
        peer.sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(size // 65536):
            peer.sock.sendall(b" " * 65536)
            if pause_s:
                threading.Event().wait(pause_s)
        http.client.HTTPResponse(peer.sock).begin()
    peer.close()


@pytest.mark.parametrize("pause_s", [0.0, 0.01], ids=["at once", "slowly"])
def test_forty_bodies_of_8_mib_fit_into_bounded_memory(server, kept, pause_s):
    """320 MiB in all. Who sends most is hung up on first; others are served."""
    threads = [threading.Thread(target=shout, args=(server, 8 * MIB, pause_s), daemon=True) for _ in range(40)]
    for thread in threads:
        thread.start()
    waits = [longest_wait(kept, 0.5)]
    while any(thread.is_alive() for thread in threads):
        waits.append(longest_wait(kept, 0.2))
    assert max(waits) < 2.0
    assert peak_mib(server) < 150
    assert ask(kept)[0] == 200


def test_a_body_of_16_mib_is_refused_before_it_arrives(server, kept):
    peer = server.connect()
    peer.connect()
    peer.sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n{" % (16 * MIB))
    answer = http.client.HTTPResponse(peer.sock)
    answer.begin()
    assert (answer.status, answer.read()) == (413, b"a review has at most 8388608 bytes, not 16777216\n")
    assert peer.sock.recv(1) == b"", "and hung up on, for the rest would be taken for the next request"
    assert ask(kept)[0] == 200


def test_a_body_in_chunks_is_refused_before_it_arrives(server):
    peer = server.connect()
    peer.connect()
    peer.sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n")
    answer = http.client.HTTPResponse(peer.sock)
    answer.begin()
    assert answer.status == 411
    assert answer.read()
    assert peer.sock.recv(1) == b""


@pytest.mark.parametrize(
    "framing",
    [
        pytest.param(b"Content-Length: 1000000000\r\n", id="ten digits"),
        pytest.param(b"Content-Length: 2\r\nContent-Length: 0\r\n", id="two lengths"),
        pytest.param(b"Content-Length: +2\r\n", id="a sign"),
        pytest.param(b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", id="a length of chunks"),
    ],
)
def test_after_a_body_of_unclear_length_nothing_is_taken_for_a_request(server, framing):
    """Whoever reads the length otherwise than we do would slip a second request past what stands between us."""
    peer = server.connect()
    peer.connect()
    peer.sock.sendall(HEAD + framing + b"\r\n" + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    read = b""
    while piece := peer.sock.recv(65536):
        read += piece
    assert read.count(b"HTTP/1.1 ") == 1
    assert read[9:10] == b"4"


def test_requests_that_arrive_together_are_answered_in_turn(server):
    """And one that arrives in pieces, cut at every place."""
    peer = server.connect()
    peer.connect()
    one = HEAD + b"Content-Length: 2\r\n\r\n{}"
    peer.sock.sendall(one * 3 + one[:40])
    for byte in one[40:]:
        peer.sock.sendall(bytes([byte]))
    read = b""
    while read.count(b'"bytes":2}') < 4:
        read += peer.sock.recv(65536)
    assert read.count(b"HTTP/1.1 200 OK") == 4


def test_a_thousand_silent_connections_keep_nobody_out(server, kept):
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(socket.create_connection(server.address, timeout=PATIENCE_S))
        assert seconds(lambda: ask(kept)) < 1.0
        assert seconds(lambda: ask(server.connect())) < 2.0


def test_a_thousand_idle_connections_keep_nobody_out(server, kept):
    """They have shaken hands and may stay for 95 s; but who is served is kept before who only stands there."""
    crowd = []
    try:
        for _ in range(1000):
            crowd.append(server.connect())
            crowd[-1].connect()
        assert seconds(lambda: ask(kept)) < 1.0
        assert seconds(lambda: ask(server.connect())) < 1.0
    finally:
        for peer in crowd:
            peer.close()
