import datetime as dt
import ssl

import pytest

from certs import sslcontext
from certs.issue import KeyPair, issue_authority, issue_leaf
from certs.mounted import Mounted
from certs.sslcontext import ServerContext, build_context, handshake_fault

HOST = "apportion-webhook.apportion-system.svc"


@pytest.fixture(scope="module")
def authority():
    return issue_authority(dt.datetime.now(dt.UTC))


@pytest.fixture
def leaf_of(authority):
    return lambda: issue_leaf(authority, [HOST], dt.datetime.now(dt.UTC))


def test_the_context_is_built_once_per_content(leaf_of):
    pair = leaf_of()
    context = ServerContext(lambda: KeyPair(bytes(pair.certificate), bytes(pair.key)))
    assert context.current() is context.current()


def test_a_new_certificate_is_served_to_the_next_handshake(tls, authority, leaf_of):
    """C01: no restart, and a connection that is open stays so."""
    serving = [leaf_of()]
    context = ServerContext(lambda: serving[0])
    with tls.serving(context.current) as address:
        assert tls.dial(address, authority, HOST)[0] == serving[0].certificate
        serving[0] = leaf_of()
        assert tls.dial(address, authority, HOST)[0] == serving[0].certificate


def test_a_mounted_secret_is_followed_through_symlink_swaps(tmp_path, leaf_of, authority, tls):
    """C01: the kubelet swaps a symlink; a half-written or mismatched state in between is passed over."""
    first, second = leaf_of(), leaf_of()

    def mount(name, certificate, key):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tls.crt").write_bytes(certificate)
        (tmp_path / name / "tls.key").write_bytes(key)
        link = tmp_path / "new"
        link.symlink_to(name)
        link.replace(tmp_path / "data")

    mount("1", first.certificate, first.key)
    mounted = Mounted(tmp_path / "data")
    with tls.serving(mounted.context.current) as address:

        def served():
            return tls.dial(address, authority, HOST)[0]

        assert served() == first.certificate
        mount("2", second.certificate, first.key)
        assert served() == first.certificate
        mount("3", second.certificate[:300], second.key)
        assert served() == first.certificate
        (tmp_path / "data").unlink()
        assert served() == first.certificate
        mount("4", second.certificate, second.key)
        assert served() == second.certificate


def test_a_mount_without_a_certificate_is_a_fault_until_there_is_one(tmp_path, leaf_of):
    mounted = Mounted(tmp_path)
    assert mounted.fault == f"no certificate in {tmp_path} yet"
    pair = leaf_of()
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    assert mounted.fault == f"no certificate in {tmp_path} yet"
    (tmp_path / "tls.key").write_bytes(pair.key)
    assert mounted.fault is None


def test_a_pair_that_does_not_fit_is_tried_once_not_at_every_handshake(leaf_of, monkeypatch):
    bad = KeyPair(leaf_of().certificate, leaf_of().key)
    builds = []
    monkeypatch.setattr(sslcontext, "build_context", lambda pair: builds.append(pair) or build_context(pair))
    context = ServerContext(lambda: bad)
    assert context.current() is None
    assert context.current() is None
    assert len(builds) == 1


def test_sessions_are_resumed_as_long_as_the_certificate_stays(tls, authority, leaf_of):
    serving = [leaf_of()]
    context = ServerContext(lambda: serving[0])
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    with tls.serving(context.current) as address:
        _, session, resumed = tls.dial_with(client, address, HOST)
        assert not resumed
        _, session, resumed = tls.dial_with(client, address, HOST, session)
        assert resumed
        serving[0] = leaf_of()
        _, _, resumed = tls.dial_with(client, address, HOST, session)
        assert not resumed


def test_tls_older_than_1_2_is_refused(leaf_of):
    assert build_context(leaf_of()).minimum_version is ssl.TLSVersion.TLSv1_2


def test_no_key_stays_behind_on_disk(leaf_of, monkeypatch, tmp_path):
    monkeypatch.setattr(sslcontext.os, "access", lambda *_: False)
    monkeypatch.setattr(sslcontext.tempfile, "tempdir", str(tmp_path))
    build_context(leaf_of())
    with pytest.raises(ssl.SSLError):
        build_context(KeyPair(leaf_of().certificate, leaf_of().key))
    assert list(tmp_path.iterdir()) == []


def test_the_expiry_of_what_is_served_is_known(authority):
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    pair = issue_leaf(authority, [HOST], now)
    context = ServerContext(lambda: pair)
    assert context.expires_at() is None
    context.current()
    assert context.expires_at() == (now + dt.timedelta(days=90)).timestamp()


def test_a_handshake_in_memory_tells_whether_clients_would_accept(authority, leaf_of):
    """C10: what a comparison of certificates would miss is found by doing it."""
    context = build_context(leaf_of())
    other = issue_authority(dt.datetime.now(dt.UTC))
    assert handshake_fault(context, authority.certificate, HOST) is None
    assert "certificate verify failed" in handshake_fault(context, other.certificate, HOST)
    assert "Hostname mismatch" in handshake_fault(context, authority.certificate, "elsewhere.svc")
    assert handshake_fault(context, b"", HOST) == "Empty certificate data"
    assert "verify failed" in handshake_fault(context, leaf_of().certificate, HOST)
