"""`apportion explain`: what the webhook would do with pods in files."""

import json

import pytest
import yaml
from click.testing import CliRunner

from console.explain import explain
from policies import names
from tests.apiserver.steps import listing
from tests.builders import container, raw_node, raw_pod

NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}


def run(*documents, output="json", code=None):
    result = CliRunner().invoke(
        explain, ["-f", "-", "-o", output], input="---\n".join(yaml.safe_dump(each) for each in documents)
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if code is not None:
        assert result.exit_code == code, result.output
    return json.loads(result.stdout)["pods"] if output == "json" else result.output


def test_the_shape_of_the_output():
    pods = run(raw_node(), raw_pod("team-a/train", annotations={names.FRACTION: "0.25"}), code=0)
    (answer,) = pods.values()
    assert list(pods) == ["team-a/train"]
    assert set(answer) == {"admitted", "patch", "warnings", "reasons", "denied"}
    assert answer["denied"] is None
    assert answer["admitted"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}
    assert answer["warnings"] == [
        "nos.nebuly.com/gpu-fraction 0.25 -> nvidia.com/mig-1g.10gb (1/7 compute, 9.62 GiB of NVIDIA-A100-SXM4-40GB); isolated in hardware"
    ]
    assert {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "nos.nebuly.com/admission"}]} in answer[
        "patch"
    ]


def test_a_denied_pod_is_a_problem_found():
    pods = run(
        raw_node(),
        raw_pod("team-a/a", annotations={names.FRACTION: "2", names.COUNT: "0"}),
        raw_pod("team-a/b"),
        code=1,
    )
    assert pods["team-a/a"]["admitted"] is None
    assert len(pods["team-a/a"]["denied"].splitlines()) == 2
    assert pods["team-a/b"] == {
        "admitted": raw_pod("team-a/b"),
        "patch": [],
        "warnings": [],
        "reasons": [],
        "denied": None,
    }


def test_input_that_cannot_be_read_is_wrong_usage():
    assert "must be text, not a number: quote it" in run(
        raw_pod(annotations={names.FRACTION: 0.5}), output="table", code=2
    )
    result = CliRunner().invoke(explain, ["-f", "/nowhere.yaml"])
    assert result.exit_code == 2
    assert CliRunner().invoke(explain, []).exit_code == 2


def test_pods_are_reviewed_as_newly_created_with_what_the_api_server_fills_in():
    pods = run(
        raw_node(),
        raw_pod("team-a/bound", limits={"nvidia.com/mig-1g.5gb": 1}, node="n1", phase="Running"),
        raw_pod("team-a/two", limits={"nvidia.com/gpu": "2000m", "cpu": 1.5}),
    )
    assert pods["team-a/bound"]["denied"].startswith("spec.nodeName: n1: ")
    resources = pods["team-a/two"]["admitted"]["spec"]["containers"][0]["resources"]
    assert resources == {
        "limits": {"nvidia.com/gpu": "2", "cpu": "1500m"},
        "requests": {"nvidia.com/gpu": "2", "cpu": "1500m"},
    }


def test_unnamed_pods_are_called_by_their_ordinal():
    """W05."""
    pod = raw_pod("team-a/x", annotations={names.FRACTION: "0.25"})
    del pod["metadata"]["name"]
    pod["metadata"]["generateName"] = "infer-"
    pods = run(raw_node(), pod, pod)
    assert list(pods) == ["team-a/infer-0", "team-a/infer-1"]
    assert "name" not in pods["team-a/infer-0"]["admitted"]["metadata"]


def test_the_labels_of_the_namespace_count():
    """W31."""
    pods = run(
        raw_node(mode="mps"),
        NAMESPACE,
        raw_pod("strict/a", limits={"nvidia.com/gpu-10gb": 1}),
        raw_pod("b", limits={"nvidia.com/gpu-10gb": 1}),
    )
    assert "pod-security.kubernetes.io/enforce=restricted of namespace strict" in pods["strict/a"]["denied"]
    assert pods["default/b"]["denied"] is None


