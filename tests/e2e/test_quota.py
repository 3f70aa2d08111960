"""Teams lend each other slices and get them back, on a real control plane: webhook, reconciler, evictions, owners."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from console.sandbox.kubectl import KubectlError
from console.sandbox.lifecycle import Sandbox, running
from console.sandbox.watching import PodWatch
from policies import names
from tests.builders import raw_pod
from tests.sandbox.waiting import create_namespace, eventually

pytestmark = pytest.mark.sandbox
SECONDS = 5.0  # "within seconds": it takes a tenth of one where victims end at once
WAIT_S = 30.0
SLICE = {"nvidia.com/mig-1g.5gb": "1"}
US = ("--as=system:serviceaccount:apportion-system:apportion-reconciler", "--as-group=system:masters")
# One A100-40 makes seven slices of 5 GB: the lender owns three of them, the borrower four. As nos's users write it.
QUOTAS = """
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota
metadata: {name: quota, namespace: lender}
spec:
  min: {nos.nebuly.com/gpu-memory: 15}
---
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota
metadata: {name: quota, namespace: borrower}
spec:
  min: {nos.nebuly.com/gpu-memory: 20}
  max: {nos.nebuly.com/gpu-memory: 35}
"""


@pytest.fixture(scope="module")
def cluster():
    with Sandbox.start({"a100-40": 1}) as sandbox:
        yield sandbox


@pytest.fixture
def teams(cluster):
    """Two governed namespaces, and a borrower that fills the board; all gone afterwards."""
    for team in ("lender", "borrower"):
        create_namespace(cluster, team)
    cluster.kubectl("apply", "-f", "-", stdin=QUOTAS)
    for team in ("lender", "borrower"):
        eventually(lambda team=team: label(cluster, team) == "quota", "the namespace bears its quota", WAIT_S)
    with PodWatch(cluster, "borrower") as borrower, PodWatch(cluster, "lender") as lender:
        cluster.kubectl("apply", "-f", "-", stdin=deployment(7))
        eventually(lambda: len(runs(borrower)) == 7, "seven borrowed slices run", WAIT_S)
        yield lender, borrower
        for team in ("lender", "borrower"):
            cluster.kubectl("delete", "deployment,eq,pdb", "--all", "-n", team)
            cluster.kubectl("delete", "pods", "--all", "-n", team, "--force", "--grace-period=0")
            cluster.kubectl("delete", "namespace", team)


def label(cluster, namespace):
    return get(cluster, "namespace", namespace)["metadata"].get("labels", {}).get(names.QUOTA_LABEL)


def get(cluster, *what):
    return json.loads(cluster.kubectl("get", *what, "-o", "json"))


def deployment(replicas):
    pod = raw_pod("/x", limits=SLICE)["spec"]
    labels = {"app": "borrows"}
    return yaml.safe_dump({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "borrows", "namespace": "borrower"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": {**pod, "terminationGracePeriodSeconds": 0}}},
    })  # fmt: skip


def pods_of(watch):
    return watch._informer.store.list()


def runs(watch):
    return {pod.name: pod for pod in pods_of(watch) if pod.running and not pod.terminating}


def claim(lender, name="claims"):
    lender.create({"metadata": {"name": name}, "spec": raw_pod("/x", limits=SLICE)["spec"]})


def evictions(cluster):
    """Return (victim, message) of each Event that tells of one."""
    found = get(cluster, "events", "-n", "borrower", "--field-selector", "reason=Reclaimed")["items"]
    return [(item["involvedObject"]["name"], item["message"]) for item in found]


def test_what_is_lent_comes_back_within_seconds_exactly_as_much_as_needed(cluster, teams):
    """Q01, Q20, Q28: one borrowed pod goes, the youngest, and comes back waiting behind its claimant."""
    lender, borrower = teams
    before = runs(borrower)
    over = {name for name, pod in before.items() if pod.capacity == names.OVER_QUOTA}
    assert len(over) == 3
    asked = time.monotonic()
    claim(lender)
    lender.wait("claims", lambda pod: pod is not None and pod.running, WAIT_S)
    assert lender.ran["claims"] - asked < SECONDS
    eventually(lambda: len(pods_of(borrower)) == 7 and len(runs(borrower)) == 6, "the victim comes back", WAIT_S)
    [gone] = before.keys() - runs(borrower).keys()
    assert gone in over
    [back] = [pod for pod in pods_of(borrower) if pod.name not in before]
    borrower.wait(back.name, lambda pod: pod is not None and pod.gated and pod.waiting[0] != "", WAIT_S)
    eventually(lambda: len(evictions(cluster)) == 1, "the eviction is told of", WAIT_S)
    assert evictions(cluster)[0][0] == gone
    assert "lender/claims" in evictions(cluster)[0][1]

    def status():
        quota = get(cluster, "eq", "quota", "-n", "borrower")["status"]
        return quota["used"], quota["borrowed"], quota["conditions"][0]["reason"]

    memory = names.GPU_MEMORY_QUOTA
    eventually(lambda: status() == ({memory: "30"}, {memory: "10"}, "Ready"), "the status is true", WAIT_S)
    assert get(cluster, "eq", "quota", "-n", "lender")["status"]["lent"] == {memory: "10"}


def test_a_budget_is_asked_before_anybody_is_evicted(cluster, teams):
    """Q11: no eviction, a reason, and the claim is met once the budget allows it."""
    lender, borrower = teams
    budget = ("-n", "borrower", "create", "pdb", "all", "--selector=app=borrows", "--min-available=7")
    cluster.kubectl(*budget)
    eventually(
        lambda: get(cluster, "pdb", "all", "-n", "borrower").get("status", {}).get("expectedPods") == 7,
        "the budget counts its pods",
        WAIT_S,
    )
    claim(lender)
    lender.wait("claims", lambda pod: pod is not None and pod.waiting[0] == names.NOTHING_TO_RECLAIM, WAIT_S)
    assert len(runs(borrower)) == 7
    cluster.kubectl("delete", "pdb", "all", "-n", "borrower")
    lender.wait("claims", lambda pod: pod is not None and pod.running, WAIT_S)
    eventually(lambda: len(runs(borrower)) == 6, "one has gone", WAIT_S)


def test_a_leader_killed_between_mark_and_eviction_costs_no_second_pod(cluster, teams):
    """The next one completes what is still right and takes back what is not."""
    lender, borrower = teams
    before = runs(borrower)
    leader = reconciler(cluster)
    os.kill(leader, signal.SIGSTOP)
    claim(lender)
    inside = next(name for name, pod in before.items() if pod.capacity == names.IN_QUOTA)
    over = next(name for name, pod in before.items() if pod.capacity == names.OVER_QUOTA)
    for name in (inside, over):
        cluster.kubectl(*US, "annotate", "pod", name, "-n", "borrower", f"{names.EVICTED_FOR}=lender/claims")
    os.kill(leader, signal.SIGKILL)
    lender.wait("claims", lambda pod: pod is not None and pod.running, 60.0)
    eventually(lambda: not [pod for pod in runs(borrower).values() if pod.evicted_for], "no mark is left", WAIT_S)
    eventually(lambda: len(pods_of(borrower)) == 7, "the victim comes back", WAIT_S)
    assert len(before.keys() - runs(borrower).keys()) == 1
    assert inside in runs(borrower)


def test_a_rehearsal_beside_the_leader_says_who_would_go_and_changes_nothing(cluster, teams):
    """Issue 4: a dry-run apply; with the leader's own rights, and judged by the API server."""
    lender, borrower = teams
    leader = reconciler(cluster)
    os.kill(leader, signal.SIGSTOP)  # it would be done before anybody could rehearse
    try:
        claim(lender)
        lender.wait("claims", lambda pod: pod is not None and pod.gated, WAIT_S)
        lease = get(cluster, "lease", "apportion-reconciler", "-n", "apportion-system")["spec"]
        before = {pod.name: pod.version for pod in pods_of(borrower)}
        config = cluster.directory / "apportion-reconciler.kubeconfig"
        command = [sys.executable, "-m", "reconciler", "--dry-run", f"--kubeconfig={config}"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=WAIT_S, check=True)
        told = [json.loads(line) for line in done.stderr.splitlines()]
        [evicted] = [line for line in told if line["event"] == "evicted"]
        assert evicted["claimant"] == "lender/claims"
        assert [(line["pod"], line["reason"]) for line in told if line["event"] == "waits"] == [
            ("lender/claims", names.EVICTING)
        ]
        assert {pod.name: pod.version for pod in pods_of(borrower)} == before
        assert evictions(cluster) == []
        assert get(cluster, "lease", "apportion-reconciler", "-n", "apportion-system")["spec"] == lease
    finally:
        os.kill(leader, signal.SIGCONT)
    lender.wait("claims", lambda pod: pod is not None and pod.running, WAIT_S)
    assert evicted["pod"].removeprefix("borrower/") not in runs(borrower)  # the leader comes to the same


