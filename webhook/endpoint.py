"""One review in, one answer out: what becomes of a POST with an AdmissionReview, as plain WSGI.

A review that can be answered is answered with 200, allowed or denied. All else is an HTTP error, so that
failurePolicy decides: nothing here ever makes up an `allowed: true`. Plain WSGI, because this is the one hot
path: routing, request and response objects of a framework double the cost of what surrounds a review.
"""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Final

import structlog

from webhook.errors import MalformedReview
from webhook.metrics import ALLOWED, DENIED, FAILED, MALFORMED, RESULTS, UNSYNCED, Metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

Review = Callable[[bytes], bytes]

# An object may have 1.5 MiB in etcd and more in JSON, and an UPDATE carries the old one too.
MOST_BYTES: Final = 8 * 1024 * 1024

# In compact JSON these bytes are a key of the answer: inside a text the quotes would be escaped.
_ALLOWED: Final = b'"allowed":true'

_OK: Final = "200 OK"
_MALFORMED: Final = "400 Bad Request"
_TOO_LARGE: Final = "413 Content Too Large"
_NO_LENGTH: Final = "411 Length Required"
_NOT_JSON: Final = "415 Unsupported Media Type"
_FAILED: Final = "500 Internal Server Error"
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"

_log = structlog.get_logger(__name__)


class ReviewEndpoint:
    """A WSGI application that answers reviews by one function, which raises MalformedReview where it cannot."""

    def __init__(self, review: Review, *, webhook: str, synced: Callable[[], bool], metrics: Metrics) -> None:
        """`webhook` names it in metrics and logs; before `synced`, reviews get HTTP 500."""
        self._review = review
        self._webhook = webhook
        self._synced = synced
        self._in_flight = metrics.in_flight
        self._seconds = metrics.seconds[webhook]
        self._results = {result: metrics.reviews[webhook, result] for result in RESULTS}

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer one request."""
        self._in_flight.inc()
        started = perf_counter()
        try:
            status, result, answer = self._answer(environ)
        finally:
            self._in_flight.dec()
        self._seconds.observe(perf_counter() - started)
        self._results[result].inc()
        kind = _JSON if status == _OK else _TEXT
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(answer)))])
        return (answer,)

    def _answer(self, environ: "WSGIEnvironment") -> tuple[str, str, bytes]:
        """Return the HTTP status, the result to count and the body."""
        try:
            body = _read(environ)
            if not self._synced():
                return _FAILED, UNSYNCED, b"the webhook has not read the cluster yet: try again\n"
            answer = self._review(body)
        except _Refused as error:
            return error.status, MALFORMED, f"{error}\n".encode()
        except MalformedReview as error:
            return _MALFORMED, MALFORMED, f"malformed review: {error}\n".encode()
        except Exception as error:  # noqa: BLE001 - the process goes on; failurePolicy decides on this object
            _log.exception("review_failed", webhook=self._webhook)
            return _FAILED, FAILED, f"internal error: {type(error).__name__}\n".encode()
        return _OK, (ALLOWED if _ALLOWED in answer else DENIED), answer


class _Refused(Exception):  # noqa: N818 - named for what becomes of the request
    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def _read(environ: "WSGIEnvironment") -> bytes:
    kind = environ.get("CONTENT_TYPE", "")
    if kind.partition(";")[0].strip().lower() != _JSON:
        raise _Refused(_NOT_JSON, f"a review is {_JSON}, not {kind or 'without a type'}")
    declared = environ.get("CONTENT_LENGTH")
    if not declared:  # in chunks: nobody could tell before the end whether there is room for it
        raise _Refused(_NO_LENGTH, "a review comes with its Content-Length")
    if int(declared) > MOST_BYTES:
        raise _Refused(_TOO_LARGE, f"a review has at most {MOST_BYTES} bytes, not {declared}")
    body: bytes = environ["wsgi.input"].read(int(declared))
    return body