def test_without_nodes_it_is_said_what_is_missing():
    assert (
        "no node is labelled nos.nebuly.com/gpu-partitioning: label one"
        in run(raw_pod("a", annotations={names.FRACTION: "0.5"}), code=1)["default/a"]["denied"]
    )


def test_a_yaml_alias_is_not_patched_in_two_places():
    text = f"""
{yaml.safe_dump(raw_node(mode="mps"))}
---
apiVersion: v1
kind: Pod
metadata: {{name: a, annotations: {{nos.nebuly.com/gpu-memory: 10GB}}}}
spec:
  containers:
    - {{name: main, securityContext: &safe {{runAsNonRoot: true}}}}
    - {{name: proxy, securityContext: *safe}}
"""
    result = CliRunner().invoke(explain, ["-f", "-", "-o", "json"], input=text)
    main, proxy = json.loads(result.stdout)["pods"]["default/a"]["admitted"]["spec"]["containers"]
    assert main["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000}
    assert proxy["securityContext"] == {"runAsNonRoot": True}


def test_yaml_says_the_same_as_json():
    documents = raw_node(), raw_pod("team-a/train", containers=[container(limits={"nvidia.com/gpu": "0.5"})])
    assert yaml.safe_load(run(*documents, output="yaml"))["pods"] == run(*documents)


def test_the_table_shows_outcome_faults_reasons_and_changes():
    text = run(raw_node(), raw_pod("team-a/a", annotations={names.FRACTION: "0.4", names.COUNT: "2"}), raw_pod("team-a/b"),
               raw_pod("team-a/c", annotations={names.FRACTION: "2"}), output="table", code=1)  # fmt: skip
    assert text.splitlines()[:5] == [
        "team-a/a: admitted, changed",
        "  reason   main: nos.nebuly.com/gpu-fraction 0.4 -> nvidia.com/mig-3g.20gb (3/7 compute, 19.5 GiB of NVIDIA-A100-SXM4-40GB); isolated in hardware",
        "  reason   waits at the gate nos.nebuly.com/admission until its slices are there",
        "  reason   judged by the built-in rule, for no policy governs the namespace: modes mig, mps",
        "  warning  main gets 2 devices of that size, not one larger: a program must use each of them",
    ]
    assert "team-a/b: admitted as it is" in text
    assert "team-a/c: denied\n  fault    metadata.annotations[nos.nebuly.com/gpu-fraction]: 2: " in text


POLICY = {
    "apiVersion": "nos.nebuly.com/v1alpha1", "kind": "GpuPolicy", "metadata": {"name": "p", "namespace": "team-a"},
    "spec": {"rules": [{"match": {"matchLabels": {"tier": "x"}}}, {"modes": ["mps", "mig"]}]},
}  # fmt: skip


def test_it_is_said_which_rule_of_which_policy_a_pod_is_judged_by():
    pods = run(
        raw_node(), POLICY,
        raw_pod("team-a/a", annotations={names.FRACTION: "0.5"}), raw_pod("team-a/x", labels={"tier": "x"}, limits={"nvidia.com/gpu": "1"}),
        raw_pod("team-a/wrong", annotations={names.FRACTION: "1", names.MODE: "timeslicing"}), raw_pod("team-a/none"), code=1,
    )  # fmt: skip
    assert {key: pod["reasons"][-1:] for key, pod in pods.items()} == {
        "team-a/a": ["judged by GpuPolicy team-a/p, rules[1]: modes mps, mig"],
        "team-a/x": ["judged by GpuPolicy team-a/p, rules[0]: modes mig, mps"],
        "team-a/wrong": ["judged by GpuPolicy team-a/p, rules[1]: modes mps, mig"],
        "team-a/none": [],
    }


def test_where_no_rule_fits_the_built_in_one_holds_and_that_is_said():
    policy = {**POLICY, "spec": {"rules": POLICY["spec"]["rules"][:1]}}
    (reason,) = run(raw_node(), policy, raw_pod("team-a/a", limits={"nvidia.com/gpu": "1"}))["team-a/a"]["reasons"][-1:]
    assert reason == "judged by the built-in rule, for no rule of GpuPolicy team-a/p fits the pod: modes mig, mps"


def test_a_policy_that_cannot_be_followed_denies_and_is_no_unreadable_input():
    """W34: a misspelt bound is not taken for none."""
    policy = {**POLICY, "spec": {"rules": [{"limit": {}}, {"modes": ["mgi"]}]}}
    pods = run(raw_node(), policy, raw_pod("team-a/a", limits={"nvidia.com/gpu": "1"}), raw_pod("team-a/none"), code=1)
    assert pods["team-a/none"]["denied"] is None
    assert pods["team-a/a"]["denied"].splitlines() == [
        "GpuPolicy team-a/p: spec.rules[0].limit: {}: there is no such field: there are match, modes, wholeGpu, gpuModels, "
        "rounding, limits, mps, visibleDevices, privileged",
        "GpuPolicy team-a/p: spec.rules[1].modes[0]: mgi: must be one of mig, mps, timeslicing",
    ]


CLUSTER = {
    "/api/v1/nodes": [raw_node(mode="mps")],
    "/api/v1/namespaces": [{"metadata": {"name": "team-a", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}],
    "/api/v1/pods": [],
    "/apis/policy/v1/poddisruptionbudgets": [],
    "/apis/nos.nebuly.com/v1alpha1/gpupolicies": [
        {"metadata": {"name": "p", "namespace": "team-a"}, "spec": {"rules": [{"modes": ["mps"]}]}},
    ],
    "/apis/nos.nebuly.com/v1alpha1/elasticquotas": [
        {"metadata": {"name": "q", "namespace": "team-a"}, "spec": {"min": {"nvidia.com/gpu": 1}}},
    ],
    "/apis/nos.nebuly.com/v1alpha1/compositeelasticquotas": [],
}  # fmt: skip


def explained(server, tmp_path, *documents):
    for path, objects in CLUSTER.items():
        server.route("GET", path, listing(objects, 5))
    options = ["-f", "-", "-o", "json", "--kubeconfig", server.kubeconfig(tmp_path)]
    result = CliRunner().invoke(explain, options, input=yaml.safe_dump_all(documents))
    return json.loads(result.stdout)["pods"]


def test_a_cluster_is_asked_for_all_that_the_files_leave_out(server, tmp_path):
    """W31: nodes, labels of namespaces, policies and quotas come from it, and change nothing there."""
    pod = raw_pod("team-a/a", annotations={names.FRACTION: "0.5"})
    (denied,) = explained(server, tmp_path, pod)["team-a/a"]["denied"].splitlines()
    assert denied.startswith("spec.hostIPC: true: MPS needs it, and pod-security.kubernetes.io/enforce=baseline of")


def test_what_stands_in_files_takes_the_place_of_its_namesake_in_the_cluster(server, tmp_path):
    """A policy is tried on real nodes before it is applied."""
    tried = {**POLICY, "spec": {"rules": [{"modes": ["mps"], "mps": {"hostIPC": False}}]}}
    pod = explained(server, tmp_path, tried, raw_pod("team-a/a", annotations={names.FRACTION: "0.5"}))["team-a/a"]
    assert pod["admitted"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu-20gb": "1"}
    assert pod["admitted"]["metadata"]["labels"] == {"nos.nebuly.com/capacity": "in-quota"}


@pytest.mark.parametrize("output", ["table", "json"])
def test_no_pods_is_no_problem(output):
    assert run(raw_node(), output=output, code=0) in ({}, "no pods in the input\n")
