"""The leader's loop against a scripted API server, with decisions that the test makes."""

import contextlib
import json
import threading
import time

import pytest

from kube.client import Client
from kube.lease import Leadership
from policies.decision import Cut, Decision, Evict, Release
from policies.view import View
from reconciler.controller import Controller
from reconciler.health import Pulse
from tests.apiserver.server import PATIENCE_S
from tests.apiserver.steps import Live, listing
from tests.builders import raw_node, raw_pod
from tests.sandbox.waiting import eventually

EVICTED_FOR = "nos.nebuly.com/evicted-for"
GATE = "nos.nebuly.com/admission"
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
TRAIN = "/api/v1/namespaces/team-a/pods/train"
N1 = "/api/v1/nodes/n1"
OTHERS = (
    "/apis/nos.nebuly.com/v1alpha1/elasticquotas",
    "/apis/nos.nebuly.com/v1alpha1/compositeelasticquotas",
    "/apis/nos.nebuly.com/v1alpha1/gpupolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/namespaces",
)
ELASTIC, COMPOSITE, POLICIES, BUDGETS, NAMESPACES = OTHERS
DEPLOYMENTS, DAEMONSETS = "/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SLICE = {"nvidia.com/mig-1g.5gb": "1"}


def gated(version="10", **fields):
    return raw_pod("team-a/train", limits=SLICE, gates=[GATE], version=version, **fields)


def free(version="11", **fields):
    return raw_pod("team-a/train", limits=SLICE, version=version, **fields)


def answer(obj):
    return lambda _, wire: wire.json(200, obj)


def releasing(view: View) -> Decision:
    """Release whatever is gated."""
    pods = (pod for pod in view.pods if pod.gated)
    return Decision(ungate=tuple(Release(pod=pod.key, uid=pod.uid, version=pod.version) for pod in pods))


