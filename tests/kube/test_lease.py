"""Leader election: the decision as a table and a law, and electors against a server that fails them in every way (R06)."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.client import Client
from kube.lease import Elector, Leadership, Record, Sighting, Step, decide, sight
from tests.apiserver.objects import Objects
from tests.apiserver.server import PATIENCE_S, ApiServer, Request, Wire
from tests.apiserver.steps import refusal

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/apportion-system/leases"
LEASE = f"{COLLECTION}/leader"
LEASE_S, RENEW_S = 15.0, 10.0


def record(holder: str, version: str = "1", duration_s: float = LEASE_S) -> Record:
    return Record(holder=holder, duration_s=duration_s, transitions=3, version=version)


@pytest.mark.parametrize(
    ("lease", "now", "step"),
    [
        pytest.param(Sighting(None, 0.0), 0.0, Step.CREATE, id="no-lease-is-created"),
        pytest.param(Sighting(record("me"), 0.0), 99.0, Step.RENEW, id="ours-is-renewed-however-old"),
        pytest.param(Sighting(record(""), 100.0), 100.0, Step.TAKE, id="a-released-one-is-taken-at-once"),
        pytest.param(Sighting(record("other"), 100.0), 100.0, Step.WAIT, id="another-s-is-left"),
        pytest.param(Sighting(record("other"), 100.0), 114.9, Step.WAIT, id="another-s-is-left-until-it-has-run-out"),
        pytest.param(
            Sighting(record("other"), 100.0), 115.0, Step.TAKE, id="one-that-has-not-changed-for-15-s-is-taken"
        ),
        pytest.param(Sighting(record("other", duration_s=1), 100.0), 101.0, Step.TAKE, id="its-own-duration-counts"),
    ],
)
def test_what_a_candidate_does(lease: Sighting, now: float, step: Step) -> None:
    assert decide(lease, "me", now) is step


def test_a_lease_ages_by_our_clock_from_when_we_first_saw_it_so_and_any_change_makes_it_young() -> None:
    first = sight(None, record("other", "1"), 100.0)
    assert sight(first, record("other", "1"), 110.0) == Sighting(record("other", "1"), 100.0)
    assert sight(first, record("other", "2"), 110.0) == Sighting(record("other", "2"), 110.0)


@given(
    renewals=st.lists(st.tuples(st.floats(0.1, 12), st.floats(0, 5)), max_size=6),
    polls=st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 5)), min_size=1, max_size=40),
)
def test_nobody_takes_the_lease_while_its_holder_may_still_act(
    renewals: list[tuple[float, float]], polls: list[tuple[float, float]]
) -> None:
    """R06, as a law. Renewals are (pause, delay until stored), polls (pause, delay until answered), all in seconds."""
    writes = [(0.0, 0.0)]  # when each version was sent, and when it was stored
    for pause, delay in renewals:
        sent = writes[-1][1] + pause
        writes.append((sent, sent + delay))
    now, seen = 0.0, None
    for pause, delay in polls:
        asked, now = now + pause, now + pause + delay
        version = sum(stored <= asked for _, stored in writes)
        seen = sight(seen, record("other", str(version)), now)
        if decide(seen, "me", now) is Step.TAKE:
            # Its write fails if a later version was stored meanwhile, so this one is the holder's last.
            holder_acts_until = writes[version - 1][0] + RENEW_S
            assert now >= holder_acts_until + (LEASE_S - RENEW_S)


class Clock:
    """A clock that moves only when someone waits; `stood` are the waits of the candidate, not of a leader's renewals."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.stood: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pause(self, event: threading.Event, seconds: float) -> bool:
        self.now += seconds
        if threading.current_thread() is threading.main_thread():
            self.stood.append(seconds)
        return event.is_set()


@pytest.fixture
def objects(server: ApiServer) -> Objects:
    server.otherwise = Objects()
    return server.otherwise


@pytest.fixture
def elect(server: ApiServer, client: Client) -> Callable[..., Elector]:
    def make(identity: str, clock: Clock | None = None, **options: object) -> Elector:
        clock = clock or Clock()
        return Elector(
            client,
            "apportion-system",
            "leader",
            identity,
            clock=clock,
            pause=clock.pause,
            chance=lambda: 0.0,
            wall=lambda: datetime(2026, 11, 30, 12, 0, 0, 5, tzinfo=UTC),
            **options,
        )

    return make


def spec(objects: Objects) -> dict[str, object]:
    return objects[LEASE]["spec"]


def until_lost(leadership: Leadership) -> None:
    assert leadership.lost.wait(PATIENCE_S)


