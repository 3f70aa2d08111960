"""The informer against scripted faults over real TLS: whatever breaks, the store ends as the truth, at a bounded rate."""

import queue
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from structlog.testing import capture_logs

from kube.client import Client
from kube.informer import Informer
from kube.paging import PAGE
from kube.resource import PODS
from tests.apiserver.server import PATIENCE_S, ApiServer, Request, Wire
from tests.apiserver.steps import Live, bookmark, events, listing, pod, refusal, status

PATH = "/api/v1/pods"
Change = tuple[str, str | None, str | None]


class _Spec(msgspec.Struct):
    nodeName: str  # noqa: N815


class _Pod(msgspec.Struct):
    spec: _Spec


_POD = msgspec.json.Decoder(_Pod)


FAILS = "a node at which the projection fails"


def node_of(raw: bytes) -> str | None:
    """The projection of these tests: the node's name; a pod on `nowhere` is not kept."""
    node = _POD.decode(raw).spec.nodeName
    if node == FAILS:
        raise ValueError(node)
    return None if node == "nowhere" else node


class Pauses:
    """Instead of waiting: writes down how long, and goes on at once until `last` pauses are over."""

    def __init__(self, last: int = 1000) -> None:
        self.taken: list[float] = []
        self._last = last
        self.over = threading.Event()

    def __call__(self, stopped: threading.Event, seconds: float) -> bool:
        self.taken.append(round(seconds, 3))
        if len(self.taken) < self._last:
            return stopped.is_set()
        self.over.set()
        return stopped.wait(PATIENCE_S)


class Watched:
    """An informer with what its handler was told."""

    def __init__(self, client: Client, **options: object) -> None:
        self.pauses = options.setdefault("pause", Pauses())
        self.informer: Informer[str] = Informer(client, PODS, node_of, chance=lambda: 1.0, **options)
        self.told: queue.Queue[Change] = queue.Queue()
        self.informer.on_change(lambda key, old, new: self.told.put((key, old, new)))

    def start(self) -> "Watched":
        self.informer.start()
        return self

    def expect(self, *changes: Change) -> None:
        assert [self.told.get(timeout=PATIENCE_S) for _ in changes] == list(changes)

    def synced(self) -> "Watched":
        assert self.informer.synced.wait(PATIENCE_S)
        return self


@pytest.fixture
def watch(client: Client, server: ApiServer) -> Iterator[Callable[..., Watched]]:
    running: list[Watched] = []

    def begin(**options: object) -> Watched:
        running.append(Watched(client, **options))
        return running[-1].start()

    yield begin
    for watched in running:
        watched.informer.stop()


@pytest.fixture
def live() -> Iterator[Live]:
    feed = Live()
    yield feed
    feed.end()


def versions(server: ApiServer) -> list[str]:
    """The resourceVersions from which watches were asked for."""
    return [request.query["resourceVersion"] for request in server.asked("GET", PATH, watch=True)]


def test_the_watch_resumes_at_the_version_of_the_list_not_of_an_item(server: ApiServer, watch) -> None:
    """R03"""
    server.route("GET", PATH, listing([pod("a", 41, node="n1"), pod("b", 7, node="n2")], 100))
    server.route("GET", PATH, events(), watch=True)
    watched = watch(label_selector="tier=gpu", field_selector="spec.nodeName!=").synced()
    watched.expect(("ns/a", None, "n1"), ("ns/b", None, "n2"))
    (asked,) = server.wait_for(1, "GET", PATH, watch=True)
    assert asked.query == {
        "watch": "1",
        "resourceVersion": "100",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "600",
        "labelSelector": "tier=gpu",
        "fieldSelector": "spec.nodeName!=",
    }
    assert watched.informer.store.list() == ("n1", "n2")


