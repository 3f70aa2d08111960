"""Events against a scripted API server: what is written, what is counted, and that nobody ever waits for it."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from kube.client import Client
from kube.events import EventRecorder, ObjectRef
from tests.apiserver.server import PATIENCE_S, ApiServer, Request, Wire
from tests.apiserver.steps import refusal

POD = ObjectRef(api_version="v1", kind="Pod", name="train-0", namespace="team-a", uid="u1")
NODE = ObjectRef(api_version="v1", kind="Node", name="n1", uid="u2")
PATH = "/api/v1/namespaces/team-a/events"


def created(_: Request, wire: Wire) -> None:
    wire.json(201, {"metadata": {"name": "train-0.x7k2p", "namespace": "team-a"}})


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `close` wait for a busy machine: what is written later is written into the next test."""
    monkeypatch.setattr("kube.events.CLOSE_S", PATIENCE_S)


@pytest.fixture
def minutes() -> Iterator[datetime]:
    return (datetime(2026, 11, 30, 12, minute, tzinfo=UTC) for minute in range(60))


@pytest.fixture
def recorder(client: Client, minutes: Iterator[datetime]) -> Iterator[EventRecorder]:
    events = EventRecorder(client, "apportion", clock=lambda: next(minutes))
    yield events
    events.close()


def test_an_event_names_its_object_so_that_kubectl_describe_shows_it(
    server: ApiServer, recorder: EventRecorder
) -> None:
    server.route("POST", PATH, created)
    recorder.record(POD, "Warning", "Evicted", "evicted for team-b/train-1")
    (request,) = server.wait_for(1, "POST", PATH)
    assert json.loads(request.body) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "train-0.", "namespace": "team-a"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "namespace": "team-a", "uid": "u1"},
        "type": "Warning",
        "reason": "Evicted",
        "message": "evicted for team-b/train-1",
        "source": {"component": "apportion"},
        "reportingComponent": "apportion",
        "firstTimestamp": "2026-11-30T12:00:00Z",
        "lastTimestamp": "2026-11-30T12:00:00Z",
        "count": 1,
    }


def test_an_event_of_a_cluster_scoped_object_lives_in_the_default_namespace(
    server: ApiServer, recorder: EventRecorder
) -> None:
    server.route("POST", "/api/v1/namespaces/default/events", created)
    recorder.record(NODE, "Normal", "Partitioned", "cut")
    (request,) = server.wait_for(1, "POST", "/api/v1/namespaces/default/events")
    assert json.loads(request.body)["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u2"}


def test_repeats_raise_the_count_of_the_event_that_was_written(server: ApiServer, recorder: EventRecorder) -> None:
    server.route("POST", PATH, created)
    server.route("PATCH", f"{PATH}/train-0.x7k2p", created)
    recorder.record(POD, "Normal", "Waiting", "needs 3g.20gb")
    server.wait_for(1, "POST", PATH)
    recorder.record(POD, "Normal", "Waiting", "needs 3g.20gb")
    (request,) = server.wait_for(1, "PATCH", f"{PATH}/train-0.x7k2p")
    assert json.loads(request.body) == {"count": 2, "lastTimestamp": "2026-11-30T12:01:00Z"}
    recorder.record(POD, "Normal", "Waiting", "needs 4g.20gb")
    server.wait_for(2, "POST", PATH)


def test_an_event_that_the_server_has_forgotten_is_written_anew_with_its_count(
    server: ApiServer, recorder: EventRecorder
) -> None:
    server.route("POST", PATH, created)
    recorder.record(POD, "Normal", "Waiting", "x")
    server.wait_for(1, "POST", PATH)
    recorder.record(POD, "Normal", "Waiting", "x")
    _, again = server.wait_for(2, "POST", PATH)
    event = json.loads(again.body)
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        2,
        "2026-11-30T12:00:00Z",
        "2026-11-30T12:01:00Z",
    )


@pytest.mark.parametrize(
    ("message", "written"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="fits"),
        pytest.param("x" * 1025, "x" * 1021 + "...", id="cut"),
        pytest.param("é" * 600, "é" * 510 + "...", id="counted-in-bytes-and-cut-between-characters"),
    ],
)
def test_a_message_is_cut_at_1024_bytes(server: ApiServer, recorder: EventRecorder, message: str, written: str) -> None:
    server.route("POST", PATH, created)
    recorder.record(POD, "Normal", "Waiting", message)
    (request,) = server.wait_for(1, "POST", PATH)
    assert json.loads(request.body)["message"] == written


def test_a_server_that_does_not_answer_holds_up_nobody_and_repeats_are_counted_meanwhile(
    server: ApiServer, recorder: EventRecorder
) -> None:
    answer = threading.Event()

    def slow(request: Request, wire: Wire) -> None:
        assert answer.wait(PATIENCE_S)
        created(request, wire)

    server.route("POST", PATH, slow)
    recorder.record(POD, "Normal", "First", "x")
    server.wait_for(1, "POST", PATH)
    for _ in range(50):
        recorder.record(POD, "Normal", "Second", "x")
    answer.set()
    _, second = server.wait_for(2, "POST", PATH)
    assert (json.loads(second.body)["reason"], json.loads(second.body)["count"]) == ("Second", 50)


def test_more_events_than_can_wait_are_dropped_and_counted_in_the_log(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.events.WAITING", 10)
    answer = threading.Event()

    def slow(request: Request, wire: Wire) -> None:
        assert answer.wait(PATIENCE_S)
        created(request, wire)

    server.route("POST", PATH, slow)
    with capture_logs() as logs:
        recorder = EventRecorder(client, "apportion")
        recorder.record(POD, "Normal", "First", "x")
        server.wait_for(1, "POST", PATH)
        for number in range(10 + 7):
            recorder.record(POD, "Normal", "Flood", str(number))
        answer.set()
        server.wait_for(2, "POST", PATH)
    recorder.close()
    assert [(e["event"], e["count"]) for e in logs if e["event"] == "events_dropped"] == [("events_dropped", 7)]


def test_an_event_that_fails_is_logged_and_the_next_one_is_written(server: ApiServer, client: Client) -> None:
    server.route("POST", PATH, refusal(403, "Forbidden"), created)
    with capture_logs() as logs:
        recorder = EventRecorder(client, "apportion")
        recorder.record(POD, "Normal", "First", "x")
        server.wait_for(1, "POST", PATH)
        recorder.record(POD, "Normal", "Second", "x")
        server.wait_for(2, "POST", PATH)
        recorder.close()
    assert [(e["log_level"], e["event"], e["reason"]) for e in logs] == [("warning", "event_not_written", "First")]


def test_what_waits_is_written_at_the_end_and_nothing_is_taken_after_it(server: ApiServer, client: Client) -> None:
    server.route("POST", PATH, created)
    recorder = EventRecorder(client, "apportion")
    for number in range(20):
        recorder.record(POD, "Normal", "Waiting", str(number))
    recorder.close()
    assert len(server.asked("POST", PATH)) == 20
    recorder.record(POD, "Normal", "Late", "x")
    assert len(server.asked("POST", PATH)) == 20
