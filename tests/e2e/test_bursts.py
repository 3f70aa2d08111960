"""Replicas that come all at once, on a cluster whose models could each serve them."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest
import yaml

from console.sandbox.kubectl import run_kubectl
from console.sandbox.lifecycle import Sandbox
from policies import names
from tests.sandbox.waiting import eventually

pytestmark = pytest.mark.sandbox

WAIT_S = 60.0
QUARTERS = {"nvidia.com/mig-1g.6gb": 4, "nvidia.com/mig-1g.10gb": 8, "nvidia.com/mig-1g.20gb": 2}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "burst"},
    "spec": {
        "replicas": 14,
        "selector": {"matchLabels": {"app": "burst"}},
        "template": {
            "metadata": {"labels": {"app": "burst"}, "annotations": {names.FRACTION: "0.25"}},
            "spec": {"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]},
        },
    },
}


@pytest.fixture(scope="module")
def mixed() -> Iterator[Sandbox]:
    """Room for 16 quarters by MIG: 4 on the A30, 8 on two A100 of 40 GB, 4 on the one of 80 GB."""
    with Sandbox.start({"a100-40x2": 1, "a100-80": 1, "t4": 1, "a30": 1}) as sandbox:
        yield sandbox


def test_all_replicas_of_a_burst_run_while_boards_have_room(mixed):
    """They are created within a tenth of a second, before any node shows what the others were given."""
    mixed.kubectl("create", "namespace", "team-a")
    run_kubectl(mixed.directory, "create", "-n", "team-a", "-f", "-", stdin=yaml.safe_dump(DEPLOYMENT))

    def running():
        pods = json.loads(mixed.kubectl("get", "pods", "-n", "team-a", "-o", "json"))["items"]
        limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods if pod["status"]["phase"] == "Running"]  # fmt: skip
        return Counter(next(iter(each)) for each in limits)

    eventually(lambda: running().total() == 14, "all replicas run", WAIT_S)
    assert running() == QUARTERS
