import io

import msgspec
import pytest
from structlog.testing import capture_logs

from webhook.app import PROBE, create_app
from webhook.endpoint import MOST_BYTES
from webhook.errors import MalformedReview
from webhook.metrics import Metrics

ALLOWED = b'{"response":{"uid":"1","allowed":true}}'
DENIED = b'{"response":{"uid":"1","allowed":false,"status":{"message":"say \\"allowed\\":true"}}}'
BODY = b'{"request":{"uid":"1"}}'


class Webhook:
    """The application with everything it is given replaced, and a client of it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.answer: bytes | Exception = ALLOWED
        self.ready = True
        self.reasons: list[str] = []
        self.metrics = Metrics()
        self.client = create_app(
            mutate=self.review,
            validate=self.review,
            synced=lambda: self.ready,
            unready=lambda: self.reasons,
            metrics=self.metrics,
        ).test_client()

    def review(self, body: bytes) -> bytes:
        self.bodies.append(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def post(self, path="/mutate", body=BODY, content_type="application/json", **kwargs):
        return self.client.post(path, data=body, content_type=content_type, **kwargs)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def webhook():
    return Webhook()


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(
    ("answer", "result"), [pytest.param(ALLOWED, "allowed", id="allowed"), pytest.param(DENIED, "denied", id="denied")]
)
def test_a_review_is_answered_with_200_whether_allowed_or_denied(webhook, path, answer, result):
    webhook.answer = answer
    response = webhook.post(path)
    assert (response.status_code, response.data, response.content_type) == (200, answer, "application/json")
    assert webhook.bodies == [BODY]
    assert webhook.metric("apportion_webhook_reviews_total", webhook=path[1:], result=result) == 1


REFUSALS = [
    pytest.param(MalformedReview("no request.uid"), 400, b"malformed review: no request.uid\n", "malformed", id="400"),
    pytest.param(KeyError("spec"), 500, b"internal error: KeyError\n", "failed", id="500"),
]


@pytest.mark.parametrize(("error", "status", "text", "result"), REFUSALS)
def test_what_cannot_be_answered_is_an_http_error_never_an_allowance(webhook, error, status, text, result):
    webhook.answer = error
    with capture_logs():
        response = webhook.post()
    assert (response.status_code, response.data) == (status, text)
    assert b"allowed" not in response.data
    assert webhook.metric("apportion_webhook_reviews_total", webhook="mutate", result=result) == 1


def test_a_failure_is_logged_with_its_trace_and_told_without_details(webhook):
    webhook.answer = RuntimeError("value of someone's env")
    with capture_logs() as logs:
        response = webhook.post()
    assert response.data == b"internal error: RuntimeError\n"
    assert [(log["event"], log["log_level"], log["exc_info"]) for log in logs] == [("review_failed", "error", True)]


def test_before_the_caches_are_filled_reviews_get_500_and_the_replica_is_unready(webhook):
    """W26: an empty cache must not answer `allowed`."""
    webhook.ready = False
    response = webhook.post()
    assert (response.status_code, response.data) == (500, b"the webhook has not read the cluster yet: try again\n")
    assert webhook.bodies == []
    assert webhook.metric("apportion_webhook_reviews_total", webhook="mutate", result="unsynced") == 1
    response = webhook.client.get("/readyz")
    assert (response.status_code, response.data) == (503, b"the cluster has not been read yet\n")


def test_readiness_lists_every_reason(webhook):
    assert webhook.client.get("/readyz").status_code == 200
    webhook.reasons = ["no certificate yet", "shutting down"]
    response = webhook.client.get("/readyz")
    assert (response.status_code, response.data) == (503, b"no certificate yet; shutting down\n")


def test_a_replica_that_is_unready_for_other_reasons_still_answers(webhook):
    """I09: during shutdown the endpoints lag behind, so calls still arrive."""
    webhook.reasons = ["shutting down"]
    assert webhook.post().status_code == 200


KINDS = [
    pytest.param("text/plain", 415, id="text"),
    pytest.param("", 415, id="none"),
    pytest.param("application/jsonp", 415, id="near-miss"),
    pytest.param("application/json; charset=utf-8", 200, id="with-charset"),
    pytest.param("Application/JSON", 200, id="case"),
]


@pytest.mark.parametrize(("content_type", "status"), KINDS)
def test_only_json_is_a_review(webhook, content_type, status):
    assert webhook.post(content_type=content_type).status_code == status


def test_a_body_beyond_the_limit_is_refused_unread(webhook):
    unread = io.BytesIO(b"x")
    response = webhook.client.post(
        "/mutate",
        content_type="application/json",
        environ_overrides={"wsgi.input": unread, "CONTENT_LENGTH": str(MOST_BYTES + 1)},
    )
    assert response.status_code == 413
    assert response.data == b"a review has at most 8388608 bytes, not 8388609\n"
    assert unread.tell() == 0
    assert webhook.metric("apportion_webhook_reviews_total", webhook="mutate", result="malformed") == 1


def test_a_body_without_a_length_is_refused_unread(webhook):
    unread = io.BytesIO(BODY)
    response = webhook.client.post(
        "/mutate",
        input_stream=unread,
        content_type="application/json",
        environ_overrides={"wsgi.input_terminated": True, "CONTENT_LENGTH": ""},
    )
    assert (response.status_code, response.data) == (411, b"a review comes with its Content-Length\n")
    assert (unread.tell(), webhook.bodies) == (0, [])


def test_an_update_with_two_objects_of_3_mib_is_within_the_limit(webhook):
    assert webhook.post(body=b"x" * (2 * 3 * 1024 * 1024)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/mutate", 404, id="review-by-get"),
        pytest.param("POST", "/elsewhere", 404, id="no-such-path"),
        pytest.param("POST", "/readyz", 405, id="ready-by-post"),
    ],
)
def test_other_requests_are_refused(webhook, method, path, status):
    response = webhook.client.open(path, method=method, data=BODY, content_type="application/json")
    assert response.status_code == status
    assert webhook.bodies == []


def test_health_takes_the_whole_way_of_a_review(webhook):
    """W40: a stuck or broken handler shows in the liveness probe, not only at the API server."""
    assert webhook.client.get("/healthz").status_code == 200
    assert webhook.bodies == [PROBE]
    webhook.answer = RuntimeError("broken")
    with capture_logs():
        response = webhook.client.get("/healthz")
    assert (response.status_code, response.data) == (500, b"internal error: RuntimeError\n")


def test_the_probe_is_a_review_without_side_effects():
    request = msgspec.json.decode(PROBE)["request"]
    assert request["dryRun"] is True
    assert request["object"]["metadata"]["annotations"] == {"nos.nebuly.com/gpu-fraction": "0.5"}


def test_a_health_check_counts_as_no_review(webhook):
    webhook.client.get("/healthz")
    assert webhook.metric("apportion_webhook_reviews_total", webhook="mutate", result="allowed") == 0


def test_metrics_tell_load_latency_and_the_end_of_the_certificate(webhook):
    webhook.metrics.watch_load(lambda: 40, 32)
    webhook.metrics.watch_certificate(lambda: 1785412800.0)
    webhook.post()
    text = webhook.client.get("/metrics").text
    assert 'apportion_webhook_reviews_total{result="allowed",webhook="mutate"} 1.0' in text
    assert 'apportion_webhook_review_seconds_count{webhook="mutate"} 1.0' in text
    assert "apportion_webhook_reviews_in_flight 0.0" in text
    assert "apportion_webhook_saturation 1.25" in text
    assert "apportion_webhook_threads 32.0" in text
    assert "apportion_webhook_certificate_expiry_timestamp_seconds 1.7854128e+09" in text


def test_in_flight_counts_while_a_review_runs_and_is_right_after_a_failure(webhook):
    seen = []
    webhook.answer = KeyError()
    original = webhook.metrics.in_flight._value.get

    def review(body):
        seen.append(original())
        raise KeyError

    client = create_app(
        mutate=review, validate=review, synced=lambda: True, unready=list, metrics=webhook.metrics
    ).test_client()
    with capture_logs():
        client.post("/mutate", data=BODY, content_type="application/json")
    assert (seen, original()) == ([1.0], 0.0)
