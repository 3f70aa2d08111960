"""Credentials: readable by one user, and trusted for this server only."""

import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from console.sandbox.credentials import Credentials, issue_credentials, write_kubeconfig


@pytest.fixture
def issued(tmp_path: Path) -> Credentials:
    return issue_credentials(tmp_path, now=datetime.now(UTC))


def _shake_hands(issued: Credentials, trusted: Path, host: str) -> None:
    """Make a TLS connection to a server with the serving certificate. Raises ssl.SSLError if it is not trusted."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(issued.serving_certificate, issued.serving_key)
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    theirs.settimeout(30)

    def serve() -> None:
        try:
            serving.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError):  # The client's refusal, which is what the test looks at.
            theirs.close()

    server = threading.Thread(target=serve)
    server.start()
    try:
        with ours:
            ssl.create_default_context(cafile=str(trusted)).wrap_socket(ours, server_hostname=host).close()
    finally:
        server.join(30)


def test_the_server_is_verified_by_the_ca_and_its_address(issued: Credentials) -> None:
    _shake_hands(issued, issued.ca, "127.0.0.1")


def test_another_address_is_not_verified(issued: Credentials) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        _shake_hands(issued, issued.ca, "127.0.0.2")


def test_the_ca_of_another_sandbox_does_not_verify_it(issued: Credentials, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = issue_credentials(tmp_path / "other", now=datetime.now(UTC))
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(issued, other.ca, "127.0.0.1")


def test_only_their_user_can_read_them(issued: Credentials, tmp_path: Path) -> None:
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "ca.crt": 0o600,
        "serving.crt": 0o600,
        "serving.key": 0o600,
        "service-accounts.key": 0o600,
        "tokens.csv": 0o600,
        "admin.token": 0o600,
    }


def test_every_user_has_a_token_of_its_own_and_the_groups_that_it_needs(issued: Credentials) -> None:
    rows = [line.split(",") for line in issued.tokens.read_text().splitlines()]
    assert [(user, group) for _, user, _, group in rows] == [
        ("admin", '"system:masters"'),
        ("system:kube-scheduler", '""'),
        ("system:kube-controller-manager", '"system:masters"'),
        ("kwok", '"system:masters"'),
    ]
    assert {token for token, *_ in rows} == set(issued.token_of.values())
    assert len(set(issued.token_of.values())) == 4


def test_a_kubeconfig_verifies_the_server_and_is_private(tmp_path: Path) -> None:
    path = write_kubeconfig(
        tmp_path / "kubeconfig",
        name="apportion-default",
        server="https://127.0.0.1:20001",
        ca=tmp_path / "ca.crt",
        user="admin",
        token="secret",
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "apportion-default",
        "clusters": [
            {
                "name": "apportion-default",
                "cluster": {"server": "https://127.0.0.1:20001", "certificate-authority": f"{tmp_path}/ca.crt"},
            }
        ],
        "contexts": [{"name": "apportion-default", "context": {"cluster": "apportion-default", "user": "admin"}}],
        "users": [{"name": "admin", "user": {"token": "secret"}}],
    }
