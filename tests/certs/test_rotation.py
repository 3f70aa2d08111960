import datetime as dt

import pytest
from msgspec.structs import replace

from certs.issue import KeyPair, Material, issue_authority, issue_leaf
from certs.rotation import Decision, Seen, Step, decide

NOW = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
HOST = "apportion-webhook.apportion-system.svc"
NAMES = (HOST, "127.0.0.1")

AUTHORITY = issue_authority(NOW)
OTHER = issue_authority(NOW)
LEAF = issue_leaf(AUTHORITY, NAMES, NOW)
FOREIGN = issue_leaf(OTHER, NAMES, NOW)
GOOD = Material(AUTHORITY, LEAF)
TORN = KeyPair(LEAF.certificate[:200], LEAF.key)
LONG_AGO = NOW - dt.timedelta(days=3 * 365)

CASES = [
    pytest.param(None, (), Step.ISSUE_AUTHORITY, "SecretMissing", "there is no Secret yet", id="no-secret"),
    pytest.param(
        Material(KeyPair(b"", b""), KeyPair(b"", b"")),
        (AUTHORITY.certificate,),
        Step.ISSUE_AUTHORITY,
        "AuthorityMissing",
        "the authority has no certificate or no key",
        id="C10-emptied-secret",
    ),
    pytest.param(
        Material(KeyPair(AUTHORITY.certificate, b""), LEAF),
        (),
        Step.ISSUE_AUTHORITY,
        "AuthorityMissing",
        "the authority has no certificate or no key",
        id="authority-without-key",
    ),
    pytest.param(
        Material(KeyPair(b"not PEM", AUTHORITY.key), LEAF),
        (),
        Step.ISSUE_AUTHORITY,
        "AuthorityUnreadable",
        "the authority cannot be read as PEM",
        id="authority-unreadable",
    ),
    pytest.param(
        Material(KeyPair(AUTHORITY.certificate, OTHER.key), LEAF),
        (),
        Step.ISSUE_AUTHORITY,
        "AuthorityMismatched",
        "the authority has a key of another certificate",
        id="authority-mismatched",
    ),
    pytest.param(
        Material(issue_authority(LONG_AGO), LEAF),
        (),
        Step.ISSUE_AUTHORITY,
        "AuthorityExpired",
        "the authority expired at 2026-05-01T12:00:00Z",
        id="C08-authority-expired-this-second",
    ),
    pytest.param(
        Material(AUTHORITY, KeyPair(b"", b"")),
        (),
        Step.ISSUE_LEAF,
        "LeafMissing",
        "the leaf has no certificate or no key",
        id="leaf-missing",
    ),
    pytest.param(
        Material(AUTHORITY, TORN),
        (),
        Step.ISSUE_LEAF,
        "LeafUnreadable",
        "the leaf cannot be read as PEM",
        id="C01-leaf-half-written",
    ),
    pytest.param(
        Material(AUTHORITY, KeyPair(LEAF.certificate, FOREIGN.key)),
        (),
        Step.ISSUE_LEAF,
        "LeafMismatched",
        "the leaf has a key of another certificate",
        id="leaf-mismatched",
    ),
    pytest.param(
        Material(AUTHORITY, issue_leaf(AUTHORITY, NAMES, NOW - dt.timedelta(days=91))),
        (),
        Step.ISSUE_LEAF,
        "LeafExpired",
        "the leaf expired at 2026-04-30T12:00:00Z",
        id="C08-leaf-expired",
    ),
    pytest.param(
        Material(AUTHORITY, issue_leaf(AUTHORITY, NAMES, NOW + dt.timedelta(hours=2))),
        (),
        Step.ISSUE_LEAF,
        "LeafNotYetValid",
        "the leaf is valid only from 2026-05-01T13:00:00Z",
        id="C08-leaf-of-a-clock-two-hours-ahead",
    ),
    pytest.param(
        Material(AUTHORITY, FOREIGN),
        (AUTHORITY.certificate,),
        Step.ISSUE_LEAF,
        "LeafForeign",
        "the leaf is not signed by the authority beside it",
        id="C03-leaf-of-another-authority",
    ),
    pytest.param(
        Material(AUTHORITY, issue_leaf(AUTHORITY, ["apportion-webhook.elsewhere.svc"], NOW)),
        (),
        Step.ISSUE_LEAF,
        "LeafNamesMissing",
        "the leaf lacks apportion-webhook.apportion-system.svc, 127.0.0.1",
        id="other-names",
    ),
    pytest.param(
        GOOD,
        (b"", AUTHORITY.certificate),
        Step.PUBLISH,
        "BundleDiffers",
        "1 of 2 caBundles do not hold the authority",
        id="C12-secret-present-configuration-new",
    ),
    pytest.param(
        GOOD,
        (OTHER.certificate, b"rubbish"),
        Step.PUBLISH,
        "BundleDiffers",
        "2 of 2 caBundles do not hold the authority",
        id="C12-bundle-of-an-earlier-installation",
    ),
    pytest.param(
        GOOD,
        (AUTHORITY.certificate, AUTHORITY.certificate),
        Step.SERVE,
        "UpToDate",
        "the Secret and every caBundle agree",
        id="C11-nothing-to-do",
    ),
    pytest.param(
        GOOD, (), Step.SERVE, "UpToDate", "the Secret and every caBundle agree", id="no-configuration-installed"
    ),
]


@pytest.mark.parametrize(("material", "published", "step", "reason", "message"), CASES)
def test_each_fault_leads_to_the_step_that_mends_it(material, published, step, reason, message):
    decision = decide(Seen(material=material, published=published), names=NAMES, now=NOW)
    assert decision == Decision(step=step, reason=reason, message=message)


def test_names_beyond_those_asked_for_are_no_fault():
    """Replicas of two versions may ask for different names; they must not overwrite each other's leaf."""
    assert decide(Seen(material=GOOD), names=(HOST,), now=NOW).step is Step.SERVE


def test_a_fault_of_the_authority_is_mended_before_one_of_the_leaf():
    broken = Material(KeyPair(b"", b""), TORN)
    assert decide(Seen(material=broken), names=NAMES, now=NOW).reason == "AuthorityMissing"


def test_certificates_are_valid_until_the_very_second_of_their_end():
    end = NOW + dt.timedelta(days=90)
    seen = Seen(material=GOOD)
    assert decide(seen, names=NAMES, now=end - dt.timedelta(seconds=1)).step is Step.SERVE
    assert decide(seen, names=NAMES, now=end).reason == "LeafExpired"


def test_a_leaf_with_a_torn_key_is_unreadable():
    torn = replace(GOOD, leaf=KeyPair(LEAF.certificate, LEAF.key[:80]))
    assert decide(Seen(material=torn), names=NAMES, now=NOW).reason == "LeafUnreadable"