class Term:
    """A term of leadership in a thread of its own, on a cluster with one node and the watches in the test's hands."""

    def __init__(self, server, client, settle):
        self.pods, self.nodes = Live(), Live()
        for path, live in ((PODS, self.pods), (NODES, self.nodes)):
            server.route("GET", path, live, watch=True)
        server.route("GET", PODS, listing([], 5))
        server.route("GET", NODES, listing([raw_node("n1")], 5))
        self.others = {path: Live() for path in OTHERS}
        for path, live in self.others.items():
            server.route("GET", path, listing([], 5))
            server.route("GET", path, live, watch=True)
        for path in (DEPLOYMENTS, DAEMONSETS, WEBHOOKS):
            server.route("GET", path, answer({"items": []}))
        self.leadership = Leadership(float("inf"), time.monotonic)
        self.stop, self.pulse = threading.Event(), Pulse()
        self.views: list[View] = []
        self.seen = threading.Condition()

        def noting(view, _settings):
            with self.seen:
                self.views.append(view)
                self.seen.notify_all()
            return settle(view)

        self.controller = Controller(
            client, self.leadership, self.stop, self.pulse, write_timeout_s=5.0, settle=noting, now=lambda: 1000.0
        )
        self._thread = threading.Thread(target=self.controller.run)

    @contextlib.contextmanager
    def running(self):
        self._thread.start()
        try:
            yield self
        finally:
            self.stop.set()
            self.ended()
            for live in (self.pods, self.nodes, *self.others.values()):
                live.end()

    def ended(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def wait_for_view(self, condition):
        with self.seen:
            assert self.seen.wait_for(lambda: self.views and condition(self.views[-1]), PATIENCE_S)


@pytest.fixture
def term(server, client):
    return lambda settle=releasing, client=client: Term(server, client, settle)


def test_a_pod_that_appears_is_judged_at_once_and_released_in_one_patch(server, term):
    """P17: by the event, not by the resync."""
    server.route("PATCH", TRAIN, answer(free()))
    with term().running() as leading:
        leading.wait_for_view(lambda view: view.nodes)
        leading.pods.send("ADDED", gated())
        [request] = server.wait_for(1, "PATCH", TRAIN)
        body = json.loads(request.body)
        assert (body["metadata"]["resourceVersion"], body["spec"]) == ("10", {"schedulingGates": None})


def test_a_released_pod_is_not_granted_again_before_the_watch_tells_of_it(server, term):
    """Design 5, own writes."""
    server.route("PATCH", TRAIN, answer(free()))
    with term().running() as leading:
        leading.pods.send("ADDED", gated("8"))
        server.wait_for(1, "PATCH", TRAIN)
        leading.pods.send("ADDED", raw_pod("team-a/other", limits=SLICE, version="10", node="n1"))
        leading.wait_for_view(lambda view: len(view.pods) == 2)
        assert {pod.key: pod.released for pod in leading.views[-1].pods} == {
            "team-a/train": True,
            "team-a/other": False,
        }
    assert len(server.asked("PATCH", TRAIN)) == 1


def test_what_changes_while_a_decision_is_made_is_for_one_next_decision(term):
    """Design 5, pace: a burst of pods does not start a cycle for each."""
    deciding, go_on = threading.Event(), threading.Event()

    def settle(view):
        if len(view.pods) == 1:
            deciding.set()
            assert go_on.wait(PATIENCE_S)
        return Decision()

    with term(settle).running() as leading:
        leading.wait_for_view(lambda view: view.nodes)
        leading.pods.send("ADDED", raw_pod("team-a/p0", limits=SLICE, gates=[GATE], version="10"))
        assert deciding.wait(PATIENCE_S)
        for number in range(1, 20):
            leading.pods.send(
                "ADDED", raw_pod(f"team-a/p{number}", limits=SLICE, gates=[GATE], version=str(10 + number))
            )
        eventually(lambda: len(leading.controller.cluster.pods.store.list()) == 20, "all pods are seen")
        go_on.set()
        leading.wait_for_view(lambda view: len(view.pods) == 20)
        assert [len(view.pods) for view in leading.views if view.pods] == [1, 20]


def test_a_pod_that_changed_in_between_is_read_and_judged_again(server, term):
    """R06: every write carries the state that it was decided from."""
    server.route("PATCH", TRAIN, lambda _, wire: wire.json(409, {"kind": "Status", "code": 409}), answer(free("13")))
    server.route("GET", TRAIN, answer(gated("12")))
    with term().running() as leading:
        leading.pods.send("ADDED", gated())
        _, second = server.wait_for(2, "PATCH", TRAIN)
        assert json.loads(second.body)["metadata"]["resourceVersion"] == "12"


def test_the_term_ends_with_the_lease(server, term):
    """R06: work dies with the lease."""
    with term(lambda _: Decision()).running() as leading:
        leading.wait_for_view(lambda view: view.nodes)
        leading.leadership.lost.set()
        leading.ended()
        assert leading.pulse.alive()


def test_once_it_is_to_end_no_further_write_begins(server, term, monkeypatch):
    """R06: the lease is given up at once, not after what may be ten seconds of writes."""
    monkeypatch.setattr("reconciler.apply.WORKERS", 1)
    leading = term()
    other = raw_pod("team-a/zeta", limits=SLICE, gates=[GATE], version="10")
    server.route("GET", PODS, listing([gated(), other], 10))

    def end(_, wire):
        leading.stop.set()
        wire.json(200, free())

    server.route("PATCH", TRAIN, end)
    with leading.running():
        leading.ended()
    assert len([request for request in server.requests if request.method == "PATCH"]) == 1


def test_a_cut_is_allowed_only_after_the_pods_of_its_node_are_read_afresh(server, term):
    """ADR 3, step 4: a pod that the watch has not told of yet holds a withdrawn slice."""

    def settle(view):
        claimed = any(pod.node == "n1" for pod in view.pods)
        return Decision(cuts=() if claimed else (Cut(node="n1", plan="17"),))

    fresh = answer({"metadata": {"resourceVersion": "9"}, "items": [free("12", node="n1")]})
    leading = term(settle)
    server.route("GET", PODS, listing([], 5), fresh)
    with leading.running():
        leading.wait_for_view(lambda view: view.pods)
        assert server.asked("GET", PODS)[1].query["fieldSelector"] == "spec.nodeName=n1"
    assert server.asked("PATCH", N1) == []


def test_a_cut_that_no_pod_stands_against_is_allowed(server, term):
    ordered = raw_node("n1", annotations={"nos.nebuly.com/spec-cut": "17"})
    ordered["metadata"]["resourceVersion"] = "12"
    server.route("PATCH", N1, answer(ordered))
    leading = term(lambda view: Decision(cuts=() if view.nodes[0].cut else (Cut(node="n1", plan="17"),)))
    server.route("GET", PODS, listing([], 5))
    with leading.running():
        [request] = server.wait_for(1, "PATCH", N1)
        assert json.loads(request.body) == {
            "metadata": {"resourceVersion": "1", "annotations": {"nos.nebuly.com/spec-cut": "17"}}
        }


def test_while_pods_cannot_be_read_afresh_nothing_is_cut(server, term):
    leading = term(lambda _: Decision(cuts=(Cut(node="n1", plan="17"),)))
    server.route("GET", PODS, listing([], 5), lambda _, wire: wire.json(503, {"kind": "Status", "code": 503}))
    with leading.running():
        leading.wait_for_view(lambda _: len(leading.views) >= 2)
    assert server.asked("PATCH", N1) == []


def test_beside_nos_nothing_is_decided_and_the_pods_that_wait_are_told(server, term, monkeypatch):
    """Two planners over one set of boards would undo each other's work."""
    monkeypatch.setattr("reconciler.controller.TELL_EVERY_S", 0.02)
    leading = term()
    partitioner = {"metadata": {"name": "nos-gpu-partitioner", "namespace": "nebuly-nos"}}
    server.route("GET", DEPLOYMENTS, answer({"items": [partitioner]}))
    server.route("GET", PODS, listing([gated()], 5))
    server.route("PATCH", f"{TRAIN}/status", answer(gated("11")))
    with leading.running():
        [request, *_] = server.wait_for(1, "PATCH", f"{TRAIN}/status")
        [condition] = json.loads(request.body)["status"]["conditions"]
    assert condition["reason"] == "NosIsPresent"
    assert condition["message"] == (
        "nos is still in the cluster (deployments nebuly-nos/nos-gpu-partitioner); "
        "nothing is decided until it is uninstalled"
    )
    assert leading.views == []


def test_a_pod_that_cannot_be_read_does_not_stop_the_others(server, term):
    server.route("PATCH", TRAIN, answer(free()))
    with term().running() as leading:
        leading.pods.send("ADDED", raw_pod("team-a/odd", limits={"nvidia.com/gpu": "lots"}, gates=[GATE], version="9"))
        leading.pods.send("ADDED", gated())
        server.wait_for(1, "PATCH", TRAIN)
        assert [pod.key for pod in leading.views[-1].pods] == ["team-a/train"]


def test_an_api_server_that_was_away_is_waited_for(server, term):
    """Bad input: the reconciler waits, and recovers by itself."""
    server.route("PATCH", TRAIN, answer(free()))
    with term().running() as leading:
        leading.wait_for_view(lambda view: view.nodes)
        for live in (leading.pods, leading.nodes, *leading.others.values()):
            live.end()
        server.down()
        server.up()
        leading.pods.send("ADDED", gated())
        server.wait_for(1, "PATCH", TRAIN)


def quota(version="6", generation=1, **spec):
    metadata = {
        "name": "quota",
        "namespace": "team-a",
        "uid": "q",
        "resourceVersion": version,
        "generation": generation,
    }
    return {"metadata": metadata, "spec": spec or {"min": {"nvidia.com/gpu": 1}}}


def test_quotas_and_the_budgets_of_governed_namespaces_are_in_the_view(server, term):
    def budget(namespace):
        metadata = {"name": "pdb", "namespace": namespace, "uid": namespace, "resourceVersion": "5"}
        return {"metadata": metadata, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 2}}

    leading = term(lambda _: Decision())
    server.route("GET", ELASTIC, listing([quota()], 6))
    server.route("GET", BUDGETS, listing([budget("team-a"), budget("elsewhere")], 6))
    with leading.running():
        leading.wait_for_view(lambda view: view.quotas)
        view = leading.views[-1]
    assert [(item.key, item.min) for item in view.quotas] == [("team-a/quota", {"nvidia.com/gpu": 1000})]
    assert [(item.key, item.allowed) for item in view.budgets] == [("team-a/pdb", 2)]


