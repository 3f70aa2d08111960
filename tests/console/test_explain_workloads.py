"""`apportion explain` with workloads: first what becomes of the template, then of the pod that it makes."""

import json

import pytest
import yaml
from click.testing import CliRunner

from console.explain import explain
from policies import names
from policies.templates import KINDS
from tests.builders import container, raw_node

BY_NAME = {kind.name: kind for kind in KINDS}


def workload(kind, *, name="train", annotations=None, containers=None, **fields):
    inner = {"metadata": {"labels": {"app": "x"}, "annotations": annotations}, "spec": {"containers": containers or [container(**fields)]}}  # fmt: skip
    for step in reversed(BY_NAME[kind].template):
        inner = {step: inner}
    group = BY_NAME[kind].group
    metadata = {"name": name, "namespace": "team-a"}
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata, **inner}


def run(*documents, output="json", code=0):
    text = "---\n".join(yaml.safe_dump(each) for each in (raw_node(), *documents))
    result = CliRunner().invoke(explain, ["-f", "-", "-o", output], input=text)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if output == "json" else result.output


@pytest.mark.parametrize("kind", BY_NAME)
def test_the_template_is_rewritten_and_its_pod_gets_the_slice(kind):
    shown = run(workload(kind, limits={names.GPU: 0.5}))
    answer, pod = shown["workloads"][f"{kind} team-a/train"], shown["pods"]["team-a/train-0"]
    template = answer["admitted"]
    for step in BY_NAME[kind].template:
        template = template[step]
    assert template["metadata"]["annotations"] == {names.FRACTION: "0.5", names.CONTAINER: "main"}
    assert template["spec"]["containers"][0]["resources"] == {"limits": {}}
    assert pod["admitted"]["metadata"]["generateName"] == "train-"
    assert pod["admitted"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-3g.20gb": "1"}


def test_the_table_shows_the_template_before_the_pod():
    text = run(workload("Deployment", limits={names.GPU: "0.5"}), output="table")
    assert text.splitlines()[:5] == [
        "Deployment team-a/train: admitted, changed",
        "  reason   nvidia.com/gpu 0.5 of main -> nos.nebuly.com/gpu-fraction 0.5 in the template: each pod gets its slice when it is created",
        "  patch    remove /spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu",
        '  patch    add /spec/template/metadata/annotations {"nos.nebuly.com/gpu-fraction": "0.5", "nos.nebuly.com/gpu-container": "main"}',
        "team-a/train-0: admitted, changed",
    ]


def test_a_template_without_a_share_stays_and_its_pod_is_judged():
    shown = run(workload("Job", annotations={names.FRACTION: "2"}), workload("CronJob", name="plain"), code=1)
    assert [answer["patch"] for answer in shown["workloads"].values()] == [[], []]
    assert shown["pods"]["team-a/train-0"]["denied"].startswith(
        "metadata.annotations[nos.nebuly.com/gpu-fraction]: 2: "
    )
    assert shown["pods"]["team-a/plain-0"]["patch"] == []


def test_a_denied_template_makes_no_pod():
    shown = run(workload("StatefulSet", limits={names.GPU: "1.5"}), code=1)
    assert shown["workloads"]["StatefulSet team-a/train"]["denied"].startswith(
        "spec.template.spec.containers[0].resources"
    )
    assert shown["pods"] == {}


def test_every_fault_of_every_workload_is_told_with_its_file_and_path():
    broken = workload(
        "CronJob", limits={names.GPU: "half"}, containers=[container(limits={names.GPU: "half"}), {"name": 1}]
    )
    said = run(broken, workload("Deployment", name=""), workload("Job"), workload("Job"), output="table", code=2)
    assert (
        "document 2: spec.jobTemplate.spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: 'half' is not"
        in said
    )
    assert "document 2: spec.jobTemplate.spec.template.spec.containers[1].name: 1: must be text" in said
    assert "document 3: metadata.name: missing: a Deployment needs a name" in said
    assert "document 5: metadata.name: train: stands already in the input" in said


def test_a_workload_without_a_template_makes_no_pod():
    bare = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "bare"}}
    shown = run(bare)
    assert (list(shown["workloads"]), shown["pods"]) == (["ReplicationController default/bare"], {})


def test_pods_of_workloads_with_one_name_are_told_apart():
    shown = run(workload("Deployment"), workload("Job"))
    assert list(shown["pods"]) == ["team-a/train-0", "team-a/train-1"]