def test_what_decides_over_others_is_not_written_by_users(cluster, teams):
    _, borrower = teams
    name = next(name for name, pod in runs(borrower).items() if pod.capacity == names.OVER_QUOTA)
    for arguments in (
        ("annotate", "pod", name, "-n", "borrower", f"{names.EVICTED_FOR}=a/b"),
        ("annotate", "pod", name, "-n", "borrower", f"{names.NON_PREEMPTIBLE}=true"),
        ("label", "--overwrite", "pod", name, "-n", "borrower", f"{names.CAPACITY_LABEL}=in-quota"),
        ("label", "--overwrite", "namespace", "borrower", f"{names.QUOTA_LABEL}=other"),
    ):
        with pytest.raises(KubectlError, match="denied the request"):
            cluster.kubectl(*arguments)


NOS = """
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota
metadata: {name: quota-a, namespace: nos-a}
spec:
  min: {cpu: 2, nos.nebuly.com/gpu-memory: 16}
  max: {cpu: 10}
---
apiVersion: nos.nebuly.com/v1alpha1
kind: CompositeElasticQuota
metadata: {name: quota-bc, namespace: default}
spec:
  namespaces: [nos-b, nos-c]
  min: {nvidia.com/gpu: 4}
  max: {nvidia.com/gpu: 8}
"""


