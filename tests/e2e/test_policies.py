"""Policies on a real control plane, written with kubectl: who is judged by which, and what their authors are told."""

import itertools
import json
from collections.abc import Iterator

import pytest

from console.sandbox.kubectl import KubectlError, run_kubectl
from policies import names
from tests.builders import raw_pod
from tests.sandbox.waiting import eventually

pytestmark = pytest.mark.sandbox

WAIT_S = 30.0
MIG, MPS = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu-4gb"  # a quarter of the A100 and of the T4
SYSTEM = "apportion-system"


@pytest.fixture
def default(cluster) -> Iterator[str]:
    """The namespace of the default policy, which is gone afterwards."""
    yield SYSTEM
    cluster.kubectl("delete", "gp", "--all", "-n", SYSTEM)


def policy(namespace, rules="[]", *, name="policy", quota="gate"):
    return f"""
apiVersion: nos.nebuly.com/v1alpha1
kind: GpuPolicy
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  rules: {rules}
  quota: {{admission: {quota}}}
"""


def apply(cluster, text):
    """Apply a manifest; return the warnings."""
    return run_kubectl(cluster.directory, "apply", "-f", "-", stdin=text).stderr


def refused(cluster, text):
    with pytest.raises(KubectlError) as refusal:
        apply(cluster, text)
    return str(refusal.value)


def manifest(name, namespace="", **fields):
    pod = raw_pod(f"{namespace}/{name}", **fields)
    metadata = {key: value for key, value in pod["metadata"].items() if key in ("annotations", "labels")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {**pod["spec"], "terminationGracePeriodSeconds": 0},
    }


def quarter(name="quarter"):
    return manifest(name, annotations={names.FRACTION: "0.25"})


def would_get(cluster, namespace, pod=None):
    """Return the slice that a pod with a quarter of a GPU would get now, or why it is denied."""
    pod = json.dumps(pod or quarter())
    try:
        made = cluster.kubectl("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-", stdin=pod)
    except KubectlError as error:
        return str(error)
    (resource,) = json.loads(made)["spec"]["containers"][0]["resources"].get("limits") or [""]
    return resource


def condition(cluster, namespace, name):
    made = json.loads(cluster.kubectl("get", "gp", name, "-n", namespace, "-o", "json"))
    conditions = made.get("status", {}).get("conditions", [])
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in conditions}.get("Ready")


def test_a_team_is_judged_by_its_policy_and_sees_that_it_holds(cluster, team):
    apply(cluster, policy(team.namespace, "[{match: {matchLabels: {tier: batch}}, modes: [mig]}, {modes: [mps]}]"))
    eventually(lambda: would_get(cluster, team.namespace) == MPS, "the policy holds", WAIT_S)
    batch = {**quarter("batch"), "metadata": {**quarter("batch")["metadata"], "labels": {"tier": "batch"}}}
    for pod, resource in ((quarter(), MPS), (batch, MIG)):
        team.create(pod)
        name = pod["metadata"]["name"]
        team.wait(name, lambda seen: seen is not None and seen.running, WAIT_S)
        assert team.get(name).slices == ((resource, 1),)
    assert would_get(cluster, "default") == MIG
    eventually(lambda: condition(cluster, team.namespace, "policy") == ("True", "Ready", ""), "it is ready", WAIT_S)
    head, row = cluster.kubectl("get", "gp", "-n", team.namespace).splitlines()
    assert head.split() == ["NAME", "MODES", "WHOLE", "GPU", "QUOTA", "READY", "REASON", "AGE"]
    assert row.split()[:-1] == ["policy", '["mig"]', "keep", "gate", "True", "Ready"]


def test_a_bad_policy_is_refused_with_all_its_faults(cluster, team):
    """W34: those that the schema sees first, since the webhook is asked only about what the schema lets pass."""
    unseen = "[{wholeGpu: {memory: much}}, {limits: {minFraction: 1/2, maxFraction: 1/7}}]"
    said = refused(cluster, policy(team.namespace, unseen))
    assert "spec.rules[0].wholeGpu.memory: much: " in said
    assert "spec.rules[1].limits.minFraction: 1/2: is more than maxFraction, 1/7" in said
    said = refused(cluster, policy(team.namespace, "[{modes: [mgi]}, {rounding: down}]"))
    assert "spec.rules[0].modes[0]: Unsupported value" in said
    assert "spec.rules[1].rounding: Unsupported value" in said
    assert 'unknown field "spec.rules[0].mode"' in refused(cluster, policy(team.namespace, "[{mode: mps}]"))
    assert would_get(cluster, team.namespace) == MIG


