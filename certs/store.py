"""Keep the webhook's certificates in the cluster: one Secret, and the caBundle of our webhook configurations.

Every replica may write. The Secret is created if absent, and losing that race is normal: the next look shows
the winner's. It is changed only in the state it was judged in (resourceVersion), so two replicas that mend the
same fault do not undo each other. Of the configurations nothing but a caBundle that differs is touched.
"""

import datetime as dt
from typing import Final

import msgspec
from msgspec import Struct

from certs.issue import KeyPair, Material, issue_authority, issue_leaf
from certs.rotation import Seen, Step
from kube.client import Client
from kube.errors import NotFound
from kube.resource import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS

SECRET: Final = "apportion-webhook-tls"  # noqa: S105 - the name of a Secret, not one
CONFIGURATION: Final = "apportion"  # of both webhook configurations, the mutating and the validating one

AUTHORITY_CERTIFICATE: Final = "ca.crt"
AUTHORITY_KEY: Final = "ca.key"
LEAF_CERTIFICATE: Final = "tls.crt"
LEAF_KEY: Final = "tls.key"


class Bundle(Struct, frozen=True, kw_only=True):
    """The caBundle of one webhook: where it stands, and its PEM (empty where none is set)."""

    path: str  # of the configuration, at the API server
    index: int  # of the webhook in it
    pem: bytes


class Observation(Struct, frozen=True, kw_only=True):
    """The cluster's certificates at one moment, with what a write needs to be sure of that moment."""

    seen: Seen
    version: str  # resourceVersion of the Secret; empty where there is none
    bundles: tuple[Bundle, ...]


class CertificateStore:
    """The Secret and the bundles of one installation. Every method may raise ApiError or Unreachable."""

    def __init__(
        self, client: Client, *, namespace: str, secret: str = SECRET, configuration: str = CONFIGURATION
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._configurations = (
            MUTATING_WEBHOOKS.path(name=configuration),
            VALIDATING_WEBHOOKS.path(name=configuration),
        )

    def observe(self) -> Observation:
        """Return what the cluster holds now; a missing Secret or configuration is no error."""
        material, version = self._read_secret()
        bundles = tuple(bundle for path in self._configurations for bundle in self._read_bundles(path))
        seen = Seen(material=material, published=tuple(bundle.pem for bundle in bundles))
        return Observation(seen=seen, version=version, bundles=bundles)

    def take(self, step: Step, observation: Observation, *, names: tuple[str, ...], now: dt.datetime) -> None:
        """Take one step of `certs.rotation` from an observed state.

        Raises Conflict or Invalid if the state has changed since: observe again.
        """
        material = observation.seen.material
        if step in {Step.ISSUE_AUTHORITY, Step.ISSUE_LEAF}:
            keep = None if step is Step.ISSUE_AUTHORITY or material is None else material.authority
            authority = keep or issue_authority(now)
            self._write_secret(Material(authority, issue_leaf(authority, names, now)), observation.version)
        elif step is Step.PUBLISH and material is not None:
            self._publish(material.authority.certificate, observation.bundles)

    def _read_secret(self) -> tuple[Material | None, str]:
        try:
            raw = self._client.get(SECRETS.path(self._namespace, self._secret))
        except NotFound:
            return None, ""
        secret = msgspec.json.decode(raw, type=_Secret)
        data = secret.data or {}
        authority = KeyPair(data.get(AUTHORITY_CERTIFICATE) or b"", data.get(AUTHORITY_KEY) or b"")
        leaf = KeyPair(data.get(LEAF_CERTIFICATE) or b"", data.get(LEAF_KEY) or b"")
        return Material(authority, leaf), secret.metadata.resource_version

    def _write_secret(self, material: Material, version: str) -> None:
        data = {
            AUTHORITY_CERTIFICATE: material.authority.certificate,
            AUTHORITY_KEY: material.authority.key,
            LEAF_CERTIFICATE: material.leaf.certificate,
            LEAF_KEY: material.leaf.key,
        }
        if version:
            path = SECRETS.path(self._namespace, self._secret)
            self._client.merge_patch(path, {"metadata": {"resourceVersion": version}, "data": data})
            return
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": self._secret, "labels": {"app.kubernetes.io/managed-by": "apportion"}},
            "data": data,
        }
        self._client.create(SECRETS.path(self._namespace), secret)

    def _read_bundles(self, path: str) -> list[Bundle]:
        try:
            raw = self._client.get(path)
        except NotFound:  # not installed (yet): nobody calls us by it
            return []
        webhooks = msgspec.json.decode(raw, type=_Configuration).webhooks or []
        return [
            Bundle(path=path, index=index, pem=webhook.client_config.ca_bundle or b"")
            for index, webhook in enumerate(webhooks)
        ]

    def _publish(self, pem: bytes, bundles: tuple[Bundle, ...]) -> None:
        for path in self._configurations:
            behind = [bundle for bundle in bundles if bundle.path == path and bundle.pem != pem]
            if behind:
                # Every webhook of ours gets the same bundle, so one that has moved meanwhile does no harm.
                ops = [
                    {"op": "add", "path": f"/webhooks/{bundle.index}/clientConfig/caBundle", "value": pem}
                    for bundle in behind
                ]
                self._client.json_patch(path, ops)


class _Meta(Struct, frozen=True, rename="camel"):
    resource_version: str


class _Secret(Struct, frozen=True):
    metadata: _Meta
    data: dict[str, bytes | None] | None = None


class _ClientConfig(Struct, frozen=True):
    ca_bundle: bytes | None = msgspec.field(name="caBundle", default=None)


class _Webhook(Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig


class _Configuration(Struct, frozen=True):
    webhooks: list[_Webhook] | None = None
