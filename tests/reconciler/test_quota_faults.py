"""Three teams while leaders die at every write, calls fail or are doubled, and the clock jumps: all writes, audited by the server.

Seven whole GPUs. `b` owns one and uses six, `c` owns three and uses one, `a` owns three and none is left: three are
claimed, so three of the five that `b` borrows go, and come back to wait. Whoever removes a gate on the server is checked
there and then, by the pods that it has. Nothing here waits: each cycle sees what the server has,
or had a while ago.
"""

import json
import random
from collections import Counter

import pytest

from policies import names
from tests.apiserver.objects import Objects
from tests.apiserver.steps import status
from tests.builders import raw_node, raw_pod
from tests.reconciler.leading import Leader
from tests.reconciler.test_reclaim_faults import EMPTY, at, path_of

GPU = {"nvidia.com/gpu": "1"}
MINS, MAXS = {"a": 3, "b": 1, "c": 3}, {"a": 4, "c": 3}
NODE = raw_node("n1", mode=None, resources={"nvidia.com/gpu": "7"})
HOURS = 3600.0
WRITES = 35  # of the whole story
ENDS_AFTER = {"p5": 1, "p4": 2}  # cycles that a victim takes; the others three
STRATEGIC = "application/strategic-merge-patch+json"
QUOTAS = "/apis/nos.nebuly.com/v1alpha1/namespaces/{}/elasticquotas/quota"