def test_the_status_of_a_quota_starts_no_cycle_but_its_spec_does(server, term):
    with term(lambda _: Decision()).running() as leading:
        leading.others[ELASTIC].send("ADDED", quota())
        leading.wait_for_view(lambda view: view.quotas)
        count = len(leading.views)
        leading.others[ELASTIC].send("MODIFIED", {**quota("7"), "status": {"used": {"nvidia.com/gpu": "1"}}})
        leading.others[ELASTIC].send("MODIFIED", quota("8", 2, min={"nvidia.com/gpu": 2}))
        leading.wait_for_view(lambda view: view.quotas[0].generation == 2)
        assert len(leading.views) == count + 1


def test_policies_are_in_the_view(server, term):
    """Design 3.2, quota.admission: whether pods wait for their quota is decided here too."""
    written = {
        "metadata": {"name": "p", "namespace": "team-a", "uid": "p", "resourceVersion": "6", "generation": 1},
        "spec": {"quota": {"admission": "label"}},
    }
    with term(lambda _: Decision()).running() as leading:
        leading.others[POLICIES].send("ADDED", written)
        leading.wait_for_view(lambda view: [policy.gates for policy in view.policies] == [False])
        leading.others[POLICIES].send(
            "DELETED", {**written, "metadata": {**written["metadata"], "resourceVersion": "8"}}
        )
        leading.wait_for_view(lambda view: not view.policies)


