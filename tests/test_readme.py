"""What the README shows is what happens."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from console.cli import main
from console.sandbox.kubectl import find_kubectl
from policies.governing import view_quota
from policies.gpupolicy import view_policy
from policies.judgement import Judgement
from policies.model import ElasticQuota, GpuPolicy
from policies.policyrules import judge_policy
from policies.quotarules import judge_quota

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^\$ apportion ((?:explain|simulate|plan) .*)\n((?:(?!\$|```).*\n)*)", README, re.MULTILINE)
ROWS = re.findall(
    r"^\| ((?:annotations?|limits) .*) \| (.*) \|$",
    README.partition("## Request in")[2].partition("\n## ")[0],
    re.MULTILINE,
)


@pytest.mark.parametrize(("arguments", "output"), EXAMPLES, ids=[arguments.split()[-1] for arguments, _ in EXAMPLES])
def test_an_example_prints_what_stands_below_it(arguments, output, monkeypatch):
    monkeypatch.chdir(ROOT)
    printed = CliRunner().invoke(main, shlex.split(arguments)).stdout
    assert [line.rstrip() for line in printed.strip().splitlines()] == [
        line.rstrip() for line in output.strip().splitlines()
    ]


def shown(kind):
    """Return the one object of a kind that stands there in full."""
    manifests = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
    (manifest,) = (one for one in manifests if one["kind"] == kind)
    return manifest


def test_the_quota_that_is_shown_is_one_without_fault_or_oddity():
    quota = view_quota(msgspec.convert(shown("ElasticQuota"), ElasticQuota))
    assert judge_quota(quota, [], exists=lambda _: True) == Judgement()


def test_the_policy_that_is_shown_is_that_of_the_example_without_fault_or_oddity():
    manifest = shown("GpuPolicy")
    assert manifest == next(iter(yaml.safe_load_all((ROOT / "examples/policy.yaml").read_text())))
    assert judge_policy(view_policy(msgspec.convert(manifest, GpuPolicy)), [], ()) == Judgement()


def test_the_overlay_that_is_shown_names_image_and_runtime(tmp_path):
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/kustomization.yaml").write_text(yaml.safe_dump(shown("Kustomization")))
    command = [find_kubectl(), "kustomize", tmp_path / "deploy"]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (agent,) = (one for one in yaml.safe_load_all(rendered) if one["kind"] == "DaemonSet")
    spec = agent["spec"]["template"]["spec"]
    assert (spec["containers"][0]["image"], spec["runtimeClassName"]) == ("registry.example/apportion:0.1.0", "nvidia")


def test_the_fields_of_policies_that_are_told_are_those_of_the_schema():
    told = re.findall(
        r"^\| (`.*`) \|.*\|.*\|$", README.partition("## What a namespace allows")[2].partition("\n## ")[0], re.MULTILINE
    )
    crd = yaml.safe_load((ROOT / "manifests/crds/gpupolicies.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert {name.partition(".")[0] for row in told for name in re.findall(r"`([\w.]+)`", row)} - {
        "maxFraction",
        "maxSlicesPerPod",
    } == set(spec["properties"]["rules"]["items"]["properties"])


def test_there_are_examples_and_rows():
    assert len(EXAMPLES) == 5
    assert len(ROWS) == 9


@pytest.mark.parametrize(("request_in", "pod_out"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_table_is_true(request_in, pod_out, tmp_path):
    keys = dict(re.findall(r'`([\w./-]+): "?([^"`]+)"?`', request_in))
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    metadata = {"name": "row", "namespace": "team-a"}
    if request_in.startswith("limits"):
        container["resources"] = {"limits": keys}
    else:
        metadata["annotations"] = keys
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    files = ["-f", str(ROOT / "examples/cluster.yaml"), "-f", str(tmp_path / "pod.yaml")]
    answer = yaml.safe_load(CliRunner().invoke(main, ["explain", *files, "-o", "yaml"]).stdout)
    admitted = answer["pods"]["team-a/row"]["admitted"]["spec"]
    slices = dict(re.findall(r"`(nvidia\.com/[\w.-]+): (\d+)`", pod_out))
    assert admitted["containers"][0]["resources"]["limits"] == slices
    assert admitted.get("hostIPC", False) is ("`hostIPC: true`" in pod_out)
    user = admitted["containers"][0].get("securityContext", {}).get("runAsUser")
    assert (user == 1000) is ("`runAsUser: 1000`" in pod_out)
