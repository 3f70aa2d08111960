"""What can go wrong between us and the API server, as types; and what a failed write may have done.

`ApiError` is an answer: the server spoke HTTP and said no. `Unreachable` is the lack of one. They are apart because
after a refusal nothing has changed, while after silence a write may have been done. `ConfigError` needs a person.
"""

# ruff: noqa: N818 (named for what has happened, as the API names it; "Error" would add nothing)

from typing import Final

import msgspec

BODY_SHOWN: Final = 256  # characters of a body that is no Status: proxies answer whole HTML pages


class ConfigError(Exception):
    """No usable kubeconfig or in-cluster configuration; the message says where it was looked for and what to do."""


class Unreachable(Exception):
    """The server could not be reached, or broke off before it had answered.

    `maybe_done` is False only if the request was surely not sent; else a write may have been done all the same.
    """

    def __init__(self, message: str, *, maybe_done: bool = True) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done


class TimedOut(Unreachable):
    """The answer did not end in time, or a watch was silent for longer than its read timeout."""


class ApiError(Exception):
    """The server's refusal: HTTP `status`, `reason` of its Status object (PascalCase, maybe empty), `message`.

    `retry_after_s` is the pause the server asks for, in seconds; 0.0 where it names none.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class Unauthorized(ApiError):
    """401: no, or no longer valid, credentials."""


class Forbidden(ApiError):
    """403: RBAC or an admission plugin forbids it."""


class NotFound(ApiError):
    """404: no such object, or no such resource (a CRD that is not installed)."""


class Conflict(ApiError):
    """409: the object has changed (reason `Conflict`) or exists already (reason `AlreadyExists`)."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old (reason `Expired` or `Gone`): list again."""


class Invalid(ApiError):
    """422: the object breaks a rule of its schema, or a JSON patch does not fit."""


class TooManyRequests(ApiError):
    """429: the server is busy, or, for an eviction, a PodDisruptionBudget forbids it now."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    kind: str | None = None
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)


def read_error(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error that a response of this HTTP status means; `retry_after` is its header, if any.

    A body that is no Status object is shown up to 256 characters.
    """
    try:
        answer = _STATUS.decode(body)
    except msgspec.DecodeError:
        answer = _Status()
    if answer.kind != "Status":
        answer = _Status(message=_shown(body))
    asked = answer.details.retry_after_seconds if answer.details else None
    if asked is None and retry_after is not None and retry_after.isdecimal():
        asked = int(retry_after)
    kind = _BY_STATUS.get(status, ApiError)
    return kind(status, answer.reason or "", answer.message or "", float(asked or 0))


def read_status_event(body: bytes) -> ApiError:
    """Return the error that an ERROR event of a watch carries: its Status brings the code itself."""
    try:
        code = _STATUS.decode(body).code
    except msgspec.DecodeError:
        code = None
    return read_error(code or 500, body)


def outcome_unknown(error: ApiError | Unreachable) -> bool:
    """Tell whether a write that ended in this error may have been done all the same.

    A 5xx counts as unknown: etcd may have committed what the server, or a proxy before it, did not wait for.
    """
    if isinstance(error, Unreachable):
        return error.maybe_done
    return error.status >= 500


def _shown(body: bytes) -> str:
    text = body[: 4 * BODY_SHOWN].decode(errors="replace")
    return text if len(text) <= BODY_SHOWN else text[:BODY_SHOWN] + "..."
