"""What is away comes back, and the rest goes on meanwhile."""

import http.client
import json
import os
import signal
import ssl

import pytest

from console.sandbox.lifecycle import running
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
