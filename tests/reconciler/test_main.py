"""The process `python -m reconciler`: how it starts, and how it goes."""

import json
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from reconciler.__main__ import main
from tests.apiserver.server import PATIENCE_S
from tests.apiserver.steps import events, listing
from tests.builders import raw_node, raw_pod

LEASES = "/apis/coordination.k8s.io/v1/namespaces/apportion-system/leases"
LEASE = f"{LEASES}/apportion-reconciler"
OTHERS = (
    "/apis/nos.nebuly.com/v1alpha1/elasticquotas",
    "/apis/nos.nebuly.com/v1alpha1/compositeelasticquotas",
    "/apis/nos.nebuly.com/v1alpha1/gpupolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/namespaces",
)
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Lease:
    """The one Lease, as an API server keeps it."""

    def __init__(self, server):
        self.spec = None
        for method, path in (("POST", LEASES), ("PATCH", LEASE), ("GET", LEASE)):
            server.route(method, path, self)

    def __call__(self, request, wire):
        if request.method != "GET":
            self.spec = (self.spec or {}) | json.loads(request.body)["spec"]
        if self.spec is None:
            wire.json(404, {"kind": "Status", "code": 404})
        else:
            wire.json(200, {"metadata": {"name": "apportion-reconciler", "resourceVersion": "1"}, "spec": self.spec})


@pytest.fixture
def lease(server):
    for path in ("/api/v1/pods", "/api/v1/nodes"):
        server.route("GET", path, listing([], 5))
        server.route("GET", path, events(), watch=True)
    for path in ("/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets", WEBHOOKS):
        server.route("GET", path, lambda _, wire: wire.json(200, {"items": []}))
    return Lease(server)


def test_it_leads_until_it_is_told_to_end_and_gives_the_lease_up(server, lease, tmp_path):
    """R06: the next leader need not wait for the lease to run out."""
    config = server.kubeconfig(tmp_path)
    command = [sys.executable, "-m", "reconciler", "--kubeconfig", config, "--port", "0", "--identity", "one"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        server.wait_for(1, "GET", "/api/v1/nodes", watch=True)
        assert lease.spec["holderIdentity"] == "one"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert lease.spec["holderIdentity"] is None
    assert [json.loads(line)["event"] for line in log.splitlines()][:2] == ["started", "leader_elected"]


def test_a_dry_run_takes_no_lease_changes_nothing_says_what_it_would_do_and_ends(server, lease, tmp_path):
    """Issue 4: a dry-run apply."""
    gates = ["nos.nebuly.com/admission"]
    train = raw_pod("team-a/train", limits={"nvidia.com/mig-1g.5gb": "1"}, gates=gates)
    later = raw_pod("team-a/later", limits={"nvidia.com/mig-7g.40gb": "1"}, gates=gates)
    busy = raw_pod("team-a/busy", limits={"nvidia.com/mig-3g.20gb": "1"}, node="n1")
    placements = [{"profile": "1g.5gb", "start": 0, "used": False}, {"profile": "3g.20gb", "start": 4, "used": True}]
    node = raw_node(
        "n1", placements={"0": placements}, resources={"nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-3g.20gb": "1"}
    )
    server.route("GET", "/api/v1/pods", listing([train, later, busy], 5))
    server.route("GET", "/api/v1/nodes", listing([node], 5))
    for path in OTHERS:
        server.route("GET", path, listing([], 5))
        server.route("GET", path, events(), watch=True)
    server.otherwise = lambda request, wire: wire.json(200, {**train, "spec": {**train["spec"], "schedulingGates": []}})
    command = [sys.executable, "-m", "reconciler", "--kubeconfig", server.kubeconfig(tmp_path), "--dry-run"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
    assert lease.spec is None
    writes = [request for request in server.requests if request.method != "GET"]
    assert writes
    assert {request.query.get("dryRun") for request in writes} == {"All"}
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(line["dry_run"] for line in told)
    assert [(line["what"], line["object"]) for line in told if line["event"] == "written"] == [
        ("release", "team-a/train")
    ]
    assert [(line["pod"], line["reason"]) for line in told if line["event"] == "waits"] == [
        ("team-a/later", "NoSliceFits")
    ]


def test_without_a_kubeconfig_it_says_where_it_looked(tmp_path):
    result = CliRunner().invoke(main, ["--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert f"no kubeconfig at {tmp_path / 'none'}" in result.output


@pytest.mark.parametrize(
    "option",
    [pytest.param(["--lease-seconds", "1"], id="short lease"), pytest.param(["--port", "99999"], id="no port")],
)
def test_options_that_cannot_be_are_refused(option):
    assert CliRunner().invoke(main, option).exit_code == 2
