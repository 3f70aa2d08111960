"""From `kubectl create` with a wish to a pod running on its slice, on a real control plane."""

import json
import subprocess

import pytest
import yaml

from console.sandbox.kubectl import KubectlError, kubectl_command
from policies import names
from tests.builders import raw_pod

pytestmark = pytest.mark.sandbox
WAIT_S = 30.0


def runs(pod):
    return pod is not None and pod.running


def manifest(name, **fields):
    pod = raw_pod(f"/{name}", **fields)
    for key in ("namespace", "uid", "resourceVersion"):
        pod["metadata"].pop(key)
    return yaml.safe_dump(pod)


def kubectl(cluster, *arguments, stdin=None):
    """Return (status, standard output, standard error) of kubectl."""
    command = [*kubectl_command(cluster.directory), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def get(cluster, team, name):
    return json.loads(cluster.kubectl("get", "pod", name, "-n", team.namespace, "-o", "json"))


@pytest.mark.parametrize(
    ("wish", "node", "given"),
    [
        pytest.param({"annotations": {names.FRACTION: "0.25"}}, "a100-40-0", {"nvidia.com/mig-1g.10gb": "1"}, id="fraction"),
        pytest.param({"limits": {names.GPU: "0.5"}}, "a100-40-0", {"nvidia.com/mig-3g.20gb": "1"}, id="share-W08"),
        pytest.param({"annotations": {names.MEMORY: "5Gi"}}, "a100-40-0", {"nvidia.com/mig-1g.10gb": "1"}, id="memory"),
        pytest.param({"limits": {"nvidia.com/mig-1g.5gb": 1}}, "a100-40-0", {"nvidia.com/mig-1g.5gb": "1"}, id="mig"),
        pytest.param({"limits": {"nvidia.com/gpu-4gb": 1}}, "t4-0", {"nvidia.com/gpu-4gb": "1"}, id="mps-W32"),
        pytest.param(
            {"annotations": {names.FRACTION: "0.5", names.MODE: "mps"}}, "t4-0", {"nvidia.com/gpu-8gb": "1"}, id="mps-share"
        ),
    ],
)  # fmt: skip
def test_a_wish_becomes_a_running_pod_on_its_slice(cluster, team, wish, node, given):
    status, _, warnings = kubectl(cluster, "create", "-n", team.namespace, "-f", "-", stdin=manifest("wish", **wish))
    assert status == 0, warnings
    team.wait("wish", runs, WAIT_S)
    pod = get(cluster, team, "wish")
    assert pod["spec"]["nodeName"] == node
    assert pod["spec"]["containers"][0]["resources"] == {"limits": given, "requests": given}
    assert "schedulingGates" not in pod["spec"]
    shared = "gpu-" in next(iter(given))
    assert pod["spec"].get("hostIPC", False) is shared
    assert pod["spec"]["containers"][0].get("securityContext") == ({"runAsUser": 1000} if shared else None)
    placed = json.loads(
        json.loads(cluster.kubectl("get", "node", node, "-o", "json"))["metadata"]["annotations"][
            names.STATUS_PLACEMENTS
        ]
    )
    assert [item["pod"] for item in placed["0"] if item["used"]] == [f"{team.namespace}/wish"]


def test_a_share_is_refused_with_its_place_and_the_way_out(cluster, team):
    wrong = manifest("wrong", annotations={names.FRACTION: "1.5", "nos.nebuly.com/gpu-cuont": "1"})
    status, _, message = kubectl(cluster, "create", "-n", team.namespace, "-f", "-", stdin=wrong)
    assert status == 1
    assert "metadata.annotations[nos.nebuly.com/gpu-fraction]: 1.5" in message
    assert "nos.nebuly.com/gpu-count" in message


def test_the_same_manifest_applied_again_changes_nothing(cluster, team):
    """W13, W16: the merge brings nvidia.com/gpu back, which the API server alone would refuse."""
    half = manifest("half", limits={names.GPU: "0.5"})
    where = ("-n", team.namespace, "-f", "-")
    assert kubectl(cluster, "apply", *where, stdin=half)[0] == 0
    team.wait("half", runs, WAIT_S)
    before = get(cluster, team, "half")["spec"]
    for arguments in (("apply",), ("apply", "--dry-run=server"), ("diff",)):
        status, output, message = kubectl(cluster, *arguments, *where, stdin=half)
        assert status == 0, f"{arguments}: {output}{message}"
    assert get(cluster, team, "half")["spec"] == before


def test_a_larger_pod_waits_with_a_reason_and_gets_the_board_when_a_pod_ends(cluster, team):
    """P17, L01: the board is cut again as soon as there is room, and others on it are not disturbed."""
    for name, profile in (("small", "1g.5gb"), ("first", "4g.20gb")):
        team.create(yaml.safe_load(manifest(name, limits={f"nvidia.com/mig-{profile}": "1"})))
        team.wait(name, runs, WAIT_S)
    small = get(cluster, team, "small")
    team.create(yaml.safe_load(manifest("second", limits={"nvidia.com/mig-3g.20gb": "1"})))
    team.wait("second", lambda pod: pod is not None and "3g.20gb" in pod.waiting[1], WAIT_S)
    events = cluster.kubectl("get", "events", "-n", team.namespace, "--field-selector", "involvedObject.name=second")
    assert "3g.20gb" in events
    cluster.kubectl(
        "patch", "pod", "first", "-n", team.namespace, "--subresource=status", "-p", '{"status":{"phase":"Succeeded"}}'
    )
    team.wait("second", runs, WAIT_S)
    assert get(cluster, team, "small")["metadata"]["uid"] == small["metadata"]["uid"]
    assert team.get("small").running


def test_a_pod_that_asks_for_no_gpu_is_not_touched(cluster, team):
    """W20: no gate, no annotation, no call."""
    team.create(yaml.safe_load(manifest("plain")))
    team.wait("plain", runs, WAIT_S)
    pod = get(cluster, team, "plain")
    assert not [key for key in pod["metadata"].get("annotations", {}) if key.startswith(names.PREFIX)]


def test_what_the_engine_writes_no_user_changes(cluster, team):
    """W35: gate and record are ours."""
    team.create(yaml.safe_load(manifest("mine", limits={"nvidia.com/mig-7g.40gb": "1"})))
    team.wait("mine", runs, WAIT_S)
    with pytest.raises(KubectlError, match=names.RECORD):
        cluster.kubectl("annotate", "pod", "mine", "-n", team.namespace, "--overwrite", f"{names.RECORD}=forged")
