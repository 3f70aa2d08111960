"""Decide what the webhook's certificates need next, from what the cluster holds. Pure: the clock is an argument.

`decide` walks a chain of checks and stops at the first that is violated, so the most fundamental fault is
mended first; the caller applies that one step, looks again and asks again, until the answer is SERVE. A
renewal before expiry, with two authorities in the bundle for a while, is further links in the same chain.
"""

import datetime as dt
import enum
from collections.abc import Callable
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from msgspec import Struct

from certs.issue import KeyPair, Material, general_name


class Step(enum.Enum):
    """What to do next; each makes the next look at the cluster come out better."""

    ISSUE_AUTHORITY = "issue authority"  # a new authority and a new leaf, written to the Secret
    ISSUE_LEAF = "issue leaf"  # a new leaf of the authority that is there: no client notices
    PUBLISH = "publish"  # write the authority's certificate into every caBundle that differs
    SERVE = "serve"  # Secret and bundles agree


class Seen(Struct, frozen=True, kw_only=True):
    """What the cluster holds: the Secret's content (None without a Secret) and the caBundle of each webhook."""

    material: Material | None
    published: tuple[bytes, ...] = ()


class Decision(Struct, frozen=True, kw_only=True):
    """One step with its reason: a PascalCase word for machines and a sentence for people."""

    step: Step
    reason: str
    message: str


class _Case(Struct, frozen=True, kw_only=True):
    material: Material
    published: tuple[bytes, ...]
    names: tuple[str, ...]
    now: dt.datetime


_Check = Callable[[_Case], Decision | None]


def decide(seen: Seen, *, names: tuple[str, ...], now: dt.datetime) -> Decision:
    """Return the next step for a server that is called by all of these DNS names and addresses.

    Names beyond those asked for are no fault: replicas of two versions may ask for different ones.
    """
    if seen.material is None:
        return Decision(step=Step.ISSUE_AUTHORITY, reason="SecretMissing", message="there is no Secret yet")
    case = _Case(material=seen.material, published=seen.published, names=names, now=now)
    for check in _CHAIN:
        if violated := check(case):
            return violated
    return Decision(step=Step.SERVE, reason="UpToDate", message="the Secret and every caBundle agree")


def _authority_unusable(case: _Case) -> Decision | None:
    return _pair_fault(case.material.authority, case.now, Step.ISSUE_AUTHORITY, "Authority")


def _leaf_unusable(case: _Case) -> Decision | None:
    return _pair_fault(case.material.leaf, case.now, Step.ISSUE_LEAF, "Leaf")


def _leaf_of_another_authority(case: _Case) -> Decision | None:
    leaf, authority = _certificate(case.material.leaf), _certificate(case.material.authority)
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        message = "the leaf is not signed by the authority beside it"
        return Decision(step=Step.ISSUE_LEAF, reason="LeafForeign", message=message)
    return None


def _leaf_names_missing(case: _Case) -> Decision | None:
    try:
        extension = _certificate(case.material.leaf).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        present = frozenset(extension.value)
    except (x509.ExtensionNotFound, ValueError):
        present = frozenset()
    missing = [name for name in case.names if general_name(name) not in present]
    if not missing:
        return None
    return Decision(step=Step.ISSUE_LEAF, reason="LeafNamesMissing", message=f"the leaf lacks {', '.join(missing)}")


def _bundle_differs(case: _Case) -> Decision | None:
    wanted = case.material.authority.certificate
    behind = sum(bundle != wanted for bundle in case.published)
    if not behind:
        return None
    message = f"{behind} of {len(case.published)} caBundles do not hold the authority"
    return Decision(step=Step.PUBLISH, reason="BundleDiffers", message=message)


# In order: what a later check reads, an earlier one has found readable.
_CHAIN: Final[tuple[_Check, ...]] = (
    _authority_unusable,  # nothing can be signed or trusted
    _leaf_unusable,  # nothing can be served
    _leaf_of_another_authority,  # "unknown authority" at every call
    _leaf_names_missing,  # the server is called by another name now
    _bundle_differs,  # clients do not trust the authority yet
)


def _pair_fault(pair: KeyPair, now: dt.datetime, step: Step, what: str) -> Decision | None:
    fault = _fault(pair, now)
    if fault is None:
        return None
    reason, message = fault
    return Decision(step=step, reason=what + reason, message=f"the {what.lower()} {message}")


def _fault(pair: KeyPair, now: dt.datetime) -> tuple[str, str] | None:
    if not pair.certificate or not pair.key:
        return "Missing", "has no certificate or no key"
    try:
        certificate = _certificate(pair)
        key = serialization.load_pem_private_key(pair.key, password=None)
        matches = certificate.public_key() == key.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "Unreadable", "cannot be read as PEM"
    if not matches:
        return "Mismatched", "has a key of another certificate"
    if now >= certificate.not_valid_after_utc:
        return "Expired", f"expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if now < certificate.not_valid_before_utc:
        return "NotYetValid", f"is valid only from {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)