def test_the_first_candidate_creates_the_lease_and_releases_it_when_its_work_is_done(objects, elect) -> None:
    seen: list[dict[str, object]] = []
    terms: list[Leadership] = []

    def work(leadership: Leadership) -> None:
        assert leadership.held()
        assert threading.current_thread() is threading.main_thread()
        terms.append(leadership)
        seen.append(dict(spec(objects)))

    elect("a").run(work, threading.Event())
    assert seen[0] == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-30T12:00:00.000005Z",
        "renewTime": "2026-11-30T12:00:00.000005Z",
        "leaseTransitions": 0,
    }
    assert "holderIdentity" not in spec(objects)
    assert spec(objects)["leaseTransitions"] == 0
    assert not terms[0].held(), "a term that is over is over for whoever still has it in hand"


def test_a_released_lease_is_taken_at_once_and_the_transition_is_counted(objects, elect) -> None:
    clock = Clock()
    elect("a").run(lambda _: None, threading.Event())
    elect("b", clock).run(lambda _: None, threading.Event())
    assert clock.stood == []
    assert spec(objects)["leaseTransitions"] == 1


def test_a_lease_whose_holder_has_died_is_taken_after_its_duration_by_our_own_clock(
    server: ApiServer, objects, elect, client: Client
) -> None:
    """Whatever the holder's wall clock says: its renewTime lies a year ahead."""
    ahead = (datetime.now(UTC) + timedelta(days=365)).isoformat()
    held = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 7, "renewTime": ahead}
    client.create(COLLECTION, {"metadata": {"name": "leader", "labels": {"kept": "yes"}}, "spec": held})
    clock = Clock()
    elect("b", clock).run(lambda _: None, threading.Event())
    assert clock.stood == [2.0] * 8, "the least multiple of 2 s that is 15 s"
    assert spec(objects)["leaseTransitions"] == 8
    assert objects[LEASE]["metadata"]["labels"] == {"kept": "yes"}


def test_a_candidate_whose_predecessor_in_the_same_pod_died_goes_on_with_its_lease(objects, elect, client) -> None:
    held = {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 7}
    client.create(COLLECTION, {"metadata": {"name": "leader"}, "spec": held})
    clock = Clock()
    elect("a", clock).run(lambda _: None, threading.Event())
    assert clock.stood == []
    assert spec(objects)["leaseTransitions"] == 7


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(refusal(403, "Forbidden"), id="rbac-taken-away"),
        pytest.param(refusal(500, "InternalError"), id="etcd-broken"),
        pytest.param(lambda _, wire: wire.cut(), id="connection-cut"),
        pytest.param(lambda _, wire: wire.reply(200, b"<html>"), id="answered-by-a-proxy"),
    ],
)
def test_a_leader_that_can_not_renew_stops_before_another_may_take_over(
    server: ApiServer, objects, elect, fault
) -> None:
    """R06"""
    clock, stop = Clock(), threading.Event()
    ended: list[float] = []

    def work(leadership: Leadership) -> None:
        until_lost(leadership)
        assert not leadership.held()
        ended.append(clock.now - 1000.0)
        stop.set()

    server.route("PATCH", LEASE, fault)
    elect("a", clock).run(work, stop)
    assert ended == [RENEW_S]
    assert len(server.asked("PATCH", LEASE)) == 5, "after 2, 4, 6 and 8 s, and once to release"


def test_a_leader_that_recovers_in_time_goes_on(server: ApiServer, objects, elect) -> None:
    clock, recovered = Clock(), threading.Event()

    def answer(request: Request, wire: Wire) -> None:
        objects(request, wire)
        recovered.set()

    def work(leadership: Leadership) -> None:
        failing = [refusal(500), refusal(500), refusal(500)]
        server.route("PATCH", LEASE, *failing, answer)
        assert recovered.wait(PATIENCE_S)
        server.wait_for(8, "PATCH", LEASE)
        assert leadership.held()

    elect("a", clock).run(work, threading.Event())
    assert clock.now - 1000.0 > RENEW_S


def test_the_deadline_counts_from_when_a_renewal_was_sent_not_from_its_answer(
    server: ApiServer, objects, elect
) -> None:
    """A renewal that takes 4 s has 6 s left when its answer comes: the server may have stored it at once."""
    clock, terms, remaining = Clock(), [], []
    began, slow, measured = threading.Event(), threading.Event(), threading.Event()

    def late(request: Request, wire: Wire) -> None:
        assert began.wait(PATIENCE_S)
        clock.now += 4.0
        objects(request, wire)
        slow.set()

    def pause(event: threading.Event, seconds: float) -> bool:
        if slow.is_set():
            remaining.append(terms[0].remaining_s())
            measured.set()
            return event.wait(PATIENCE_S)
        return clock.pause(event, seconds)

    def work(leadership: Leadership) -> None:
        terms.append(leadership)
        began.set()
        assert measured.wait(PATIENCE_S)
        server.route("PATCH", LEASE)

    server.route("PATCH", LEASE, late)
    elector = elect("a", clock)
    elector._pause = pause
    elector.run(work, threading.Event())
    assert remaining == [6.0]