class Server(Objects):
    """Quotas, namespaces and pods; every call may fail by `fault`, which is asked with its number.

    Attributes:
        writes: how many calls have changed, or might have changed, something.
        may_evict: whether budgets allow any eviction.
        evicted: whom an eviction has made end, in that order.
    """

    def __init__(self):
        super().__init__()
        self.writes, self.calls, self.evicted, self._ending = 0, 0, [], Counter()
        self.fault = self.write_fault = lambda _number: "none"
        self.may_evict = lambda: True
        for team, own in MINS.items():
            meta = {"name": "quota", "namespace": team, "uid": f"uid of {team}", "generation": 1}
            most = {"max": {"nvidia.com/gpu": MAXS[team]}} if team in MAXS else {}
            bounds = {"min": {"nvidia.com/gpu": own}, **most}
            self._keep(QUOTAS.format(team), {"kind": names.ELASTIC_QUOTA, "metadata": meta, "spec": bounds})
            self._keep(f"/api/v1/namespaces/{team}", {"metadata": {"name": team}})
        for second in range(6):
            self.add(raw_pod(f"b/p{second}", limits=GPU, node="n1", phase="Running", created=at(second)))
        self.add(raw_pod("c/c0", limits=GPU, node="n1", phase="Running", created=at(0)))
        for second, name in ((6, "a/a6"), (7, "a/a7"), (8, "c/c8")):
            self.add(raw_pod(name, limits=GPU, gates=[names.GATE], created=at(second)))

    def add(self, pod):
        self._keep(path_of(pod), pod)

    def of(self, kind):
        return [obj for path, obj in list(self._objects.items()) if path.split("/")[-2] == kind]

    def go_on(self):
        """Victims end, and their owners make them again; who is released is bound."""
        for pod in self.of("pods"):
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                self._ending[name] += 1
                if self._ending[name] >= ENDS_AFTER.get(name, 3):
                    del self._objects[path_of(pod)]
                    self.add(raw_pod(f"b/{name}-again", limits=GPU, gates=[names.GATE], created=at(9)))
            elif not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName"):
                self.add({**pod, "spec": {**pod["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}})

    def __call__(self, request, wire):
        if request.path in EMPTY:
            wire.json(200, {"items": []})
        elif request.path.endswith("/events"):
            wire.json(201, {"metadata": {"name": "event"}})
        else:
            self._answer(request, wire)

    def _answer(self, request, wire):
        with self._lock:
            self.calls += 1
            kind = self.fault(self.calls)
            if request.method != "GET":
                self.writes += 1
                kind = self.write_fault(self.writes) if kind == "none" else kind
            if kind in {"refused", "throttled"}:
                code = 503 if kind == "refused" else 429
                wire.json(code, status(code, "ServiceUnavailable"), {"Retry-After": "1"})
                return
            if kind == "doubled":
                self._do(request)
            code, body = self._do(request) if kind != "dead" else (0, None)
        if kind in {"lost", "dead"}:
            wire.cut()
        else:
            wire.json(code, body)

    def _do(self, request):
        if request.method == "GET":
            return self.get(request)
        if request.path.endswith("/eviction"):
            return self._evict(request)
        path = request.path.removesuffix("/status")
        if (old := self._objects.get(path)) is None:
            return 404, status(404, "NotFound")
        if request.headers["Content-Type"] == STRATEGIC:
            return self._tell(path, old, json.loads(request.body))
        code, new = self.patch(request._replace(path=path))
        if code == 200 and _is_gated(old) and not _is_gated(new):
            self._audit(new)
        return code, new

    def _tell(self, path, old, body):
        """Conditions are merged by type."""
        if body["metadata"].get("uid") not in {None, old["metadata"]["uid"]}:
            return 409, status(409, "Conflict")
        conditions = {item["type"]: item for item in old.get("status", {}).get("conditions", ())}
        for item in body["status"]["conditions"]:
            conditions[item["type"]] = {**conditions.get(item["type"], {}), **item}
        told = {**old.get("status", {}), "conditions": list(conditions.values())}
        return 200, self._keep(path, {**old, "status": told})

    def _evict(self, request):
        path = request.path.removesuffix("/eviction")
        pod = self._objects.get(path)
        if pod is None:
            return 404, status(404, "NotFound")
        if pod["metadata"]["uid"] != json.loads(request.body)["deleteOptions"]["preconditions"]["uid"]:
            return 409, status(409, "Conflict")
        assert pod["metadata"]["annotations"][names.EVICTED_FOR], "marked before it is evicted"
        if not self.may_evict():
            return 429, status(429, "TooManyRequests")
        if "deletionTimestamp" not in pod["metadata"]:
            self.evicted.append(pod["metadata"]["name"])
            self._keep(path, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": at(9)}})
        return 201, {"kind": "Status", "status": "Success"}

    def _audit(self, released):
        """Nobody is let through beyond max, nor beyond the sum of mins; who is ending still counts there."""
        through = [pod for pod in self.of("pods") if not pod["spec"].get("schedulingGates")]
        used = Counter(pod["metadata"]["namespace"] for pod in through)
        team = released["metadata"]["namespace"]
        assert used[team] <= MAXS.get(team, 7), f"{used} once {team} is let through"
        assert used.total() <= sum(MINS.values()), f"{used} once {team} is let through"


def _is_gated(obj):
    return bool(obj.get("spec", {}).get("schedulingGates"))


class Term(Leader):
    """One term of a leader that also tells everybody what it has decided; its watches are `late` by so many cycles."""

    def __init__(self, server, *arguments):
        super().__init__(*arguments)
        self._server, self._told = server, []

    def watch(self, late):
        """See what the server has, or had so many cycles ago; a watch does not go back."""
        server = self._server
        kinds = {kind: server.of(kind) for kind in ("pods", "namespaces")}
        self._told.append((server._version, {**kinds, "quotas": server.of("elasticquotas")}))
        self._told = self._told[-1 - late :]
        version, objects = self._told[0]
        self.see(str(version), nodes=[NODE], **objects)

    def cycle(self):
        super().cycle()
        for scribe in self.controller._scribes:
            scribe.tick()


class Story:
    """Leaders one after another over one server, each `skew` seconds ahead of the first, with watches `late` by so many cycles."""

    def __init__(self, client, served):
        self.client, self.server, self.clock = client, Server(), 1000.0
        self.skew, self.late = (lambda: 0.0), (lambda: 0)
        served.otherwise = self.server

    def lead(self, cycles, *, dies_after=None, unheard=False):
        """Lead for so many cycles, or until the leader dies: after so many writes nothing of it reaches the server.

        With `unheard` it dies before it hears that the last one has been done.
        """
        server, before = self.server, self.server.writes
        term = Term(server, self.client, lambda: self.clock, lambda: 1.8e9 + self.clock + self.skew())

        def fate(number):
            late = number - before - dies_after
            return "dead" if late > 0 else "lost" if unheard and late == 0 else "none"

        if dies_after is not None:
            server.write_fault = fate
            term.held = lambda: server.writes - before <= dies_after
        for _ in range(cycles):
            self.clock += 6.0  # beyond the timeout of a write, so that what is unknown is looked at
            term.watch(self.late())
            term.cycle()
            if dies_after is not None and server.writes - before >= dies_after:
                break
            server.go_on()
        term.close()
        server.write_fault = lambda _number: "none"

    def check(self):
        """Three borrowed pods have gone, the claimants run, who went waits, and no mark is left."""
        evicted = sorted(self.server.evicted)
        assert len(evicted) == 3
        assert set(evicted) < {"p1", "p2", "p3", "p4", "p5"}
        pods = self.server.of("pods")
        runs = {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}
        assert runs == {"a6", "a7", "c0", "c8", "p0", "p1", "p2", "p3", "p4", "p5"} - {*evicted}
        assert [pod for pod in pods if names.EVICTED_FOR in pod["metadata"].get("annotations", {})] == []


@pytest.fixture
def story(client, server):
    return Story(client, server)


@pytest.mark.parametrize("late", [0, 1, 2])
def test_three_are_claimed_three_go_and_the_table_below_has_every_write(story, late):
    story.late = lambda: late
    story.lead(12)
    story.check()
    assert sorted(story.server.evicted) == ["p3", "p4", "p5"]
    assert story.server.writes == WRITES


@pytest.mark.parametrize("unheard", [False, True], ids=["and is told of it", "and is not told of it"])
@pytest.mark.parametrize("writes", range(WRITES))
def test_a_leader_may_die_after_any_of_all_its_writes(story, writes, unheard):
    """Marks, evictions, labels, conditions, statuses, releases: the next one evicts the same three, and nobody else."""
    story.late = lambda: 1
    story.lead(12, dies_after=writes, unheard=unheard)
    story.lead(16)
    story.check()
    assert sorted(story.server.evicted) == ["p3", "p4", "p5"]


@pytest.mark.parametrize("seed", range(20))
def test_calls_that_fail_or_are_doubled_cost_time_and_no_pod(story, seed):
    """One call in ten, reads included: refused, put off, done without an answer, or done twice; and leaders change."""
    chance = random.Random(seed)
    kinds = ["refused", "throttled", "lost", "doubled"]
    story.late = lambda: chance.choice((0, 0, 1, 2))
    story.server.fault = lambda _: chance.choice(kinds) if chance.random() < 0.1 else "none"
    for _ in range(4):
        story.lead(chance.randint(2, 5))
    story.server.fault = lambda _: "none"
    story.lead(16)
    story.check()


def test_a_refusal_is_over_in_time_though_the_clock_has_gone_back_five_hours_since(story):
    """What is left of a pause is not measured by a clock that people set."""
    before = story.clock + 13  # two cycles
    story.skew = lambda: 5 * HOURS if story.clock < before else 0.0
    story.server.may_evict = lambda: story.clock >= before
    story.lead(16)
    story.check()


@pytest.mark.parametrize("seed", range(10))
def test_a_clock_that_jumps_by_hours_costs_no_pod(story, seed):
    """Back and forth between cycles, and from leader to leader; calls fail all the while."""
    chance = random.Random(seed)
    story.skew = lambda: chance.choice((-5, -1, 0, 1, 5)) * HOURS
    story.late = lambda: chance.choice((0, 0, 1, 2))
    story.server.fault = lambda _: chance.choice(["refused", "lost"]) if chance.random() < 0.1 else "none"
    for _ in range(4):
        story.lead(chance.randint(2, 5))
    story.server.fault = lambda _: "none"
    story.lead(20)
    story.check()
