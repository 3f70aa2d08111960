"""Fifty namespaces create, change and delete quotas while pods flow, on a real control plane; an audit of every release.

The audit knows nothing of our code. It logs what the API server tells of pods and quotas, puts it in the server's own
order (resourceVersion), and reckons at each release who uses what, by section 4 of the design. The leader learns of a
change a little later than the server makes it, so a release is wrong if none of the quotas that stood in the moments
before it allows it; a pod that no gate has held counts, but not at once.
"""

import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from console.sandbox.lifecycle import Sandbox
from kube.client import Client
from kube.errors import ApiError
from kube.resource import COMPOSITE_QUOTAS, ELASTIC_QUOTAS, NAMESPACES, PODS
from tests.sandbox.waiting import eventually

pytestmark = pytest.mark.sandbox

SPACES = [f"space-{number:02}" for number in range(50)]
PAIRS = [SPACES[number : number + 2] for number in range(0, 20, 2)]  # that a composite quota may govern together
ACTIONS, PEOPLE, LOOK_EVERY = 900, 4, 60
KNOWN_AFTER_S = 3.0  # a change that is older is known to the leader, busy as this machine may be
WAIT_S = 30.0
GATE, EVICTED_FOR = "nos.nebuly.com/admission", "nos.nebuly.com/evicted-for"


@pytest.fixture(scope="module")
def cluster():
    with Sandbox.start({"t4": 1}) as sandbox:
        yield sandbox


# What the API server tells ------------------------------------------------------------------------------------------


class Log:
    """All that changes, as the API server tells it: (resourceVersion, seconds, kind, whether it is gone, object)."""

    def __init__(self, client):
        self._client, self.entries, self._streams, self._threads = client, [], [], []

    def __enter__(self):
        for resource in (PODS, ELASTIC_QUOTAS, COMPOSITE_QUOTAS):
            first = json.loads(self._client.get(resource.path()))
            for item in first["items"]:
                self.entries.append((int(item["metadata"]["resourceVersion"]), 0.0, resource.plural, False, item))
            query = {"resourceVersion": first["metadata"]["resourceVersion"]}
            self._streams.append(self._client.watch(resource.path(), query, 300.0))
            self._threads.append(threading.Thread(target=self._follow, args=(resource.plural, self._streams[-1])))
            self._threads[-1].start()
        return self

    def __exit__(self, *_):
        for stream in self._streams:
            stream.interrupt()
        for thread in self._threads:
            thread.join()

    def _follow(self, kind, stream):
        with stream:
            for line in stream:
                event = json.loads(line)
                version = int(event["object"]["metadata"]["resourceVersion"])
                self.entries.append((version, time.monotonic(), kind, event["type"] == "DELETED", event["object"]))


# The audit ----------------------------------------------------------------------------------------------------------


def cpu(quantity):
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