def test_of_two_policies_the_younger_is_told_of_the_conflict_until_the_older_is_gone(cluster, team):
    apply(cluster, policy(team.namespace, "[{modes: [mps]}]", name="older"))
    eventually(lambda: would_get(cluster, team.namespace) == MPS, "the older one holds", WAIT_S)
    # Creation is stamped in whole seconds, and of two in one second the one whose name sorts first is the older.
    why = f"GpuPolicy {team.namespace}/older, which is older, governs the namespace: delete one of them"
    assert f"Warning: has no effect: {why}" in apply(
        cluster, policy(team.namespace, "[{modes: [mig]}]", name="younger")
    )
    told = ("False", "Conflict", why)
    eventually(lambda: condition(cluster, team.namespace, "younger") == told, "it is told so", WAIT_S)
    assert would_get(cluster, team.namespace) == MPS
    cluster.kubectl("delete", "gp", "older", "-n", team.namespace)
    eventually(lambda: would_get(cluster, team.namespace) == MIG, "the younger one holds", WAIT_S)
    eventually(lambda: condition(cluster, team.namespace, "younger") == ("True", "Ready", ""), "it is ready", WAIT_S)


def test_the_default_policy_holds_where_there_is_no_own_one_as_long_as_it_is_there(cluster, team, default):
    apply(cluster, policy(default, "[{modes: [mps]}]", name="default"))
    eventually(lambda: would_get(cluster, team.namespace) == MPS, "the default policy holds", WAIT_S)
    apply(cluster, policy(team.namespace, "[{modes: [mig]}]"))
    eventually(lambda: would_get(cluster, team.namespace) == MIG, "the team's own one holds", WAIT_S)
    cluster.kubectl("delete", "gp", "policy", "-n", team.namespace)
    eventually(lambda: would_get(cluster, team.namespace) == MPS, "the default policy holds again", WAIT_S)
    cluster.kubectl("delete", "gp", "default", "-n", default)
    eventually(lambda: would_get(cluster, team.namespace) == MIG, "the built-in rule holds again", WAIT_S)


def test_while_pods_flow_each_is_judged_by_one_policy_or_the_other(cluster, team):
    """Changed while pods come, a policy leaves none unanswered; what pods have been given they keep."""
    rules = {MPS: "[{modes: [mps]}]", MIG: "[{modes: [mig]}]"}
    for turn, resource in enumerate((MPS, MIG, MPS)):
        apply(cluster, policy(team.namespace, rules[resource]))
        for number in itertools.count():
            name = f"flows-{turn}-{number}"
            team.create(quarter(name))
            team.wait(name, lambda seen: seen is not None and bool(seen.slices), WAIT_S)
            (got,) = (item for item, _ in team.get(name).slices)
            assert got in rules
            if got == resource:
                break
            team.wait(name, lambda seen: seen is not None and seen.running, WAIT_S)
    team.wait_for("all run", lambda pods: all(pod.running for pod in pods), WAIT_S)
    kept = {pod.name: pod.slices for pod in team.all()}
    cluster.kubectl("label", "pods", "--all", "-n", team.namespace, "seen=again")
    assert {pod.name: pod.slices for pod in team.all()} == kept


def test_where_a_team_has_a_policy_no_pod_shows_itself_devices(cluster, team):
    """W06, W15: nor does a debugger in a pod that has none."""
    team.create(manifest("web"))
    greedy = manifest("greedy")
    greedy["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert would_get(cluster, team.namespace, greedy) == ""
    apply(cluster, policy(team.namespace))
    eventually(lambda: "visibleDevices" in would_get(cluster, team.namespace, greedy), "the policy holds", WAIT_S)
    debug = ("debug", "web", "-n", team.namespace, "--image=i", "--env=NVIDIA_VISIBLE_DEVICES=all")
    with pytest.raises(KubectlError, match=r"spec\.ephemeralContainers\[0\]\.env\[0\]"):
        cluster.kubectl(*debug)
    apply(cluster, policy(team.namespace, "[{visibleDevices: allow}]"))
    eventually(lambda: would_get(cluster, team.namespace, greedy) == "", "the policy holds", WAIT_S)
    cluster.kubectl(*debug)


def test_a_policy_that_only_labels_holds_no_pod_for_its_quota(cluster, team):
    """Design 3.2, quota.admission: they are held for their slices, counted and labelled; else they wait for their quota."""
    quota = {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": team.namespace},
        "spec": {"min": {names.GPU_MEMORY_QUOTA: 10}},
    }
    apply(cluster, json.dumps(quota))
    where = (
        "namespace",
        team.namespace,
        "-o",
        f"jsonpath={{.metadata.labels.{names.QUOTA_LABEL.replace('.', chr(92) + '.')}}}",
    )
    eventually(lambda: cluster.kubectl("get", *where) == "quota", "the quota governs", WAIT_S)
    for name in ("first", "second"):
        team.create(quarter(name))
    team.wait("first", lambda seen: seen is not None and seen.running, WAIT_S)
    team.wait("second", lambda seen: seen is not None and seen.waiting[0] == names.QUOTA_USED_UP, WAIT_S)
    apply(cluster, policy(team.namespace, quota="label"))
    team.wait("second", lambda seen: seen is not None and seen.running, WAIT_S)
    team.wait("second", lambda seen: seen is not None and seen.capacity == names.OVER_QUOTA, WAIT_S)
    assert team.get("first").capacity == names.IN_QUOTA
    cluster.kubectl("delete", "eq", "quota", "-n", team.namespace)
