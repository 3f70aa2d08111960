"""The client against a server over real TLS: errors as types, tokens that change, connections that are kept."""

import itertools
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from kube.client import CONNECTIONS, Client
from kube.errors import (
    ApiError,
    ConfigError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    outcome_unknown,
)
from kube.resource import NODES, PODS
from tests.apiserver.server import PATIENCE_S, ApiServer, Request, Wire
from tests.apiserver.steps import Live, events, pod, refusal

THING = "/api/v1/namespaces/ns/configmaps/thing"


def echo(request: Request, wire: Wire) -> None:
    wire.json(
        200,
        {
            "method": request.method,
            "type": request.headers["Content-Type"],
            "query": request.query,
            "body": request.body.decode(),
        },
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(
            lambda c: c.get(THING, limit="1"),
            {"method": "GET", "type": "application/json", "query": {"limit": "1"}, "body": ""},
            id="get",
        ),
        pytest.param(
            lambda c: c.create(THING, {"a": 1}),
            {"method": "POST", "type": "application/json", "query": {}, "body": '{"a":1}'},
            id="create",
        ),
        pytest.param(
            lambda c: c.json_patch(THING, [{"op": "remove", "path": "/a"}]),
            {
                "method": "PATCH",
                "type": "application/json-patch+json",
                "query": {},
                "body": '[{"op":"remove","path":"/a"}]',
            },
            id="json-patch",
        ),
        pytest.param(
            lambda c: c.merge_patch(THING, {"a": None}),
            {"method": "PATCH", "type": "application/merge-patch+json", "query": {}, "body": '{"a":null}'},
            id="merge-patch",
        ),
        pytest.param(
            lambda c: c.strategic_patch(THING, {"a": 1}),
            {"method": "PATCH", "type": "application/strategic-merge-patch+json", "query": {}, "body": '{"a":1}'},
            id="strategic-patch",
        ),
        pytest.param(
            lambda c: c.delete(THING),
            {"method": "DELETE", "type": "application/json", "query": {}, "body": ""},
            id="delete",
        ),
    ],
)
def test_each_verb_sends_its_method_content_type_and_body(server: ApiServer, client: Client, call, expected) -> None:
    server.route(expected["method"], THING, echo)
    assert msgspec.json.decode(call(client)) == expected


def test_the_user_agent_names_the_field_manager(server: ApiServer, tmp_path: Path) -> None:
    server.route("GET", THING, echo)
    client = Client.load(server.kubeconfig(tmp_path), user_agent="apportion-webhook/0.1")
    client.get(THING)
    client.close()
    assert server.requests[0].headers["User-Agent"] == "apportion-webhook/0.1"


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", Conflict),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ApiError),
    ],
)
def test_a_status_becomes_an_error_of_its_own_type(
    server: ApiServer, client: Client, code: int, reason: str, kind: type[ApiError]
) -> None:
    server.route("GET", THING, refusal(code, reason))
    with pytest.raises(kind) as caught:
        client.get(THING)
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason, caught.value.message) == (code, reason, "no")


def test_a_refusal_carries_the_pause_that_its_header_asks_for(server: ApiServer, client: Client) -> None:
    server.route("GET", THING, refusal(429, "TooManyRequests", {"Retry-After": "7"}))
    with pytest.raises(TooManyRequests) as caught:
        client.get(THING)
    assert caught.value.retry_after_s == 7.0


def test_a_body_that_is_no_status_is_cut_at_256_characters(server: ApiServer, client: Client) -> None:
    server.route("GET", THING, lambda _, wire: wire.reply(502, b"<html>" + b"x" * 5000))
    with pytest.raises(ApiError) as caught:
        client.get(THING)
    assert str(caught.value) == "502: <html>" + "x" * 250 + "..."


def test_requests_one_after_another_share_a_connection(server: ApiServer, client: Client) -> None:
    server.route("GET", THING, echo)
    server.route("PATCH", THING, refusal(409, "Conflict"))
    for _ in range(5):
        client.get(THING)
        with pytest.raises(Conflict):
            client.merge_patch(THING, {})
    assert server.connections == 1


def test_many_threads_share_one_pool_and_leave_no_threads_behind(server: ApiServer, client: Client) -> None:
    """R09: one pool per process, no thread pools, however many requests."""
    server.route("GET", THING, echo)
    before = threading.active_count()
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        for _ in range(20):
            client.get(THING)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.asked("GET", THING)) == 160
    assert server.connections <= 8 < CONNECTIONS
    ours = [t for t in threading.enumerate() if "process_request_thread" not in t.name]
    assert len(ours) <= before