def passed(pod):
    """Return whether a pod uses quota: bound or let through, and not ended."""
    gated = any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", ()))
    ending = "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")
    return not (gated or ending or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"})


def space_of(pod):
    return pod["metadata"]["namespace"]


def key_of(obj):
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def asks(pod):
    return sum(cpu(one["resources"]["requests"]["cpu"]) for one in pod["spec"]["containers"])


def governing(elastic, composite):
    """Return the quota of each namespace: composites before others, older before younger, whole or not at all."""
    found = {}
    for kind, quotas in (("CompositeElasticQuota", composite), ("ElasticQuota", elastic)):
        for quota in sorted(quotas, key=lambda quota: (quota["metadata"]["creationTimestamp"], key_of(quota))):
            spaces = quota["spec"].get("namespaces") or [quota["metadata"]["namespace"]]
            if not any(space in found for space in spaces):
                found |= dict.fromkeys(spaces, (kind, quota))
    return found


class Audit:
    """The cluster as it was at one resourceVersion, and what was wrong on the way there.

    Attributes:
        pods: by uid.
        governed, held_back, evicted: how many releases a quota governed, how many pods it made wait, how many went.
        wrong: a line for each release that nothing allows.
    """

    def __init__(self):
        self.pods, self.governed, self.held_back, self.evicted, self.wrong = {}, 0, set(), set(), []
        self._quotas = {ELASTIC_QUOTAS.plural: {}, COMPOSITE_QUOTAS.plural: {}}
        self._stood = {kind: [(0.0, {})] for kind in self._quotas}  # (since when, the quotas by name)
        self._slipped = {}  # uid -> when a pod was seen first that no gate has ever held

    def replay(self, entry):
        _, at, kind, gone, obj = entry
        if kind == PODS.plural:
            self._pod(at, obj, gone)
            return
        quotas = dict(self._stood[kind][-1][1])
        quotas.pop(key_of(obj), None)
        self._stood[kind].append((at, quotas if gone else {**quotas, key_of(obj): obj}))

    def _pod(self, at, pod, gone):
        uid = pod["metadata"]["uid"]
        before = self.pods.pop(uid, None)
        if gone:
            return
        self.pods[uid] = pod
        if EVICTED_FOR in pod["metadata"].get("annotations", {}) and "deletionTimestamp" in pod["metadata"]:
            self.evicted.add(uid)
        if not passed(pod):
            self.held_back.add(uid)
        elif before is None:
            self._slipped[uid] = at
        elif not passed(before):
            self._released(at, pod)

    def _released(self, at, pod):
        """Look whether some of the quotas that the leader may have known allows it."""
        why = ""
        for place, (elastic, composite) in enumerate(product(*(self._known(kind, at) for kind in self._stood))):
            governs = governing(elastic.values(), composite.values())
            self.governed += place == 0 and space_of(pod) in governs
            why = self._refuses(at, pod, governs)
            if not why:
                return
        self.wrong.append(f"{key_of(pod)} at {pod['metadata']['resourceVersion']}: {why}")

    def _known(self, kind, at):
        """Return the quotas of a kind that have stood within the time after which all is known, newest first."""
        stood = self._stood[kind]
        first = max((place for place, (since, _) in enumerate(stood) if since <= at - KNOWN_AFTER_S), default=0)
        return [quotas for _, quotas in reversed(stood[first:])]

    def _refuses(self, at, pod, governs):
        """Return why quotas would not let a pod through; empty if they do."""
        if space_of(pod) not in governs:
            return ""
        used, total = Counter(), 0
        waiting = {key_of(other) for other in self.pods.values() if not passed(other)}
        for uid, other in self.pods.items():
            if not passed(other) or space_of(other) not in governs or at - self._slipped.get(uid, 0.0) < KNOWN_AFTER_S:
                continue
            _, quota = governs[space_of(other)]
            leaves = "deletionTimestamp" in other["metadata"]
            leaves = leaves and other["metadata"].get("annotations", {}).get(EVICTED_FOR) in waiting
            used[key_of(quota)] += 0 if leaves else asks(other)
            total += asks(other)
        kind, quota = governs[space_of(pod)]
        most = quota["spec"].get("max", {}).get("cpu")
        if most is not None and used[key_of(quota)] > cpu(str(most)):
            return f"{kind} {key_of(quota)} uses {used[key_of(quota)]} of at most {most}"
        titles = {key_of(quota): cpu(str(quota["spec"]["min"]["cpu"])) for _, quota in governs.values()}
        return f"all use {total} of {sum(titles.values())}" if total > sum(titles.values()) else ""


# What people do -------------------------------------------------------------------------------------------------------


def pod_asking(name, amount, grace_s):
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": amount}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": grace_s, "automountServiceAccountToken": False}
    return {"metadata": {"name": name}, "spec": spec}


