"""What is away comes back, and the rest goes on meanwhile."""

import http.client
import json
import os
import signal
import ssl
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.sandbox.lifecycle import running
from kube.errors import ApiError
from policies import names
from tests.builders import raw_pod
from tests.sandbox.waiting import eventually

pytestmark = pytest.mark.sandbox
WAIT_S = 60.0


def process(cluster, name):
    return next(process for process in running(cluster.name).processes if process.name == name)


def review(port):
    """Return the webhook's answer to a review of a pod with half a GPU."""
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "default",
        "userInfo": {"username": "somebody"},
        "object": raw_pod("default/half", limits={names.GPU: "500m"}, requests={names.GPU: "500m"}),
    }
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # who it is, the API server checks
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["response"]
    finally:
        connection.close()


def test_with_the_api_server_away_the_webhook_answers_from_memory_and_all_recover(cluster, team):
    server, webhook = process(cluster, "kube-apiserver"), process(cluster, "apportion-webhook")
    os.kill(server.pid, signal.SIGKILL)
    answer = review(webhook.port)
    assert answer["allowed"]
    assert "nvidia.com/mig-3g.20gb" in answer["warnings"][0]
    eventually(
        lambda: process(cluster, "kube-apiserver").pid not in (None, server.pid), "the API server is back", WAIT_S
    )
    pod = {"metadata": {"name": "after"}, "spec": raw_pod("/after", limits={"nvidia.com/mig-1g.5gb": "1"})["spec"]}
    eventually(lambda: created(team, pod), "a pod is accepted again", WAIT_S)
    team.wait("after", lambda pod: pod is not None and pod.running, WAIT_S)


def created(team, pod):
    try:
        team.create(pod)
    except Exception as error:  # noqa: BLE001 - whatever a server says that is just starting
        return "AlreadyExists" in str(error)
    return True


@contextmanager
def frozen(pid):
    """Stop a process and its children: who connects gets no answer, which is worse than that nobody listens."""
    pids = (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    for each in pids:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in reversed(pids):
            os.kill(each, signal.SIGCONT)


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]
"""


def test_with_the_webhook_away_only_pods_that_ask_for_a_gpu_wait_for_it(cluster, team):
    """W13, W20, W37: labels, finalizers, Job tracking and deletion of running GPU pods go on, and pods without a wish."""

    def kubectl(*arguments, stdin=None):
        return cluster.kubectl(f"--namespace={team.namespace}", *arguments, stdin=stdin)

    slices = raw_pod("/x", limits={"nvidia.com/mig-1g.5gb": "1"})["spec"] | {"terminationGracePeriodSeconds": 0}
    kubectl("apply", "-f", "-", stdin=JOB)
    team.create({"metadata": {"name": "runs"}, "spec": slices})
    team.wait_for("two pods run", lambda pods: [pod.running for pod in pods] == [True, True], WAIT_S)
    (of_job,) = (pod.name for pod in team.all() if pod.name != "runs")
    with frozen(process(cluster, "apportion-webhook").pid):
        began = time.monotonic()
        team.create({"metadata": {"name": "plain"}, "spec": raw_pod("/plain", limits={"cpu": "1"})["spec"]})
        assert time.monotonic() - began < 3.0, "the webhook is waited for 5 s"
        with pytest.raises(ApiError, match="failed calling webhook"):
            team.create({"metadata": {"name": "asks"}, "spec": slices})
        kubectl("label", "pod", "runs", "a=b")
        kubectl("annotate", "pod", "runs", "example.com/a=b")
        kubectl("patch", "pod", "runs", "--type=merge", '--patch={"metadata":{"finalizers":["example.com/kept"]}}')
        kubectl("delete", "pod", "runs", "--wait=false")
        kubectl("patch", "pod", "runs", "--type=merge", '--patch={"metadata":{"finalizers":null}}')
        team.wait("runs", lambda pod: pod is None, WAIT_S)
        kubectl("delete", "pod", of_job)
        team.wait(of_job, lambda pod: pod is None, WAIT_S)
        eventually(
            lambda: json.loads(kubectl("get", "job", "train", "-o", "json"))["status"].get("failed") == 1,
            "the Job has counted its pod",
            WAIT_S,
        )
    eventually(
        lambda: created(team, {"metadata": {"name": "back"}, "spec": slices}), "GPU pods are accepted again", WAIT_S
    )
    team.wait("back", lambda pod: pod is not None and pod.running, WAIT_S)