def test_a_rotated_token_is_read_again_after_a_401(server: ApiServer, tmp_path: Path) -> None:
    """R04: a server that accepts only the new token."""
    token = tmp_path / "token"
    token.write_text("old")

    def only(accepted: str, request: Request, wire: Wire) -> None:
        if request.headers["Authorization"] == f"Bearer {accepted}":
            wire.json(200, {})
        else:
            refusal(401, "Unauthorized")(request, wire)

    accepted = ["old"]
    server.route("GET", THING, lambda request, wire: only(accepted[0], request, wire))
    client = Client.load(server.kubeconfig(tmp_path, {"tokenFile": str(token)}))
    client.get(THING)
    accepted[0] = "new"
    token.write_text("new")
    client.get(THING)
    client.get(THING)
    assert [r.headers["Authorization"] for r in server.requests] == [
        "Bearer old",
        "Bearer old",
        "Bearer new",
        "Bearer new",
    ]
    client.close()


def test_a_token_that_stays_refused_is_tried_twice_and_no_more(server: ApiServer, client: Client) -> None:
    server.route("GET", THING, refusal(401, "Unauthorized"))
    with pytest.raises(Unauthorized):
        client.get(THING)
    assert len(server.requests) == 2


def test_a_service_account_is_used_inside_a_cluster_and_its_token_read_again(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R04, in-cluster: the token file that the kubelet rotates."""
    from kubernetes.config import incluster_config

    server.kubeconfig(tmp_path)
    token = tmp_path / "token"
    token.write_text("old")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    server.route("GET", THING, refusal(401, "Unauthorized"), echo)
    client = Client.load()
    token.write_text("new")
    client.get(THING)
    assert [r.headers["Authorization"] for r in server.requests] == ["bearer old", "bearer new"]
    client.close()


@pytest.mark.parametrize(
    ("write", "asked"),
    [
        pytest.param(lambda c: c.create(THING, {}), ("POST", {"dryRun": "All"}), id="create"),
        pytest.param(lambda c: c.merge_patch(THING, {}), ("PATCH", {"dryRun": "All"}), id="patch"),
        pytest.param(lambda c: c.delete(THING), ("DELETE", {"dryRun": "All"}), id="delete"),
        pytest.param(
            lambda c: c.request("POST", THING, query={"a": "b"}, body=b"{}"),
            ("POST", {"a": "b", "dryRun": "All"}),
            id="a request with a query of its own",
        ),
        pytest.param(lambda c: c.get(THING), ("GET", {}), id="a read is as ever"),
    ],
)
def test_nothing_that_a_client_for_a_dry_run_sends_changes_anything(
    server: ApiServer, tmp_path: Path, write: Callable[[Client], bytes], asked: tuple[str, dict[str, str]]
) -> None:
    method, query = asked
    server.route(method, THING, echo)
    client = Client.load(server.kubeconfig(tmp_path), dry_run=True)
    assert msgspec.json.decode(write(client))["query"] == query
    client.close()


def test_the_library_is_not_asked_for_credentials_at_each_request(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes as long for them as for a request: it looks at all variables of the environment for proxies."""
    asked: list[object] = []

    def identify(configuration: object) -> dict[str, str]:
        asked.append(configuration)
        return {"Authorization": "Bearer x"}

    monkeypatch.setattr("kube.client._authorization", identify)
    monkeypatch.setattr("kube.client.IDENTITY_S", 3600.0)
    server.route("GET", THING, echo)
    for _ in range(3):
        client.get(THING)
    assert len(asked) == 1


def test_a_missing_kubeconfig_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match=r"no kubeconfig at ~/\.kube/config and not in a cluster: name one with"):
        Client.load()
    with pytest.raises(ConfigError, match="no kubeconfig at /nowhere: no such file"):
        Client.load("/nowhere")