def test_events_reach_store_and_handlers_in_order(server: ApiServer, watch, live: Live) -> None:
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, live, watch=True)
    watched = watch().synced()
    live.send("ADDED", pod("a", 11, node="n1"))
    live.send("MODIFIED", pod("a", 12, node="n2"))
    live.send("ADDED", pod("b", 13, node="nowhere"))
    live.send("MODIFIED", pod("b", 14, node="n3"))
    live.send("MODIFIED", pod("b", 15, node="nowhere"))
    live.send("DELETED", pod("a", 16, node="n2"))
    watched.expect(
        ("ns/a", None, "n1"),
        ("ns/a", "n1", "n2"),
        ("ns/b", None, "n3"),
        ("ns/b", "n3", None),
        ("ns/a", "n2", None),
    )
    assert watched.informer.store.list() == ()


def test_a_list_is_read_page_by_page(server: ApiServer, watch) -> None:
    """R08"""
    server.route(
        "GET",
        PATH,
        listing([pod("a", 1, node="n1")], 100, more="page-2"),
        listing([pod("b", 2, node="n2")], 100, more="page-3"),
        listing([pod("c", 3, node="n3")], 100),
    )
    server.route("GET", PATH, events(), watch=True)
    watched = watch().synced()
    assert watched.informer.store.list() == ("n1", "n2", "n3")
    asked = [(r.query["limit"], r.query.get("continue")) for r in server.asked("GET", PATH)]
    assert asked == [(str(PAGE), None), (str(PAGE), "page-2"), (str(PAGE), "page-3")]


def test_a_continue_token_that_expires_starts_the_list_again(server: ApiServer, watch) -> None:
    server.route(
        "GET",
        PATH,
        listing([pod("a", 1, node="old")], 100, more="page-2"),
        refusal(410, "Expired"),
        listing([pod("b", 2, node="n2")], 200),
    )
    server.route("GET", PATH, events(), watch=True)
    watched = watch().synced()
    assert watched.informer.store.list() == ("n2",)
    server.wait_for(1, "GET", PATH, watch=True)
    assert versions(server) == ["200"]


@pytest.mark.parametrize("position", [1, 5])
@pytest.mark.parametrize("reason", ["Expired", "Gone"])
def test_a_410_in_the_stream_lists_again_and_tells_what_was_missed(
    server: ApiServer, watch, live: Live, position: int, reason: str
) -> None:
    """R01: as the first and as the fifth event; `b` was deleted and `c` made meanwhile."""
    before = [("MODIFIED", pod("a", 10 + n, node=f"n{n}")) for n in range(1, position)]
    expired = ("ERROR", status(410, reason))
    a, b, c = pod("a", 30, node="n9"), pod("b", 2, node="n2"), pod("c", 31, node="n3")
    server.route("GET", PATH, listing([pod("a", 1, node="n0"), b], 10), listing([a, c], 40))
    server.route("GET", PATH, events(*before, expired), live, watch=True)
    watched = watch()
    watched.expect(("ns/a", None, "n0"), ("ns/b", None, "n2"))
    watched.expect(*[("ns/a", f"n{n - 1}", f"n{n}") for n in range(1, position)])
    watched.expect(("ns/a", f"n{position - 1}", "n9"), ("ns/b", "n2", None), ("ns/c", None, "n3"))
    server.wait_for(2, "GET", PATH, watch=True)
    assert versions(server) == ["10", "40"]


def test_a_watch_that_can_not_be_resumed_lists_again(server: ApiServer, watch) -> None:
    """R01, as an HTTP status"""
    server.route("GET", PATH, listing([pod("a", 1, node="n1")], 10), listing([], 20))
    server.route("GET", PATH, refusal(410, "Expired"), events(), watch=True)
    watched = watch()
    watched.expect(("ns/a", None, "n1"), ("ns/a", "n1", None))
    server.wait_for(2, "GET", PATH, watch=True)
    assert versions(server) == ["10", "20"]


