"""AdmissionReviews in, answers out: what is decided is `policies`' matter, how it is asked and told is told here.

A review is answered from memory and has no side effect, dry run or not. One that cannot be understood as a review is
malformed (HTTP 400); a pod in it that cannot be read is denied, with every fault and its path.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar

import msgspec

from policies import names
from policies.admission import Admission, admit, readmit
from policies.estimate import Standings
from policies.faults import misfits
from policies.governing import QuotaView, view_quota
from policies.inventory import Inventory
from policies.isolation import reaching_variables
from policies.model import CompositeElasticQuota, ElasticQuota, EnvVar, Namespace, Pod
from policies.patch import Operation
from policies.policy import BUILT_IN
from policies.quotarules import judge_quota
from policies.settings import Settings
from policies.validation import changed_by_users, has_slices, relabelled_by_users
from webhook.errors import MalformedReview

_API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_OUR_ACCOUNTS: Final = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:"
_NODES: Final = "system:nodes"
_MIRROR: Final = "kubernetes.io/config.mirror"  # the API's shadow of a static pod, which the kubelet runs anyway
_INVALID: Final = 422, "Invalid"
_FORBIDDEN: Final = 403, "Forbidden"

T = TypeVar("T")


class Cluster(Protocol):
    """What a review needs to know of the cluster; answered from memory."""

    @property
    def inventory(self) -> Inventory:
        """Return the nodes that matter for slices."""

    @property
    def standings(self) -> Standings:
        """Return the quotas with what they use."""

    @property
    def quotas(self) -> Iterable[QuotaView]:
        """Return all quotas, in force or not."""

    @property
    def settings(self) -> Settings:
        """Return the settings of the cluster."""

    def knows(self, namespace: str) -> bool:
        """Return whether there is a namespace of that name."""

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace that decisions read; empty if it is not known (yet)."""


def mutate(body: bytes, cluster: Cluster) -> bytes:
    """Return the answer of the mutating webhook. Raises MalformedReview."""
    request = _read(body)
    if request.kind != _PODS:
        raise MalformedReview(f"{request.resource.resource}: only pods are changed")
    if _not_asked(request) or request.sub_resource:
        return _allowed(request.uid)
    pod, faults = _decode(request.object, Pod)
    if pod is None:
        return _denied(request.uid, faults, _INVALID)
    if _MIRROR in (pod.metadata.annotations or {}) and _NODES in (request.user_info.groups or ()):
        return _allowed(request.uid)
    if request.operation == "UPDATE":
        old, faults = _decode(request.old_object, Pod)
        if old is None:
            return _denied(request.uid, faults, _INVALID)
        return _answered(request.uid, readmit(pod, old))
    return _answered(
        request.uid,
        admit(
            pod,
            namespace=request.namespace,
            labels=cluster.labels_of(request.namespace),
            inventory=cluster.inventory,
            settings=cluster.settings,
            standings=cluster.standings,
        ),
    )


def validate(body: bytes, cluster: Cluster) -> bytes:
    """Return the answer of the validating webhook. Raises MalformedReview."""
    request = _read(body)
    if _not_asked(request):
        return _allowed(request.uid)
    if quota := _QUOTAS.get(request.kind):
        return _validate_quota(request, quota, cluster)
    if request.operation != "UPDATE":
        return _allowed(request.uid)
    return _validate_pod(request) if request.kind == _PODS else _validate_namespace(request)


# ---------------------------------------------------------------------------------------------------------------------


def _validate_pod(request: "_Request") -> bytes:
    pod, faults = _decode(request.object, Pod)
    old, older = _decode(request.old_object, Pod)
    if pod is None or old is None:
        return _denied(request.uid, (*faults, *older), _INVALID)
    faults = tuple(changed_by_users(pod, old))
    if request.sub_resource == "ephemeralcontainers" and has_slices(old) and not BUILT_IN.visible_devices:
        faults += _debuggers(request)
    return _denied(request.uid, faults, _FORBIDDEN) if faults else _allowed(request.uid)


def _validate_namespace(request: "_Request") -> bytes:
    namespace, faults = _decode(request.object, Namespace)
    old, older = _decode(request.old_object, Namespace)
    if namespace is None or old is None:
        return _denied(request.uid, (*faults, *older), _INVALID)
    faults = tuple(relabelled_by_users(namespace, old))
    return _denied(request.uid, faults, _FORBIDDEN) if faults else _allowed(request.uid)