def after(objects: Objects, mark: str) -> list[str]:
    """The methods of the requests after the first one whose body, or method, is `mark`."""
    requests = objects.taken
    at = next(i for i, r in enumerate(requests) if mark in (r.method, r.body.decode()))
    return [request.method for request in requests[at + 1 :]]


def test_a_leader_stops_at_once_when_another_holds_its_lease(objects, elect, client: Client) -> None:
    """Someone has forced it: the next renewal finds out."""
    stop = threading.Event()
    force = {"spec": {"holderIdentity": "usurper"}, "metadata": {}}

    def work(leadership: Leadership) -> None:
        client.merge_patch(LEASE, force)
        until_lost(leadership)
        stop.set()

    elect("a").run(work, stop)
    assert after(objects, msgspec.json.encode(force).decode()) == ["PATCH", "GET", "GET"], "refused, read, not released"
    assert spec(objects)["holderIdentity"] == "usurper"


def test_a_leader_stops_at_once_when_its_lease_is_deleted(objects, elect, client: Client) -> None:
    """Any candidate may create it anew at any moment. It stands again, and leads again."""
    terms: list[Leadership] = []

    def work(leadership: Leadership) -> None:
        terms.append(leadership)
        if len(terms) == 1:
            client.delete(LEASE)
            until_lost(leadership)

    elect("a").run(work, threading.Event())
    assert len(terms) == 2
    assert after(objects, "DELETE")[:4] == ["PATCH", "GET", "GET", "POST"], "refused, nothing to release, none, created"


def test_a_leader_goes_on_when_its_lease_was_only_edited(server: ApiServer, objects, elect, client: Client) -> None:
    """So does one whose own renewal was stored without an answer."""

    def work(leadership: Leadership) -> None:
        renewals = len(server.asked("PATCH", LEASE))
        client.merge_patch(LEASE, {"metadata": {"annotations": {"note": "hello"}}})
        server.wait_for(renewals + 20, "PATCH", LEASE)
        assert leadership.held()

    elect("a").run(work, threading.Event())
    assert objects[LEASE]["metadata"]["annotations"] == {"note": "hello"}


def test_what_the_work_raises_comes_out_after_the_lease_was_released(objects, elect) -> None:
    def work(_: Leadership) -> None:
        raise RuntimeError("the work is broken")

    with pytest.raises(RuntimeError, match="the work is broken"):
        elect("a").run(work, threading.Event())
    assert "holderIdentity" not in spec(objects)
    assert [t.name for t in threading.enumerate() if t.name.startswith("lease")] == []


def test_a_renewer_that_dies_takes_the_work_with_it(objects, elect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease dies with what keeps it."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    stop = threading.Event()
    elector = elect("a")
    monkeypatch.setattr(elector, "_renew", lambda _: {}["a bug"])

    def work(leadership: Leadership) -> None:
        until_lost(leadership)
        assert not leadership.held()
        stop.set()

    elector.run(work, stop)


def test_a_candidate_waits_for_a_server_that_is_away_and_stops_when_it_is_told_to(server: ApiServer, elect) -> None:
    server.down()
    stop, tries = threading.Event(), []
    elector = elect("a")

    def pause(event: threading.Event, seconds: float) -> bool:
        tries.append(seconds)
        if len(tries) == 3:
            event.set()
        return event.is_set()

    elector._pause = pause
    elector.run(lambda _: pytest.fail("never elected"), stop)
    assert tries == [2.0, 2.0, 2.0]
    server.up()


def test_electors_that_race_never_lead_together_and_all_get_their_turn(
    server: ApiServer, objects, client: Client
) -> None:
    """R06: three candidates in real time; each leads briefly, gives up, and stands again."""
    leading: dict[str, Leadership] = {}
    together: list[list[str]] = []
    turns: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    start = threading.Barrier(3)

    def stand(name: str) -> None:
        def work(leadership: Leadership) -> None:
            leading[name] = leadership
            if len(held := [one for one, term in leading.copy().items() if term.held()]) > 1:
                together.append(held)
            leadership.lost.wait(0.01)
            del leading[name]
            turns[name] += 1

        start.wait()
        elector = Elector(client, "apportion-system", "leader", name, retry_s=0.01)
        while turns[name] < 3:
            elector.run(work, threading.Event())

    threads = [threading.Thread(target=stand, args=(name,)) for name in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert turns == {"a": 3, "b": 3, "c": 3}
    assert together == []
    assert spec(objects)["leaseTransitions"] == 8


def test_periods_in_the_wrong_order_are_refused(client: Client) -> None:
    with pytest.raises(ValueError, match=r"need 0 < retry_s < renew_s < lease_s, not 2.0, 15, 15"):
        Elector(client, "ns", "leader", "me", renew_s=15)