def test_a_server_that_is_back_and_can_not_resume_is_listed_without_a_further_pause_but_only_once(
    server: ApiServer, watch
) -> None:
    pauses = Pauses(last=3)
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, events(then="end"), refusal(410, "Expired"), refusal(410, "Expired"), watch=True)
    watch(pause=pauses)
    assert pauses.over.wait(PATIENCE_S)
    assert pauses.taken == [0.2, 0.4, 0.8]
    asked = ["watch" if request.watch else "list" for request in server.requests]
    assert asked == ["list", "watch", "watch", "list", "watch", "list", "watch"]


def test_a_watch_that_breaks_before_its_first_event_does_not_list_again(server: ApiServer, watch) -> None:
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, events(then="cut"), events(then="cut"), events(), watch=True)
    watch()
    server.wait_for(3, "GET", PATH, watch=True)
    assert len(server.asked("GET", PATH)) == 1


def test_a_stream_that_is_cut_in_a_line_resumes_after_the_last_whole_event(server: ApiServer, watch) -> None:
    def cut(_: Request, wire: Wire) -> None:
        wire.event("ADDED", pod("a", 11, node="n1"))
        wire.send(b'{"type":"ADDED","object":{"metadata":{"name":"b","name')
        wire.cut()

    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, cut, events(("ADDED", pod("b", 12, node="n2"))), watch=True)
    watched = watch()
    watched.expect(("ns/a", None, "n1"), ("ns/b", None, "n2"))
    assert versions(server) == ["10", "11"]
    assert len(server.asked("GET", PATH)) == 1


def test_a_watch_ended_by_the_server_resumes_at_the_last_bookmark(server: ApiServer, watch) -> None:
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, events(bookmark(500), then="end"), events(), watch=True)
    watch()
    server.wait_for(2, "GET", PATH, watch=True)
    assert versions(server) == ["10", "500"]
    assert len(server.asked("GET", PATH)) == 1


def test_old_events_that_are_repeated_after_a_reconnect_are_not_told_again(server: ApiServer, watch) -> None:
    """R03"""
    server.route("GET", PATH, listing([pod("a", 9, node="new")], 10))
    replay = [("ADDED", pod("a", 3, node="old")), ("MODIFIED", pod("a", 9, node="new"))]
    server.route("GET", PATH, events(*replay, ("MODIFIED", pod("a", 11, node="newer"))), watch=True)
    watch().expect(("ns/a", None, "new"), ("ns/a", "new", "newer"))


def test_a_silent_watch_is_given_up_and_listed_again(server: ApiServer, watch) -> None:
    """The peer is gone and nobody says so; or etcd was restored, and the server waits for our version to come."""
    server.route("GET", PATH, listing([], 900), listing([pod("a", 11, node="n1")], 20))
    server.route("GET", PATH, events(), watch=True)
    watch(silence_s=0.1).expect(("ns/a", None, "n1"))
    server.wait_for(2, "GET", PATH, watch=True)
    assert versions(server)[:2] == ["900", "20"], "and so on: the second one is as silent"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"{half a line\n", id="no-json"),
        pytest.param(b'{"type":"MOVED","object":{"metadata":{"name":"a"}}}\n', id="unknown-type"),
        pytest.param(b'{"type":"ADDED","object":7}\n', id="no-object"),
    ],
)
def test_a_line_that_can_not_be_read_lists_again_as_its_event_is_lost(server: ApiServer, watch, line: bytes) -> None:
    def play(_: Request, wire: Wire) -> None:
        wire.send(line)
        wire.hold()

    server.route("GET", PATH, listing([], 10), listing([pod("a", 11, node="n1")], 11))
    server.route("GET", PATH, play, events(), watch=True)
    watch().expect(("ns/a", None, "n1"))


def test_a_server_that_fails_is_asked_at_a_rate_that_falls_off(server: ApiServer, watch) -> None:
    pauses = Pauses(last=9)
    server.route("GET", PATH, refusal(500, "InternalError"))
    watch(pause=pauses)
    assert pauses.over.wait(PATIENCE_S)
    assert pauses.taken == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0]
    assert len(server.requests) == 9


