"""The envelope of a review: an AdmissionReview is read, an answer written; what is in it is another module's matter.

What is no review is malformed (HTTP 400). An object in it that cannot be read is denied, with every fault and its path.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from policies import names
from policies.admission import Admission
from policies.faults import misfits
from policies.patch import Operation
from webhook.errors import MalformedReview

_API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_OUR_ACCOUNTS: Final = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:"
_NODES: Final = "system:nodes"

T = TypeVar("T")
GroupResource = tuple[str, str]
"""Group and plural of what is written, such as `("apps", "deployments")`."""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] | None = None


class _Resource(msgspec.Struct, frozen=True):
    resource: str
    group: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What somebody wants to write. The objects are left as they came: who judges them knows what they are."""

    uid: str
    resource: _Resource
    operation: str
    sub_resource: str = ""
    namespace: str = ""
    user_info: _User = _User()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None

    @property
    def group_resource(self) -> GroupResource:
        """Return what is written."""
        return self.resource.group, self.resource.resource

    @property
    def judged(self) -> bool:
        """Return whether it is for us to judge: somebody else's write."""
        return self.operation in {"CREATE", "UPDATE"} and not self.user_info.username.startswith(_OUR_ACCOUNTS)

    @property
    def by_node(self) -> bool:
        """Return whether a kubelet asks."""
        return _NODES in (self.user_info.groups or ())


def read(body: bytes) -> Request:
    """Return the request in a body. Raises MalformedReview."""
    try:
        review = _reviews.decode(body)
    except msgspec.DecodeError as error:
        raise MalformedReview(str(error)) from error
    if (review.api_version, review.kind) != (_API_VERSION, _KIND):
        raise MalformedReview(f"{review.kind} of {review.api_version}: only {_KIND} of {_API_VERSION} is answered")
    return review.request


def decode(raw: msgspec.Raw, kind: type[T]) -> tuple[T | None, tuple[str, ...]]:
    """Return an object, or every fault because of which it cannot be read."""
    try:
        return msgspec.json.decode(raw, type=kind), ()
    except msgspec.ValidationError as error:
        return None, tuple(misfits(msgspec.json.decode(raw), kind) or [str(error)])


def allowed(request: Request, patch: Iterable[Operation] = (), warnings: tuple[str, ...] = ()) -> bytes:
    """Return the answer that lets it pass, changed by the patch."""
    operations = tuple(patch)
    return _encoder.encode(
        _Answer(
            _Response(
                uid=request.uid,
                allowed=True,
                patch_type="JSONPatch" if operations else None,
                patch=_encoder.encode(operations) if operations else None,
                warnings=warnings,
            )
        )
    )


def answered(request: Request, admission: Admission) -> bytes:
    """Return the answer that says what was decided on an object."""
    if admission.faults:
        return invalid(request, admission.faults)
    return allowed(request, admission.patch, admission.warnings)


def invalid(request: Request, faults: Iterable[str]) -> bytes:
    """Return the answer that refuses what can never be right, whoever asks."""
    return _denied(request, faults, 422, "Invalid")


def forbidden(request: Request, faults: Iterable[str]) -> bytes:
    """Return the answer that refuses what is not for this user to change."""
    return _denied(request, faults, 403, "Forbidden")


# ---------------------------------------------------------------------------------------------------------------------


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: Request


class _Status(msgspec.Struct, frozen=True):
    code: int
    reason: str
    message: str


class _Response(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: bytes | None = None  # msgspec writes bytes in base64, as the API wants them
    warnings: tuple[str, ...] = ()
    status: _Status | None = None


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    response: _Response
    api_version: str = _API_VERSION
    kind: str = _KIND


_reviews: Final = msgspec.json.Decoder(_Review)
_encoder: Final = msgspec.json.Encoder()


def _denied(request: Request, faults: Iterable[str], code: int, reason: str) -> bytes:
    status = _Status(code=code, reason=reason, message="\n".join(faults))
    return _encoder.encode(_Answer(_Response(uid=request.uid, allowed=False, status=status)))
