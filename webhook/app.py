"""The HTTP side of the admission webhook: reviews, and the endpoints by which it is watched.

Reviews (`/mutate`, `/validate`) go straight to `webhook.endpoint`; Flask serves the rest. Everything is answered
from memory by the functions handed in; nothing here does input or output.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import structlog
from flask import Flask, Response, request
from prometheus_client import CONTENT_TYPE_LATEST
from werkzeug.exceptions import HTTPException

from webhook.endpoint import Review, ReviewEndpoint
from webhook.metrics import MUTATE, VALIDATE, Metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

# A small pod that takes the whole way of a review. dryRun: whatever a review may come to do besides answering,
# it does not do it for this one.
PROBE: Final = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"health","operation":"CREATE",'
    b'"dryRun":true,"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1",'
    b'"resource":"pods"},"namespace":"apportion-health","name":"health","userInfo":{"username":"system:apportion",'
    b'"groups":["system:authenticated"]},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"health",'
    b'"annotations":{"nos.nebuly.com/gpu-fraction":"0.5"}},"spec":{"containers":[{"name":"main","image":"health"}]}}}}'
)

_log = structlog.get_logger(__name__)


def create_app(
    *,
    mutate: Review,
    validate: Review,
    synced: Callable[[], bool],
    unready: Callable[[], Sequence[str]],
    metrics: Metrics,
) -> Flask:
    """Return the WSGI application.

    `mutate` and `validate` turn a review's body into its answer and raise MalformedReview where there is none.
    Before `synced`, reviews get HTTP 500. `unready` lists what else keeps this replica from being called.
    """
    app = Flask("webhook")

    @app.get("/healthz")
    def healthz() -> Response:
        # Pain W40: a process that runs may still be unable to answer, so it has to answer.
        mutate(PROBE)
        return _text(200, "ok")

    @app.get("/readyz")
    def readyz() -> Response:
        reasons = [*([] if synced() else ["the cluster has not been read yet"]), *unready()]
        return _text(503, "; ".join(reasons)) if reasons else _text(200, "ok")

    @app.get("/metrics")
    def render() -> Response:
        return Response(metrics.render(), content_type=CONTENT_TYPE_LATEST)

    app.register_error_handler(HTTPException, _refuse)
    app.register_error_handler(Exception, _fail)

    flask = app.wsgi_app
    reviews = {
        "/mutate": ReviewEndpoint(mutate, webhook=MUTATE, synced=synced, metrics=metrics),
        "/validate": ReviewEndpoint(validate, webhook=VALIDATE, synced=synced, metrics=metrics),
    }

    def route(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        endpoint = reviews.get(environ["PATH_INFO"]) if environ["REQUEST_METHOD"] == "POST" else None
        return (endpoint or flask)(environ, start_response)

    app.wsgi_app = route  # type: ignore[method-assign]  # Flask's documented place for middleware
    return app


def _refuse(error: HTTPException) -> Response:
    return _text(error.code or 500, error.description or error.name)


def _fail(error: Exception) -> Response:
    _log.error("request_failed", path=request.path, error=repr(error), exc_info=error)
    return _text(500, f"internal error: {type(error).__name__}")


def _text(status: int, text: str) -> Response:
    return Response(text + "\n", status=status, content_type="text/plain; charset=utf-8")
