"""Design 5, pace: nobody waits for a node that is slow, away, gone or refuses; real decisions, real agents, no time passes.

The leader goes cycle by cycle against a scripted server, the agents pass by pass on simulated boards, when the test says
so. Each node has one A30 with a free 1g at unit 0, so that a pod that needs the whole board takes both steps of an order:
withdraw, then cut.
"""

import copy

import msgspec
import pytest

from policies import names
from policies.decision import Decision
from policies.model import Pod
from policies.view import ORDER_S, view_pod
from reconciler.agent.driver import Slice
from tests.agent.world import World
from tests.apiserver.objects import Objects
from tests.builders import A30, raw_pod
from tests.reconciler.leading import Leader

WHOLE = {"nvidia.com/mig-4g.24gb": "1"}
SMALL = {"nvidia.com/mig-1g.6gb": "1"}
EMPTY = ("/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets",
         "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations")  # fmt: skip


class Cluster(Objects):
    """Nodes with their agents, pods, and a scheduler; nobody acts unless told to."""

    def __init__(self, *nodes):
        super().__init__()
        self.worlds = {name: World({0: [("1g.6gb", 0)]}, name=name, product=A30) for name in nodes}
        for name, world in self.worlds.items():
            self._keep(node_path(name), {**world.node, "metadata": {**world.node["metadata"], "uid": f"uid-{name}"}})

    def __call__(self, request, wire):
        if request.path in EMPTY:
            wire.json(200, {"items": []})
        elif request.path.endswith("/events"):
            wire.json(201, {"metadata": {"name": "event"}})
        elif request.method == "GET" and request.path == "/api/v1/pods":  # those of a node, before a cut
            wire.json(200, {"metadata": {"resourceVersion": str(self._version)}, "items": self.pods()})
        else:
            super().__call__(request, wire)

    def add(self, name, limits, **fields):
        pod = raw_pod(f"ml/{name}", limits=limits, gates=[names.GATE], created="2026-01-01T00:00:00Z", **fields)
        self._keep(pod_path(name), pod)

    def remove(self, path):
        del self._objects[path]

    def nodes(self):
        return [obj for path, obj in self._objects.items() if "/nodes/" in path]

    def pods(self):
        return [obj for path, obj in self._objects.items() if "/pods/" in path]

    def let_agent_act(self, name):
        """Let an agent make one pass over its node."""
        world = self.worlds[name]
        world.node = copy.deepcopy(self[node_path(name)])
        there = [pod for pod in self.pods() if pod["spec"].get("nodeName") == name]
        world.pods.clear()
        world.pods.update({pod["metadata"]["name"]: view_pod(msgspec.convert(pod, Pod)) for pod in there})
        world.act()
        self._keep(node_path(name), world.node)

    def schedule(self):
        """Bind every pod that has been let through and finds its slice announced and free."""
        for pod in self.pods():
            if pod["spec"].get("schedulingGates") or pod["spec"].get("nodeName"):
                continue
            (resource,) = pod["spec"]["containers"][0]["resources"]["limits"]
            for node in self.nodes():
                name = node["metadata"]["name"]
                taken = [
                    other
                    for other in self.pods()
                    if other["spec"].get("nodeName") == name
                    and resource in other["spec"]["containers"][0]["resources"]["limits"]
                ]
                if int(node["status"]["allocatable"].get(resource, 0)) > len(taken):
                    self.bind(pod["metadata"]["name"], name)
                    break

    def bind(self, pod, node):
        bound = copy.deepcopy(self[pod_path(pod)])
        bound["spec"].pop("schedulingGates", None)
        bound["spec"]["nodeName"], bound["status"] = node, {"phase": "Running"}
        self._keep(pod_path(pod), bound)

    def where(self):
        """Return the nodes of the pods that run, by name."""
        return {pod["metadata"]["name"]: node for pod in self.pods() if (node := pod["spec"].get("nodeName"))}

    def ordered(self):
        """Return the nodes that have an order to carry out."""
        notes = {node["metadata"]["name"]: node["metadata"]["annotations"] for node in self.nodes()}
        return sorted(name for name, each in notes.items() if each.get(names.SPEC_PLAN) != each.get(names.STATUS_PLAN))


class Story:
    """A leader and a cluster of so many nodes, `n1` and so on."""

    def __init__(self, client, server, count):
        self.now = 1000.0
        self.cluster = Cluster(*(f"n{number + 1}" for number in range(count)))
        self.leader = Leader(client, lambda: self.now)
        server.otherwise = self.cluster

    def cycle(self, *, sees_all=True):
        """Let the leader decide once; unless it `sees_all`, from what its watches told before."""
        if sees_all:
            self.leader.see(str(self.cluster._version), nodes=self.cluster.nodes(), pods=self.cluster.pods())
        self.leader.cycle()

    def go_on(self, *agents, turns=6):
        """Let leader, these agents and scheduler take turns; the clock goes on a second with each."""
        for _ in range(turns):
            self.cycle()
            for name in agents:
                self.cluster.let_agent_act(name)
            self.cluster.schedule()
            self.now += 1.0

    def says(self, pod):
        return self.leader.controller._waiting_report.waiting[f"ml/{pod}"][0]


@pytest.fixture
def story(client, server):
    stories = []

    def start(count):
        stories.append(Story(client, server, count))
        return stories[-1]

    yield start
    for each in stories:
        each.leader.close()