def test_manifests_of_nos_work_unchanged(cluster):
    """As its guide has them, with its scheduler's name on a pod that asks for CPU alone."""
    for space in ("nos-a", "nos-b", "nos-c"):
        create_namespace(cluster, space)
    cluster.kubectl("apply", "-f", "-", stdin=NOS)
    for space, quota in (("nos-a", "quota-a"), ("nos-b", "quota-bc"), ("nos-c", "quota-bc")):
        eventually(lambda space=space, quota=quota: label(cluster, space) == quota, "the label is there", WAIT_S)
    for kind, name, space in (("eq", "quota-a", "nos-a"), ("ceq", "quota-bc", "default")):
        cluster.kubectl("wait", "--for=condition=Ready", kind, name, "-n", space, f"--timeout={WAIT_S:.0f}s")
    with PodWatch(cluster, "nos-a") as pods:
        spec = raw_pod("/x", requests={"cpu": "1500m"}, schedulerName="nos-scheduler")["spec"]
        pods.create({"metadata": {"name": "own"}, "spec": spec})
        pods.wait("own", lambda pod: pod is not None and pod.running and pod.capacity == names.IN_QUOTA, WAIT_S)
        pods.create({"metadata": {"name": "over"}, "spec": spec})
        # CPU is lent only by those who own some: there is nobody, so three of two is too much ...
        pods.wait("over", lambda pod: pod is not None and pod.gated and pod.waiting[0] != "", WAIT_S)
        # ... until the quota grows.
        cluster.kubectl("patch", "eq", "quota-a", "-n", "nos-a", "--type=merge", '-p={"spec":{"min":{"cpu":4}}}')
        pods.wait("over", lambda pod: pod is not None and pod.running, WAIT_S)
        eventually(
            lambda: get(cluster, "eq", "quota-a", "-n", "nos-a")["status"]["used"].get("cpu") == "3",
            "used is true",
            WAIT_S,
        )
        for wrong in (
            NOS.replace("cpu: 10", "cpu: 1"),
            NOS.replace("max: {cpu", "max: {gpu").replace("quota-a", "other"),
            NOS.replace("quota-bc", "second"),
            NOS.replace("namespace: nos-a", "namespace: nos-b"),
        ):
            with pytest.raises(KubectlError, match=r"denied the request|Invalid value"):
                cluster.kubectl("apply", "-f", "-", stdin=wrong)
        cluster.kubectl("delete", "pods", "--all", "-n", "nos-a", "--force", "--grace-period=0")
    cluster.kubectl("delete", "eq,ceq", "--all", "-A")
    cluster.kubectl("delete", "namespace", "nos-a", "nos-b", "nos-c")


def reconciler(cluster):
    return next(process.pid for process in running(cluster.name).processes if process.name == "apportion-reconciler")