def test_an_unreadable_kubeconfig_names_the_file_and_the_fault(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("current-context: x\nclusters: []\ncontexts: []\nusers: []\n")
    with pytest.raises(ConfigError, match=f"kubeconfig {path}: .*Expected object with name x"):
        Client.load(str(path))


def test_a_server_that_is_down_was_surely_not_asked(server: ApiServer, client: Client) -> None:
    server.down()
    with pytest.raises(Unreachable) as caught:
        client.create(THING, {})
    assert not outcome_unknown(caught.value)
    server.up()
    server.route("POST", THING, echo)
    client.create(THING, {})


def test_a_write_whose_answer_never_came_may_have_been_done(server: ApiServer, client: Client) -> None:
    server.route("POST", THING, lambda _, wire: wire.cut())
    with pytest.raises(Unreachable) as caught:
        client.create(THING, {})
    assert outcome_unknown(caught.value)
    assert len(server.requests) == 1, "a write is never repeated by the client itself"


@pytest.mark.parametrize(("code", "unknown"), [(409, False), (422, False), (429, False), (500, True), (504, True)])
def test_a_5xx_leaves_the_outcome_of_a_write_unknown_and_a_4xx_does_not(code: int, unknown: bool) -> None:
    assert outcome_unknown(ApiError(code, "", "")) is unknown


def test_a_server_that_nobody_vouches_for_is_not_talked_to(server: ApiServer, tmp_path: Path) -> None:
    with ApiServer() as impostor:
        path = Path(impostor.kubeconfig(tmp_path))
        path.write_text(path.read_text().replace(str(impostor.port), str(server.port)))
        client = Client.load(str(path))
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED") as caught:
            client.get(THING)
        assert not outcome_unknown(caught.value)
        assert isinstance(caught.value.__cause__.args[0], ssl.SSLCertVerificationError)
        client.close()
    assert server.requests == []


def test_an_answer_that_drips_is_given_up_at_the_deadline(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drip(_: Request, wire: Wire) -> None:
        while True:
            wire.send(b" ")

    seconds = itertools.count(time.monotonic())  # one for each piece
    monkeypatch.setattr("kube.stream.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    server.route("GET", THING, drip)
    with pytest.raises(TimedOut, match="did not end in time"):
        client.request("GET", THING, timeout_s=20.0)


def test_a_silent_server_is_given_up_at_the_deadline(server: ApiServer, client: Client) -> None:
    server.route("GET", "/version", echo)
    client.get("/version")  # to connect may take a busy machine longer than the deadline
    server.route("GET", THING, lambda _, wire: wire.stall())
    with pytest.raises(TimedOut, match="ReadTimeoutError"):
        client.request("GET", THING, timeout_s=0.1)


def test_a_watch_yields_lines_as_they_arrive_and_drops_one_that_was_cut(server: ApiServer, client: Client) -> None:
    def play(_: Request, wire: Wire) -> None:
        for piece in (b'{"a":', b'1}\n{"b":2}\n{"c"', b":3}\n", b'{"d":'):
            wire.send(piece)
        wire.end()

    server.route("GET", THING, play, watch=True)
    with client.watch(THING, {}, 5.0) as stream:
        assert list(stream) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_a_silent_watch_breaks_after_its_read_timeout(server: ApiServer, client: Client) -> None:
    server.route("GET", THING, events(), watch=True)
    with pytest.raises(TimedOut, match="ReadTimeoutError"), client.watch(THING, {}, 0.1) as stream:
        list(stream)


def test_a_watch_is_interrupted_by_another_thread(server: ApiServer, client: Client) -> None:
    live = Live()
    server.route("GET", THING, live, watch=True)
    first = threading.Event()
    ended = threading.Event()

    def read() -> None:
        for _ in stream:
            first.set()
        ended.set()

    with client.watch(THING, {}, 30.0) as stream:
        thread = threading.Thread(target=read)
        thread.start()
        live.send("ADDED", pod("a", 1))
        assert first.wait(PATIENCE_S)
        stream.interrupt()
        assert ended.wait(PATIENCE_S)
        thread.join()
    live.end()


def test_what_comes_after_an_interruption_is_not_believed(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket of TLS that was shut under its reader hands out what is still encrypted."""
    server.route("GET", THING, events(), watch=True)
    encrypted = [b"", b"\xa1\n"]
    with client.watch(THING, {}, 5.0) as stream:

        def read(_most: int) -> bytes:
            stream.interrupt()
            return encrypted.pop()

        monkeypatch.setattr(stream._response, "read1", read)
        assert list(stream) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(PODS.path(), "/api/v1/pods", id="all-namespaces"),
        pytest.param(PODS.path("ns"), "/api/v1/namespaces/ns/pods", id="one-namespace"),
        pytest.param(PODS.path("ns", "a", "eviction"), "/api/v1/namespaces/ns/pods/a/eviction", id="subresource"),
        pytest.param(NODES.path(name="n1"), "/api/v1/nodes/n1", id="cluster-scoped"),
    ],
)
def test_a_resource_knows_its_paths(path: str, expected: str) -> None:
    assert path == expected


def test_a_path_without_the_namespace_it_needs_is_refused() -> None:
    with pytest.raises(ValueError, match="pods are namespaced: name the namespace of 'a'"):
        PODS.path(name="a")
    with pytest.raises(ValueError, match="nodes have no namespace: leave out 'ns'"):
        NODES.path("ns")
