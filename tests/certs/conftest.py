import base64
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import jsonpatch
import msgspec
import pytest

from certs.issue import KeyPair, Material, issue_authority, issue_leaf
from kube.errors import Conflict, Invalid, NotFound

NOW = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
HOST = "apportion-webhook.apportion-system.svc"


@pytest.fixture
def now():
    return NOW


@pytest.fixture
def material() -> Material:
    authority = issue_authority(NOW)
    return Material(authority, issue_leaf(authority, [HOST, "127.0.0.1"], NOW))


class ApiServer:
    """As much of an API server as the certificates need: optimistic locking, RFC 6902 with `test`, and a diary."""

    def __init__(self) -> None:
        self.objects: dict[str, dict] = {}
        self.writes: list[tuple[str, str]] = []
        self.operations: list[dict] = []  # of the JSON patches
        self.before_write = lambda: None  # what another client does just before our write

    def get(self, path: str, **_: str) -> bytes:
        if path not in self.objects:
            raise NotFound(404, "NotFound", path)
        return msgspec.json.encode(self.objects[path])

    def create(self, path: str, obj: object) -> bytes:
        self._write("create", path)
        body = msgspec.json.decode(msgspec.json.encode(obj))
        at = f"{path}/{body['metadata']['name']}"
        if at in self.objects:
            raise Conflict(409, "AlreadyExists", at)
        return self._keep(at, body)

    def merge_patch(self, path: str, obj: object) -> bytes:
        self._write("merge_patch", path)
        body = msgspec.json.decode(msgspec.json.encode(obj))
        old = self.objects[path]
        asked = body["metadata"].pop("resourceVersion", None)
        if asked is not None and asked != old["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", path)
        return self._keep(path, {**old, **body, "metadata": {**old["metadata"], **body["metadata"]}})

    def json_patch(self, path: str, ops: object) -> bytes:
        self._write("json_patch", path)
        operations = msgspec.json.decode(msgspec.json.encode(ops))
        self.operations += operations
        try:
            patched = jsonpatch.apply_patch(self.objects[path], operations)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise Invalid(422, "Invalid", str(error)) from error
        return self._keep(path, patched)

    def put(self, path: str, obj: dict) -> None:
        """Place an object as someone else would: no entry in the diary."""
        self._keep(path, obj)

    def _write(self, verb: str, path: str) -> None:
        self.before_write()
        self.writes.append((verb, path))

    def _keep(self, path: str, obj: dict) -> bytes:
        version = str(int(self.objects.get(path, {}).get("metadata", {}).get("resourceVersion", "0")) + 1)
        self.objects[path] = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        return msgspec.json.encode(self.objects[path])


SECRETS = "/api/v1/namespaces/apportion-system/secrets"
SECRET = f"{SECRETS}/apportion-webhook-tls"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/apportion"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/apportion"


def secret_of(material: Material) -> dict:
    data = {
        "ca.crt": material.authority.certificate,
        "ca.key": material.authority.key,
        "tls.crt": material.leaf.certificate,
        "tls.key": material.leaf.key,
    }
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"kind": "Secret", "metadata": {"name": "apportion-webhook-tls"}, "data": encoded}


def configuration_of(*bundles: bytes) -> dict:
    webhooks = [
        {
            "name": f"w{index}.nos.nebuly.com",
            "timeoutSeconds": 5,
            "clientConfig": {
                "service": {"name": "apportion-webhook", "namespace": "apportion-system"},
                **({"caBundle": base64.b64encode(bundle).decode()} if bundle else {}),
            },
        }
        for index, bundle in enumerate(bundles)
    ]
    return {"metadata": {"name": "apportion", "labels": {"theirs": "kept"}}, "webhooks": webhooks}


@pytest.fixture
def api() -> ApiServer:
    return ApiServer()


@contextmanager
def tls_server(context_of) -> Iterator[tuple[str, int]]:
    """Serve TLS on a free port: each connection takes its context anew and is answered with one line."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            try:
                with context_of().wrap_socket(raw, server_side=True) as tls:
                    tls.sendall(b"here\n")
                    tls.recv(1)  # until the client has read and hung up
            except OSError:
                raw.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def dial(address: tuple[str, int], authority: KeyPair, host: str, session: ssl.SSLSession | None = None):
    """Make one connection as the API server would, and return (the leaf it got, its session, whether resumed)."""
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    return dial_with(context, address, host, session)


def dial_with(context: ssl.SSLContext, address: tuple[str, int], host: str, session: ssl.SSLSession | None = None):
    with (
        socket.create_connection(address, timeout=5) as raw,
        context.wrap_socket(raw, server_hostname=host, session=session) as tls,
    ):
        assert tls.recv(16) == b"here\n"
        leaf = ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True)).encode()
        return leaf, tls.session, tls.session_reused


@pytest.fixture
def tls():
    """Real TLS over the loopback, both sides."""

    class Tls:
        serving = staticmethod(tls_server)
        dial = staticmethod(dial)
        dial_with = staticmethod(dial_with)

    return Tls


@pytest.fixture
def paths():
    class Paths:
        secret, mutating, validating, secrets = SECRET, MUTATING, VALIDATING, SECRETS

    return Paths


@pytest.fixture
def make():
    class Make:
        secret = staticmethod(secret_of)
        configuration = staticmethod(configuration_of)

    return Make