def test_two_plans_are_in_flight_and_the_slower_agent_holds_up_nobody(story):
    """P17; the first agent does nothing while the second carries out both steps, and then catches up."""
    one = story(2)
    one.cluster.add("a", WHOLE)
    one.cluster.add("b", WHOLE)
    one.cycle()
    assert one.cluster.ordered() == ["n1", "n2"]
    one.go_on("n2")
    assert list(one.cluster.where().values()) == ["n2"]
    assert one.cluster.ordered() == ["n1"]
    one.cluster.add("c", WHOLE)
    one.go_on("n1")
    assert sorted(one.cluster.where().values()) == ["n1", "n2"]


def test_while_an_order_is_carried_out_pods_that_come_are_planned_on_other_nodes(story):
    one = story(2)
    one.cluster.add("a", WHOLE)
    one.cycle()
    (busy,) = one.cluster.ordered()
    one.cluster.add("b", WHOLE)
    one.cycle()
    assert one.cluster.ordered() == ["n1", "n2"]
    one.go_on(*{"n1", "n2"} - {busy})
    assert len(one.cluster.where()) == 1


def test_an_agent_that_is_away_is_planned_around_after_a_minute_and_does_no_harm_when_it_is_back(story):
    one = story(2)
    one.cluster.add("a", WHOLE)
    one.cycle()
    (away,) = one.cluster.ordered()
    (other,) = {"n1", "n2"} - {away}
    one.go_on(other)
    assert (one.cluster.where(), one.says("a")) == ({}, "SliceBeingCut")
    one.now += ORDER_S
    one.go_on(other)
    assert one.cluster.where() == {"a": other}
    one.cluster.add("b", WHOLE)
    one.go_on(away, other, turns=10)
    assert one.cluster.where() == {"a": other, "b": away}


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["ordered", "withdrawn", "allowed"])
def test_a_node_that_vanishes_in_the_middle_of_a_plan_is_planned_around_at_once(story, steps):
    one = story(2)
    one.cluster.add("a", WHOLE)
    one.cycle()
    (gone,) = one.cluster.ordered()
    if steps:
        one.cluster.let_agent_act(gone)
    if steps > 1:
        one.cycle()
        assert one.cluster[node_path(gone)]["metadata"]["annotations"][names.SPEC_CUT]
    one.cluster.remove(node_path(gone))
    (other,) = {"n1", "n2"} - {gone}
    one.go_on(other)
    assert one.cluster.where() == {"a": other}


def test_a_node_that_has_gone_before_its_order_is_written_costs_one_more_cycle(story):
    """Its watch has not told yet: the write finds nothing, and the leader forgets the node."""
    one = story(2)
    one.cluster.add("a", WHOLE)
    one.leader.see("1", nodes=one.cluster.nodes(), pods=one.cluster.pods())
    one.cluster.remove(node_path("n1"))
    one.cycle(sees_all=False)
    one.cycle(sees_all=False)
    assert one.cluster.ordered() == ["n2"]


def test_an_agent_refuses_a_plan_whose_board_has_changed_and_the_next_one_is_made_from_what_is_there(story):
    """A person has cut the board by hand after the leader looked: of what it bears now nothing was planned."""
    one = story(1)
    one.cluster.add("a", WHOLE)
    one.cycle()
    world = one.cluster.worlds["n1"]
    world.driver.create(world.uuids[0], Slice("2g.12gb", 2))
    one.cluster.let_agent_act("n1")
    assert one.cluster.ordered() == []
    assert [str(item) for item in world.driver.slices(world.uuids[0])] == ["1g.6gb at 0", "2g.12gb at 2"]
    one.go_on("n1")
    assert one.cluster.where() == {"a": "n1"}


def test_a_slice_that_a_pod_has_taken_meanwhile_is_kept_and_the_plan_made_anew(story):
    """P16, P10: a pod without a gate has been bound between look and order; it is not disturbed."""
    one = story(2)
    one.cluster.add("a", WHOLE)
    one.cycle()
    (taken,) = one.cluster.ordered()
    one.cluster.add("early", SMALL)
    one.cluster.bind("early", taken)
    one.go_on("n1", "n2", turns=8)
    (other,) = {"n1", "n2"} - {taken}
    assert one.cluster.where() == {"early": taken, "a": other}
    world = one.cluster.worlds[taken]
    assert [str(item) for item in world.driver.slices(world.uuids[0])] == ["1g.6gb at 0"]


def test_an_order_that_cannot_be_written_holds_up_no_other(story, server):
    one = story(2)
    one.cluster.add("a", WHOLE)
    one.cluster.add("b", WHOLE)
    server.route("PATCH", node_path("n1"), lambda _, wire: wire.json(503, {"kind": "Status", "code": 503}))
    one.go_on("n2")
    assert list(one.cluster.where().values()) == ["n2"]


@pytest.mark.parametrize(
    ("took_s", "pause_s"),
    [
        pytest.param(0.0, 0.0, id="a-quiet-cluster-is-answered-at-once"),
        pytest.param(0.05, 0.05, id="as-long-as-deciding-takes"),
        pytest.param(3.0, 0.2, id="never-more-than-200-ms"),
    ],
)
def test_changes_that_follow_a_decision_wait_for_each_other(client, server, took_s, pause_s):
    server.otherwise = Cluster()
    time = [1000.0]

    def settle(_view, _settings):
        time[0] += took_s
        return Decision()

    leader = Leader(client, lambda: time[0], settle=settle)
    leader.cycle()
    assert leader.controller._not_before - time[0] == pytest.approx(pause_s)
    leader.close()


def node_path(name):
    return f"/api/v1/nodes/{name}"


def pod_path(name):
    return f"/api/v1/namespaces/ml/pods/{name}"