class People:
    """Somebody who creates and deletes pods and quotas, each action by chance."""

    def __init__(self, client, seed):
        self._client, self._chance, self._number = client, random.Random(seed), 0
        self._seed = seed

    def act(self):
        what = self._chance.choices((self._create, self._delete, self._rewrite, self._join), (60, 25, 12, 3))[0]
        try:
            what(self._chance.choice(SPACES))
        except ApiError as error:  # what they want may be forbidden, there already, or gone
            if error.status not in {403, 404, 409, 422}:
                raise

    def _create(self, space):
        self._number += 1
        asked, grace_s = self._chance.choice(("500m", "1", "2")), self._chance.choice((0, 1))
        self._client.create(PODS.path(space), pod_asking(f"pod-{self._seed}-{self._number}", asked, grace_s))

    def _delete(self, space):
        pods = json.loads(self._client.get(PODS.path(space)))["items"]
        if pods:
            gone = self._chance.choice(pods)["metadata"]["name"]
            self._client.delete(PODS.path(space, gone), {"gracePeriodSeconds": 0})

    def _rewrite(self, space):
        self._put(ELASTIC_QUOTAS, space, {})

    def _join(self, _):
        spaces = self._chance.choice(PAIRS)
        self._put(COMPOSITE_QUOTAS, spaces[0], {"namespaces": spaces})

    def _put(self, resource, space, spec):
        """Create a quota, or change or delete the one that is there."""
        least = self._chance.choice((0, 1, 2, 4))
        spec["min"] = {"cpu": least}
        if self._chance.random() < 0.6:
            spec["max"] = {"cpu": least + self._chance.choice((0, 1, 1))}
        path = resource.path(space, "quota")
        try:
            there = json.loads(self._client.get(path))
        except ApiError:
            kind = "CompositeElasticQuota" if resource is COMPOSITE_QUOTAS else "ElasticQuota"
            body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": "quota"}, "spec": spec}
            self._client.create(resource.path(space), body)
            return
        if self._chance.random() < 0.3:
            self._client.delete(path)
        else:
            self._client.merge_patch(
                path, {"spec": {"max": None, **spec}, "metadata": {"uid": there["metadata"]["uid"]}}
            )


def held(pods):
    """Return of each pod whether it is through."""
    return {pod["metadata"]["uid"]: passed(pod) for pod in pods}


def untrue(client):
    """Return the quotas whose status does not say what their pods use."""
    pods, elastic, composite = (
        json.loads(client.get(resource.path()))["items"] for resource in (PODS, ELASTIC_QUOTAS, COMPOSITE_QUOTAS)
    )
    governs, used = governing(elastic, composite), Counter()
    for pod in filter(passed, pods):
        if space_of(pod) in governs:
            used[governs[space_of(pod)][1]["metadata"]["uid"]] += asks(pod)
    quotas = {quota["metadata"]["uid"]: quota for _, quota in governs.values()}
    said = {uid: quota.get("status", {}).get("used", {}).get("cpu", "-1") for uid, quota in quotas.items()}
    return [key_of(quotas[uid]) for uid, text in said.items() if cpu(text) != used[uid]]


def test_no_release_is_wrong_while_fifty_namespaces_create_change_and_delete_quotas(cluster):
    """Q05: every release, in the order of the API server, from a log that has missed nothing; then every status is true."""
    client = Client.load(str(cluster.kubeconfig))
    for space in SPACES:
        client.create(NAMESPACES.path(), {"metadata": {"name": space}})
    moments = []

    def flow(somebody):
        for action in range(ACTIONS // PEOPLE):
            somebody.act()
            if action % LOOK_EVERY == 0:
                moments.append(json.loads(client.get(PODS.path())))

    with Log(client) as log:
        with ThreadPoolExecutor(PEOPLE) as pool:
            list(pool.map(flow, [People(client, seed) for seed in range(PEOPLE)]))
        eventually(lambda: not untrue(client), "every quota says what its pods use", WAIT_S)
        last = json.loads(client.create(PODS.path("default"), pod_asking("last", "500m", 0)))["metadata"]["uid"]
        eventually(lambda: any(entry[-1]["metadata"]["uid"] == last for entry in log.entries), "the log ends", WAIT_S)
    client.close()
    looks = sorted(
        ((int(look["metadata"]["resourceVersion"]), look["items"]) for look in moments), key=lambda look: look[0]
    )
    audit = Audit()
    for entry in sorted(log.entries, key=lambda entry: entry[0]):
        while looks and looks[0][0] < entry[0]:
            assert held(audit.pods.values()) == held(looks.pop(0)[1]), "what is logged is what a list says"
        audit.replay(entry)
    assert looks == []
    assert audit.wrong == []
    assert (audit.governed > 50, len(audit.held_back) > 50, len(audit.evicted) > 10) == (True, True, True)
