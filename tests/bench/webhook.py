"""`webhook`: one worker with 1,000 nodes of 8 boards in memory and changes flowing, and what it adds to the API server.

The webhook runs on the sandbox as in production; load comes from a process of its own over 50 kept-alive TLS
connections, with reviews as the API server sends them. On two cores the load, the API server and the webhook share
the machine, so the rate is that of all of them together.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.sandbox.lifecycle import Sandbox, running
from console.sandbox.services import WEBHOOK
from kube.client import Client
from kube.resource import NODES, PODS
from policies import names
from policies.annotations import PlacedSlice, write_status
from tests.bench.figures import Figure, percentile
from tests.builders import A100, raw_node, raw_pod

NODE_COUNT = 1000
CONNECTIONS = 50
SECONDS = 10.0
OPEN_RATE = 300
CHANGES_PER_S = 20
DRY_RUNS = 300


def run() -> Iterator[Figure]:
    """Measure closed loop, open loop, and dry-run creations with and without the webhook."""
    with Sandbox.start(services=(WEBHOOK,)) as sandbox:
        client = Client.load(str(sandbox.kubeconfig))
        for number in range(NODE_COUNT):
            client.create(NODES.path(), _node(number))
        port = next(process.port for process in running(sandbox.name).processes if process.name == WEBHOOK)
        with tempfile.TemporaryDirectory() as directory, _Changes(client):
            bodies = Path(directory) / "reviews"
            bodies.write_text("\n".join(map(_review, range(64))))
            closed = _load(port, bodies, 0)
            yield Figure("webhook.rate", closed["rate"], "reviews/s", ">=", 1500)
            opened = _load(port, bodies, OPEN_RATE)
            yield Figure("webhook.p99", percentile(opened["latencies"], 0.99) * 1000, "ms", "<=", 8)
            yield Figure("webhook.added", _added_s(client) * 1000, "ms", "<=", 3)
        client.close()


class _Changes:
    """Patches the placements of one node after another, so that the webhook's watch and its indexes are at work."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for turn in itertools.count():
            if self._stop.wait(1 / CHANGES_PER_S):
                return
            annotations = _placements(used=turn // NODE_COUNT % 2 == 0)
            path = NODES.path(name=f"node-{turn % NODE_COUNT}")
            self._client.merge_patch(path, {"metadata": {"annotations": annotations}})


def _placements(*, used: bool) -> dict[str, str]:
    board = (
        PlacedSlice(profile="1g.5gb", start=0, used=used),
        PlacedSlice(profile="2g.10gb", start=2, used=not used),
        PlacedSlice(profile="3g.20gb", start=4, used=True),
    )
    return write_status(dict.fromkeys(range(8), board), "1")


def _node(number: int) -> dict:
    labels = {"pool": f"pool-{number % 10}", "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    node = raw_node(f"node-{number}", A100, count=8, labels=labels, annotations=_placements(used=True))
    del node["metadata"]["resourceVersion"]
    return node


def _pod(number: int) -> dict:
    """Return one of several kinds of pods, as they come: half with a selector, some with an explicit slice."""
    fields = {"nodeSelector": {"pool": f"pool-{number % 10}"}} if number % 2 else {}
    environment = {f"SETTING_{index}": "x" * 40 for index in range(20)}
    kinds = (
        {"annotations": {names.FRACTION: "0.25"}},
        {"limits": {names.GPU: "500m", "cpu": "2", "memory": "4Gi"}},
        {"annotations": {names.MEMORY: "8Gi"}},
        {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
    )
    pod = raw_pod(f"default/bench-{number}", **kinds[number % len(kinds)], **fields)
    del pod["metadata"]["resourceVersion"]
    container = pod["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": value} for name, value in environment.items()]
    if "limits" in container.get("resources", {}):
        container["resources"]["requests"] = container["resources"]["limits"]
    return pod


def _review(number: int) -> str:
    request = {
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": f"bench-{number}",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "object": _pod(number),
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


def _load(port: int, bodies: Path, rate: float) -> dict:
    command = [
        sys.executable,
        "-m",
        "tests.bench.load",
        str(port),
        str(bodies),
        str(CONNECTIONS),
        str(SECONDS),
        str(rate),
    ]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def _added_s(client: Client) -> float:
    """Return by how much the median dry-run creation of a pod is slower when the webhook is asked."""
    asked = _pod(1)
    plain = msgspec.json.decode(msgspec.json.encode(_pod(3)))
    plain["spec"]["containers"][0].pop("resources")
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(DRY_RUNS):
        for ours, pod in ((True, asked), (False, plain)):
            started = time.monotonic()
            client.request("POST", PODS.path("default"), query={"dryRun": "All"}, body=msgspec.json.encode(pod))
            times[ours].append(time.monotonic() - started)
    return percentile(times[True], 0.5) - percentile(times[False], 0.5)
