"""Issue an authority (CA) and a leaf for the webhook server, as PEM: EC P-256, signed with SHA-256.

Pure but for the randomness of keys and serial numbers, which no caller may choose. Times are aware UTC
datetimes. Nothing here reads or writes: `certs.store` keeps the outcome.
"""

import datetime as dt
import ipaddress
from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

AUTHORITY_LIFE: Final = dt.timedelta(days=3 * 365)
LEAF_LIFE: Final = dt.timedelta(days=90)
# The API server's clock may be behind ours: a certificate must not start in its future.
BACKDATED: Final = dt.timedelta(hours=1)

AUTHORITY_NAME: Final = "apportion webhook authority"
# X.509 limits a common name to 64 characters; clients read the alternative names instead.
LEAF_NAME: Final = "apportion webhook"


class KeyPair(Struct, frozen=True):
    """A certificate and its private key, both PEM; either is empty where it is missing."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Return a text without the key: tracebacks and logs print arguments."""
        return f"KeyPair({len(self.certificate)} bytes of certificate, key hidden)"


class Material(Struct, frozen=True):
    """What the webhook's TLS needs: the authority that signs, and the leaf that is served."""

    authority: KeyPair
    leaf: KeyPair


def issue_authority(now: dt.datetime) -> KeyPair:
    """Return a new self-signed authority, valid from an hour ago for `AUTHORITY_LIFE`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(AUTHORITY_NAME)
    certificate = (
        _builder(name, name, key.public_key(), now - BACKDATED, now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue_leaf(authority: KeyPair, names: Iterable[str], now: dt.datetime) -> KeyPair:
    """Return a new server certificate for DNS names and IP addresses, signed by the authority.

    Valid from an hour ago for `LEAF_LIFE`, but never longer than the authority: a leaf that outlives it
    would be refused while it still looks valid. Raises ValueError without a name, or if the authority
    cannot be read.
    """
    wanted = sorted(set(names))
    if not wanted:
        raise ValueError("a server certificate needs at least one DNS name or IP address")
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + LEAF_LIFE, signer.not_valid_after_utc)
    certificate = (
        _builder(_name(LEAF_NAME), signer.subject, key.public_key(), now - BACKDATED, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([general_name(name) for name in wanted]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
            critical=False,
        )
        .sign(signing_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def general_name(name: str) -> x509.DNSName | x509.IPAddress:
    """Return a name as X.509 has it: an address if it reads as one, else a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    start: dt.datetime,
    end: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