def test_watches_that_end_at_once_are_opened_at_a_rate_that_falls_off(server: ApiServer, watch) -> None:
    pauses = Pauses(last=5)
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, events(then="end"), watch=True)
    watch(pause=pauses)
    assert pauses.over.wait(PATIENCE_S)
    assert pauses.taken == [0.2, 0.4, 0.8, 1.6, 3.2]
    assert len(server.requests) == 6


def test_a_watch_that_has_lasted_is_resumed_at_once(server: ApiServer, watch) -> None:
    hours = iter(range(0, 3600 * 24, 3600))
    pauses = Pauses(last=3)
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, events(then="end"), watch=True)
    watch(pause=pauses, clock=lambda: float(next(hours)))
    assert pauses.over.wait(PATIENCE_S)
    assert pauses.taken == [0.0, 0.0, 0.0]


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(server: ApiServer, watch) -> None:
    pauses = Pauses()
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, refusal(429, "TooManyRequests", {"Retry-After": "33"}), events(), watch=True)
    watch(pause=pauses)
    server.wait_for(2, "GET", PATH, watch=True)
    assert pauses.taken == [33.0]
    assert versions(server) == ["10", "10"], "no new list: it would only make the server busier"


def test_a_server_that_is_away_at_the_start_is_waited_for(server: ApiServer, watch) -> None:
    server.route("GET", PATH, listing([pod("a", 1, node="n1")], 10))
    server.route("GET", PATH, events(), watch=True)
    server.down()
    failed: queue.Queue[float] = queue.Queue()

    def pause(stopped: threading.Event, seconds: float) -> bool:
        failed.put(seconds)
        return stopped.wait(0.01)

    watched = watch(pause=pause)
    assert [failed.get(timeout=PATIENCE_S), failed.get(timeout=PATIENCE_S)] == [0.2, 0.4]
    assert not watched.informer.synced.is_set()
    server.up()
    watched.synced().expect(("ns/a", None, "n1"))


def test_a_store_stays_readable_while_the_server_is_away_and_recovers_by_itself(server: ApiServer, watch) -> None:
    server.route("GET", PATH, listing([pod("a", 1, node="n1"), pod("b", 2, node="n2")], 10))
    server.route("GET", PATH, events(), refusal(410, "Expired"), events(), watch=True)
    away = threading.Event()

    def pause(stopped: threading.Event, _: float) -> bool:
        away.set()
        return stopped.wait(0.01)

    watched = watch(pause=pause).synced()
    server.wait_for(1, "GET", PATH, watch=True)
    server.down()
    assert away.wait(PATIENCE_S)
    assert watched.informer.store.list() == ("n1", "n2")
    assert watched.informer.synced.is_set()
    server.route("GET", PATH, listing([pod("b", 2, node="n2")], 900))
    server.up()
    watched.expect(("ns/a", None, "n1"), ("ns/b", None, "n2"), ("ns/a", "n1", None))