def _validate_quota(request: "_Request", kind: "type[ElasticQuota | CompositeElasticQuota]", cluster: Cluster) -> bytes:
    quota, faults = _decode(request.object, kind)
    if quota is None:
        return _denied(request.uid, faults, _INVALID)
    old = _decode(request.old_object, kind)[0] if request.operation == "UPDATE" else None
    if old and (quota.metadata.deletion_timestamp or quota.spec == old.spec):
        return _allowed(request.uid)  # a finalizer that goes, for one: what stands there already is not judged again
    judged = judge_quota(view_quota(quota), cluster.quotas, view_quota(old) if old else None, exists=cluster.knows)
    if judged.faults:
        return _denied(request.uid, judged.faults, _INVALID)
    return _allowed(request.uid, warnings=judged.warnings)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] | None = None


class _Resource(msgspec.Struct, frozen=True):
    resource: str
    group: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    resource: _Resource
    operation: str
    sub_resource: str = ""
    namespace: str = ""
    user_info: _User = _User()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def kind(self) -> tuple[str, str]:
        """Return group and plural of what is written."""
        return self.resource.group, self.resource.resource


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


class _EphemeralContainer(msgspec.Struct, frozen=True):
    name: str
    env: tuple[EnvVar, ...] | None = None


class _DebuggedSpec(msgspec.Struct, frozen=True, rename="camel"):
    ephemeral_containers: tuple[_EphemeralContainer, ...] | None = None


class _Debugged(msgspec.Struct, frozen=True):
    spec: _DebuggedSpec


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


_PODS: Final = "", "pods"
_NAMESPACES: Final = "", "namespaces"
_QUOTAS: Final[Mapping[tuple[str, str], type[ElasticQuota | CompositeElasticQuota]]] = {
    (names.API_GROUP, "elasticquotas"): ElasticQuota,
    (names.API_GROUP, "compositeelasticquotas"): CompositeElasticQuota,
}

_reviews: Final = msgspec.json.Decoder(_Review)
_encoder: Final = msgspec.json.Encoder()


def _read(body: bytes) -> _Request:
    try:
        review = _reviews.decode(body)
    except msgspec.DecodeError as error:
        raise MalformedReview(str(error)) from error
    if (review.api_version, review.kind) != (_API_VERSION, _KIND):
        raise MalformedReview(f"{review.kind} of {review.api_version}: only {_KIND} of {_API_VERSION} is answered")
    request = review.request
    if request.kind not in (_PODS, _NAMESPACES, *_QUOTAS):
        raise MalformedReview(f"{request.resource.resource}: only pods, namespaces and quotas are reviewed")
    return request


def _not_asked(request: _Request) -> bool:
    """Return whether the request is none that is judged: no write, or our own."""
    return request.operation not in ("CREATE", "UPDATE") or request.user_info.username.startswith(_OUR_ACCOUNTS)


def _decode(raw: msgspec.Raw, kind: type[T]) -> tuple[T | None, tuple[str, ...]]:
    """Return an object, or every fault because of which it cannot be read."""
    try:
        return msgspec.json.decode(raw, type=kind), ()
    except msgspec.ValidationError as error:
        return None, tuple(misfits(msgspec.json.decode(raw), kind) or [str(error)])


def _debuggers(request: _Request) -> tuple[str, ...]:
    """Return the faults of ephemeral containers that come with this update; those that are there cannot change."""
    now, faults = _decode(request.object, _Debugged)
    before, _ = _decode(request.old_object, _Debugged)
    if now is None:
        return faults
    known = {container.name for container in (before and before.spec.ephemeral_containers) or ()}
    return tuple(
        fault
        for index, container in enumerate(now.spec.ephemeral_containers or ())
        if container.name not in known
        for fault in reaching_variables(f"spec.ephemeralContainers[{index}]", container.env or ())
    )


def _answered(uid: str, admission: Admission) -> bytes:
    if admission.faults:
        return _denied(uid, admission.faults, _INVALID)
    return _allowed(uid, admission.patch, admission.warnings)


def _allowed(uid: str, patch: Iterable[Operation] = (), warnings: tuple[str, ...] = ()) -> bytes:
    operations = tuple(patch)
    return _encoder.encode(
        _Answer(
            _Response(
                uid=uid,
                allowed=True,
                patch_type="JSONPatch" if operations else None,
                patch=_encoder.encode(operations) if operations else None,
                warnings=warnings,
            )
        )
    )


def _denied(uid: str, faults: Iterable[str], kind: tuple[int, str]) -> bytes:
    code, reason = kind
    status = _Status(code=code, reason=reason, message="\n".join(faults))
    return _encoder.encode(_Answer(_Response(uid=uid, allowed=False, status=status)))
