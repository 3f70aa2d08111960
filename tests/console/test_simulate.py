"""The verb `apportion simulate`: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from console.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
STORY = """\
apiVersion: v1
kind: Node
metadata:
  name: gpu-1
  labels:
    nos.nebuly.com/gpu-partitioning: mig
    nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB
    nvidia.com/gpu.count: "1"
status:
  allocatable: {cpu: "64", memory: 512Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: ml, name: train, annotations: {nos.nebuly.com/gpu-fraction: "0.5"}}
spec: {containers: [{name: main, image: pause}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: ml, name: big, annotations: {simulate.apportion/at: 30s}}
spec: {containers: [{name: main, image: pause, resources: {limits: {nvidia.com/mig-7g.40gb: 1}}}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: ml, name: wrong, annotations: {nos.nebuly.com/gpu-fraction: "1.5"}}
spec: {containers: [{name: main, image: pause}]}
"""

TABLE = """\
POD       OUTCOME  NODE   RESOURCES                 REASON
ml/train  running  gpu-1  1 nvidia.com/mig-3g.20gb
ml/big    waiting  -      1 nvidia.com/mig-7g.40gb  needs 7g.40gb; no board has 40 GB free (the freest of 1 has 20 GB)
ml/wrong  denied   -      -                         metadata.annotations[nos.nebuly.com/gpu-fraction]: 1.5: a share is \
more than 0 and at most 1, of at most 9 decimals: write for example 0.25, 250m or 1/7

gpu-1  0 mig  |. . . . . . . . . . . . . . . .|3g.20gb                        |
              |                               |ml/train                       |
"""


@pytest.fixture
def simulate(tmp_path):
    def run(story, *options):
        file = tmp_path / "story.yaml"
        file.write_text(story)
        return CliRunner().invoke(main, ["simulate", "-f", str(file), *options])

    return run


def test_people_see_pods_boards_and_reasons(simulate):
    result = simulate(STORY)
    assert (result.exit_code, result.stdout) == (0, TABLE)


def test_programs_get_the_same_as_json_and_yaml(simulate):
    shown = json.loads(simulate(STORY, "-o", "json").stdout)
    assert shown == yaml.safe_load(simulate(STORY, "-o", "yaml").stdout)
    assert list(shown) == ["pods", "nodes", "quotas", "events", "problems"]
    assert shown["pods"]["ml/train"] == {
        "outcome": "running",
        "node": "gpu-1",
        "capacity": None,
        "resources": {"main": {"nvidia.com/mig-3g.20gb": "1"}},
        "reason": "",
        "warnings": [
            "nos.nebuly.com/gpu-fraction 0.5 -> nvidia.com/mig-3g.20gb (3/7 compute, 19.5 GiB of NVIDIA-A100-SXM4-40GB); isolated in hardware"
        ],
        "evictedFor": None,
    }
    assert shown["nodes"] == {
        "gpu-1": {
            "gpus": [{"index": 0, "mode": "mig", "slices": [{"profile": "3g.20gb", "start": 4, "pod": "ml/train"}]}]
        }
    }
    assert [(event["at"], event["what"], event["object"]) for event in shown["events"]] == [
        (0.0, "denied", "ml/wrong"),
        (0.0, "cut", "gpu-1"),
        (0.0, "released", "ml/train"),
        (0.0, "started", "ml/train"),
    ]


def test_the_same_story_is_told_the_same_way_every_time(simulate):
    assert simulate(STORY, "-o", "json").stdout == simulate(STORY, "-o", "json").stdout


@pytest.mark.parametrize(
    ("story", "message"),
    [
        pytest.param("kind: Pod\n  name: [", "line 2", id="no YAML"),
        pytest.param(STORY.replace("30s", "soon"), "write a duration such as 30s, 5m or 1m30s", id="no duration"),
        pytest.param(STORY.replace('"0.5"', "0.5"), "quote it", id="an annotation that is no text"),
    ],
)
def test_input_that_cannot_be_read_ends_with_2_and_says_where(simulate, story, message):
    result = simulate(story)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_an_empty_input_is_no_fault(simulate):
    result = simulate("")
    assert (result.exit_code, result.stdout) == (0, "POD  OUTCOME  NODE  RESOURCES  REASON\n")


POLICIES = """\
apiVersion: v1
kind: Node
metadata: {name: gpu-1, labels: {nos.nebuly.com/gpu-partitioning: mps, nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB}}
status: {allocatable: {cpu: "64", memory: 512Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: ml, name: before, annotations: {nos.nebuly.com/gpu-fraction: "0.5"}}
spec: {containers: [{name: main, image: pause}]}
---
apiVersion: nos.nebuly.com/v1alpha1
kind: GpuPolicy
metadata: {namespace: ml, name: z, annotations: {simulate.apportion/at: 30s}}
spec: {rules: [{modes: [mig]}]}
---
apiVersion: nos.nebuly.com/v1alpha1
kind: GpuPolicy
metadata: {namespace: ml, name: a, annotations: {simulate.apportion/at: 40s}}
spec: {rules: [{modes: [mps]}]}
---
apiVersion: nos.nebuly.com/v1alpha1
kind: GpuPolicy
metadata: {namespace: other, name: broken}
spec: {rules: [{rounding: down}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: ml, name: after, annotations: {nos.nebuly.com/gpu-fraction: "0.5", simulate.apportion/at: 50s}}
spec: {containers: [{name: main, image: pause}]}
"""


def test_a_policy_holds_from_when_it_appears_and_those_that_do_not_hold_are_problems(simulate):
    shown = json.loads(simulate(POLICIES, "-o", "json").stdout)
    assert {key: pod["outcome"] for key, pod in shown["pods"].items()} == {"ml/before": "running", "ml/after": "denied"}
    assert "no board serves it by mig" in shown["pods"]["ml/after"]["reason"]
    assert shown["problems"] == [
        {
            "object": "GpuPolicy other/broken",
            "message": "Invalid: spec.rules[0].rounding: down: must be one of exact, up",
        },
        {
            "object": "GpuPolicy ml/a",
            "message": "Conflict: GpuPolicy ml/z, which is older, governs the namespace: delete one of them",
        },
    ]


def test_quotas_and_evictions_are_told_in_the_table():
    """Q28: who borrows from whom, and why somebody had to go."""
    files = [word for name in ("cluster", "quota") for word in ("-f", str(EXAMPLES / f"{name}.yaml"))]
    done = CliRunner().invoke(main, ["simulate", *files])
    _, evictions, quotas, lent, *_ = done.stdout.split("\n\n")
    assert evictions == (
        "at 30 s training/train-2 was evicted: research/quota takes back what training/quota borrows, "
        "for research/experiment: 10 nos.nebuly.com/gpu-memory"
    )
    assert quotas.splitlines()[-1] == "  nos.nebuly.com/gpu-memory    30   20    -        10     -"
    assert lent == "training/quota borrows 10 nos.nebuly.com/gpu-memory from research/quota"
