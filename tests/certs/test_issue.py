import datetime as dt
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.issue import issue_authority, issue_leaf
from certs.sslcontext import build_context

HOST = "apportion-webhook.apportion-system.svc"


def read(pair):
    return x509.load_pem_x509_certificate(pair.certificate)


def extension(pair, kind):
    return read(pair).extensions.get_extension_for_class(kind)


def test_an_authority_may_sign_certificates_but_no_further_authorities(material):
    constraints = extension(material.authority, x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert extension(material.authority, x509.KeyUsage).value.key_cert_sign


def test_a_leaf_is_a_server_and_nothing_else(material):
    assert extension(material.leaf, x509.BasicConstraints).value.ca is False
    assert list(extension(material.leaf, x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    usage = extension(material.leaf, x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)


def test_a_leaf_answers_to_its_dns_names_and_addresses(material):
    names = extension(material.leaf, x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]


def test_keys_are_elliptic_on_p256(material):
    for pair in (material.authority, material.leaf):
        key = read(pair).public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"


def test_certificates_start_an_hour_ago_for_clocks_that_lag(material):
    """C08: a leaf whose notBefore lies ahead of the API server's clock is refused."""
    for pair in (material.authority, material.leaf):
        assert read(pair).not_valid_before_utc == dt.datetime(2026, 5, 1, 11, tzinfo=dt.UTC)


def test_an_authority_lives_three_years_and_a_leaf_ninety_days(material):
    assert read(material.authority).not_valid_after_utc == dt.datetime(2029, 4, 30, 12, tzinfo=dt.UTC)
    assert read(material.leaf).not_valid_after_utc == dt.datetime(2026, 7, 30, 12, tzinfo=dt.UTC)


def test_a_leaf_never_outlives_its_authority(material, now):
    late = now + dt.timedelta(days=3 * 365 - 10)
    leaf = issue_leaf(material.authority, [HOST], late)
    assert read(leaf).not_valid_after_utc == read(material.authority).not_valid_after_utc


def test_a_leaf_without_a_name_is_refused(material, now):
    with pytest.raises(ValueError, match="at least one DNS name or IP address"):
        issue_leaf(material.authority, [], now)


def test_a_key_pair_does_not_print_its_key(material):
    assert "PRIVATE" not in repr(material)
    assert repr(material.leaf).endswith("bytes of certificate, key hidden)")


@pytest.mark.parametrize("host", [pytest.param(HOST, id="dns"), pytest.param("127.0.0.1", id="address")])
def test_a_client_that_trusts_the_authority_accepts_the_leaf(tls, host):
    authority = issue_authority(dt.datetime.now(dt.UTC))
    context = build_context(issue_leaf(authority, [HOST, "127.0.0.1"], dt.datetime.now(dt.UTC)))
    with tls.serving(lambda: context) as address:
        tls.dial(address, authority, host)


def test_that_success_needed_the_right_authority_and_the_right_name(tls):
    authority, other = issue_authority(dt.datetime.now(dt.UTC)), issue_authority(dt.datetime.now(dt.UTC))
    context = build_context(issue_leaf(authority, [HOST], dt.datetime.now(dt.UTC)))
    with tls.serving(lambda: context) as address:
        with pytest.raises(ssl.SSLCertVerificationError):
            tls.dial(address, other, HOST)
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            tls.dial(address, authority, "apportion-webhook.elsewhere.svc")