def test_a_handler_that_fails_neither_stops_the_watch_nor_blinds_the_others(
    server: ApiServer, client: Client, live: Live
) -> None:
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, live, watch=True)
    watched = Watched(client)
    watched.informer._handlers.insert(0, lambda *_: {}["no such key"])
    with capture_logs() as logs:
        watched.start().synced()
        live.send("ADDED", pod("a", 11, node="n1"))
        live.send("ADDED", pod("b", 12, node="n2"))
        watched.expect(("ns/a", None, "n1"), ("ns/b", None, "n2"))
    watched.informer.stop()
    assert [(e["log_level"], e["object"]) for e in logs if e["event"] == "handler_failed"] == [
        ("error", "ns/a"),
        ("error", "ns/b"),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="which-is-no-pod"),
        pytest.param({"nodeName": FAILS}, id="at-which-we-fail-ourselves"),
    ],
)
def test_an_object_that_can_not_be_read_keeps_its_last_readable_state(
    server: ApiServer, watch, live: Live, spec: object
) -> None:
    broken = {"metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "11"}, "spec": spec}
    server.route("GET", PATH, listing([pod("a", 1, node="n1")], 10))
    server.route("GET", PATH, live, watch=True)
    watched = watch().synced()
    with capture_logs() as logs:
        live.send("MODIFIED", broken)
        live.send("ADDED", pod("b", 12, node="n2"))
        watched.expect(("ns/a", None, "n1"), ("ns/b", None, "n2"))
    assert watched.informer.store.get("ns/a") == "n1"
    assert [(e["event"], e["object"]) for e in logs] == [("object_unreadable", "ns/a")]
    live.send("DELETED", {**broken, "metadata": {**broken["metadata"], "resourceVersion": "13"}})
    watched.expect(("ns/a", "n1", None))


def test_an_own_write_is_visible_before_its_event_and_told_with_it(server: ApiServer, watch, live: Live) -> None:
    """Design, section 5: else the next settle grants twice."""
    server.route("GET", PATH, listing([pod("a", 1, node="n1")], 10))
    server.route("GET", PATH, live, watch=True)
    watched = watch().synced()
    watched.expect(("ns/a", None, "n1"))
    watched.informer.lay_over(msgspec.json.encode(pod("a", 12, node="ours")))
    assert watched.informer.store.get("ns/a") == "ours"
    live.send("MODIFIED", pod("a", 11, node="late"))
    watched.expect(("ns/a", "n1", "late"))
    assert watched.informer.store.get("ns/a") == "ours"
    live.send("MODIFIED", pod("a", 12, node="ours"))
    watched.expect(("ns/a", "late", "ours"))
    watched.informer.lay_over_deleted("ns/a", "a")
    assert watched.informer.store.list() == ()


def test_an_object_that_is_read_again_is_seen_as_it_is_before_the_watch_tells(server: ApiServer, watch, live) -> None:
    server.route("GET", PATH, listing([pod("a", 8), pod("b", 9)], 10))
    server.route("GET", PATH, live, watch=True)
    server.route("GET", "/api/v1/namespaces/ns/pods/a", lambda _, wire: wire.json(200, pod("a", 12, node="n1")))
    server.route("GET", "/api/v1/namespaces/ns/pods/b", refusal(404, "NotFound"))
    watched = watch()
    assert watched.informer.synced.wait(PATIENCE_S)
    for name in "ab":
        watched.informer.read_again(f"ns/{name}", name, timeout_s=5.0)
    assert watched.informer.store.items() == (("ns/a", "n1"),)


def test_a_list_that_is_read_afresh_is_seen_before_the_watch_tells(server: ApiServer, watch, live) -> None:
    fresh = listing([pod("a", 12, node="n1"), pod("b", 13, node="n1")], 20)
    server.route("GET", PATH, listing([pod("a", 8)], 10), fresh)
    server.route("GET", PATH, live, watch=True)
    watched = watch()
    assert watched.informer.synced.wait(PATIENCE_S)
    watched.informer.read_afresh(timeout_s=5.0, field_selector="spec.nodeName=n1")
    assert dict(watched.informer.store.items()) == {"ns/a": "n1", "ns/b": "n1"}
    assert [r.query.get("fieldSelector") for r in server.requests if "watch" not in r.query] == [
        None,
        "spec.nodeName=n1",
    ]


def test_an_informer_stops_at_once_while_its_watch_is_silent(server: ApiServer, watch) -> None:
    """R09: the thread and the connection go with it."""
    server.route("GET", PATH, listing([], 10))
    server.route("GET", PATH, events(), watch=True)
    watched = watch().synced()
    server.wait_for(1, "GET", PATH, watch=True)
    watched.informer.stop()
    assert not watched.informer._thread.is_alive()
    assert len(server.asked("GET", PATH, watch=True)) == 1