def test_a_victim_counts_as_ending_before_the_watch_tells(server, term):
    """Design 5, own writes: else the next settle evicts another one."""
    victim = raw_pod("team-b/lent", limits=SLICE, node="n1", version="9", annotations={EVICTED_FOR: "team-a/train"})
    path = "/api/v1/namespaces/team-b/pods/lent"
    server.route("PATCH", path, answer(victim))
    server.route("POST", f"{path}/eviction", answer({"kind": "Status", "status": "Success"}))

    def settle(view):
        [*pods] = [pod for pod in view.pods if pod.key == "team-b/lent" and not pod.terminating]
        return Decision(
            evict=tuple(
                Evict(
                    pod=pod.key,
                    uid=pod.uid,
                    version=pod.version,
                    claimant="team-a/train",
                    claimant_uid="uid-train",
                    quota="team-a/quota",
                    grace_s=30,
                    reason="Reclaimed",
                    message="it borrows 1",
                )
                for pod in pods
            )
        )

    with term(settle).running() as leading:
        leading.pods.send("ADDED", raw_pod("team-b/lent", limits=SLICE, node="n1", version="8"))
        server.wait_for(1, "POST", f"{path}/eviction")
        leading.pods.send("ADDED", gated("10"))
        leading.wait_for_view(lambda view: len(view.pods) == 2)
        seen = {pod.key: (pod.terminating, pod.evicted_for) for pod in leading.views[-1].pods}
    assert seen["team-b/lent"] == (True, "team-a/train")
    assert len(server.asked("POST", f"{path}/eviction")) == 1


LABELLED = {"nos.nebuly.com/capacity": "in-quota"}


def held_by_quotas(view):
    """Release what no quota governs."""
    governed = {quota.namespace for quota in view.quotas}
    pods = (pod for pod in view.pods if pod.gated and pod.namespace not in governed)
    return Decision(ungate=tuple(Release(pod=pod.key, uid=pod.uid, version=pod.version) for pod in pods))


def test_a_pod_that_bears_the_label_of_a_quota_is_not_let_through_because_the_quota_is_told_late(server, term):
    """The webhook knows of the quota: what we see of quotas is older than the pod."""
    leading = term(held_by_quotas)
    server.route("GET", ELASTIC, listing([], 5), listing([quota("8")], 9))
    with leading.running():
        leading.wait_for_view(lambda view: view.nodes)
        leading.pods.send("ADDED", gated("10", labels=LABELLED))
        leading.wait_for_view(lambda view: view.quotas)
    assert server.asked("PATCH", TRAIN) == []


def test_a_pod_whose_quota_is_gone_is_let_through(server, term):
    server.route("PATCH", TRAIN, answer(free(labels=LABELLED)))
    with term(held_by_quotas).running() as leading:
        leading.wait_for_view(lambda view: view.nodes)
        leading.pods.send("ADDED", gated("10", labels=LABELLED))
        server.wait_for(1, "PATCH", TRAIN)
    lists = [request for request in server.asked("GET", ELASTIC) if "watch" not in request.query]
    assert len(lists) == 2


def test_while_quotas_cannot_be_read_the_pods_that_bear_their_label_stay(server, term):
    leading = term(held_by_quotas)
    server.route("GET", ELASTIC, listing([], 5), lambda _, wire: wire.json(503, {"kind": "Status", "code": 503}))
    server.route("PATCH", f"{TRAIN}-2", answer(free()))
    with leading.running():
        leading.wait_for_view(lambda view: view.nodes)
        leading.pods.send("ADDED", gated("10", labels=LABELLED))
        leading.wait_for_view(lambda view: len(view.pods) == 1)
        leading.pods.send("ADDED", raw_pod("team-a/train-2", limits=SLICE, gates=[GATE], version="11"))
        server.wait_for(1, "PATCH", f"{TRAIN}-2")
    assert server.asked("PATCH", TRAIN) == []


def test_a_rehearsal_decides_once_and_ends(server, tmp_path, term):
    server.route("PATCH", TRAIN, answer(gated()))
    client = Client.load(server.kubeconfig(tmp_path), dry_run=True)
    trying = term(client=client)
    server.route("GET", PODS, listing([gated()], 10))
    trying.controller.rehearse()
    [request] = server.asked("PATCH", TRAIN)
    assert request.query == {"dryRun": "All"}
    assert len(trying.views) == 1
    client.close()
