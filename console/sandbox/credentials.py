"""Who may talk to the API server of a sandbox, and how it shows who it is.

A CA that lives as long as the sandbox signs one serving certificate for all components; clients come with bearer
tokens. Everything lies in the sandbox's own directory, readable by its user only.
"""

import os
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.issue import issue_authority, issue_leaf

# Users as Kubernetes names them -> groups. kwok and the controller manager act for many, so they may do everything.
ADMINISTRATOR: Final = "admin"
SCHEDULER: Final = "system:kube-scheduler"
CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
KWOK: Final = "kwok"
_USERS: Final[Mapping[str, str]] = {
    ADMINISTRATOR: "system:masters",
    SCHEDULER: "",
    CONTROLLER_MANAGER: "system:masters",
    KWOK: "system:masters",
}

# How components, and pods if there were any, may call the server; 10.96.0.1 is the first address of the service range.
_SERVER_NAMES: Final = ("127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1")


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Files with the credentials of a sandbox, all in PEM but for `tokens` (the API server's CSV)."""

    ca: Path
    serving_certificate: Path
    serving_key: Path
    service_account_key: Path
    tokens: Path
    token_of: Mapping[str, str]


def issue_credentials(directory: Path, *, now: datetime) -> Credentials:
    """Make the credentials of a sandbox and write them into `directory`, which must exist. Valid for 90 days.

    For calls by hand, `ca.crt` and `admin.token` are what `curl` needs.
    """
    authority = issue_authority(now)
    serving = issue_leaf(authority, _SERVER_NAMES, now)
    # "EC PRIVATE KEY": from this form kube-apiserver takes both keys, to sign and to check; PKCS #8 it takes to sign only.
    service_accounts = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    token_of = {user: secrets.token_urlsafe(32) for user in _USERS}
    rows = [f'{token_of[user]},{user},{user},"{group}"\n' for user, group in _USERS.items()]
    write_private(directory / "admin.token", token_of[ADMINISTRATOR].encode())
    return Credentials(
        ca=write_private(directory / "ca.crt", authority.certificate),
        serving_certificate=write_private(directory / "serving.crt", serving.certificate),
        serving_key=write_private(directory / "serving.key", serving.key),
        service_account_key=write_private(directory / "service-accounts.key", service_accounts),
        tokens=write_private(directory / "tokens.csv", "".join(rows).encode()),
        token_of=token_of,
    )


def write_kubeconfig(path: Path, *, name: str, server: str, ca: Path, user: str, token: str) -> Path:
    """Write a kubeconfig (mode 0600) with one context, called `name`, and return its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "users": [{"name": user, "user": {"token": token}}],
    }
    return write_private(path, yaml.safe_dump(content, sort_keys=False).encode())


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read, from its first moment on, and return its path."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path
