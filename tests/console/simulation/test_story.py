"""Stories with a clock: what appears when, runs how long, and what it is called at the end."""

import io

import pytest

from console.manifests import UnreadableManifests, load
from console.simulate import simulated
from console.simulation.report import report

NODE = """
apiVersion: v1
kind: Node
metadata:
  name: n1
  labels:
    nos.nebuly.com/gpu-partitioning: mig
    nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB
    nvidia.com/gpu.count: "1"
status:
  capacity: {cpu: "8", memory: 64Gi, pods: "110"}
  allocatable: {cpu: "8", memory: 64Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
"""


def pod(name, *, slices="mig-7g.40gb", at=None, duration=None, spec="", meta="", status=""):
    notes = {"at": at, "duration": duration}
    annotations = ", ".join(f"simulate.apportion/{key}: {text}" for key, text in notes.items() if text)
    limits = f"resources: {{limits: {{nvidia.com/{slices}: 1}}}}" if slices else ""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{namespace: a, name: {name}, annotations: {{{annotations}}} {meta}}}
spec: {{containers: [{{name: main, image: x, {limits}}}] {spec}}}
{status}
"""


def play(*documents):
    file = io.BytesIO("\n---\n".join(documents).encode())
    file.name = "story.yaml"
    manifests = load([file])
    return report(simulated(manifests), manifests)


def outcomes(result):
    return {key.removeprefix("a/"): pod["outcome"] for key, pod in result["pods"].items()}


def happened(result, what):
    return [(event["at"], event["object"]) for event in result["events"] if event["what"] == what]


def test_a_pod_that_ends_gives_its_board_to_the_next():
    """P17."""
    result = play(NODE, pod("first", duration="90s"), pod("second", at="30s", duration="1m30s"), pod("third", at="31s"))
    assert outcomes(result) == {"first": "finished", "second": "finished", "third": "running"}
    assert happened(result, "started") == [(0.0, "a/first"), (90.0, "a/second"), (180.0, "a/third")]
    assert happened(result, "finished") == [(90.0, "a/first"), (180.0, "a/second")]


def test_the_clock_starts_at_the_latest_creation_and_ages_count_from_what_is_written():
    old = pod("old", meta=', creationTimestamp: "2026-03-02T08:00:00Z"')
    new = pod("new", meta=', creationTimestamp: "2026-03-02T09:00:00Z"', duration="60s")
    unwritten = pod("unwritten")  # created at the start, so as old as `new`; the name decides
    result = play(NODE, unwritten, new, old)
    assert outcomes(result) == {"unwritten": "waiting", "new": "waiting", "old": "running"}
    assert happened(play(NODE, pod("unwritten"), new), "started") == [(0.0, "a/new"), (60.0, "a/unwritten")]


def test_a_node_that_comes_later_serves_those_that_waited():
    late = NODE.replace("name: n1", "name: n1\n  annotations: {simulate.apportion/at: 5m}")
    result = play(NODE.replace("n1", "n0"), late, pod("p"), pod("q"))
    assert outcomes(result) == {"p": "running", "q": "running"}
    assert happened(result, "started") == [(0.0, "a/p"), (300.0, "a/q")]


def test_bound_pods_hold_their_slices_and_finished_ones_nothing():
    bound = pod("bound", slices="mig-4g.20gb", spec=", nodeName: n1", status="status: {phase: Running}")
    ended = pod("ended", slices="mig-3g.20gb", spec=", nodeName: n1", status="status: {phase: Succeeded}")
    result = play(NODE, bound, ended, pod("three", slices="mig-3g.20gb"), pod("four", slices="mig-4g.20gb"))
    assert outcomes(result) == {"bound": "running", "ended": "finished", "three": "running", "four": "waiting"}
    assert result["nodes"]["n1"]["gpus"] == [
        {
            "index": 0,
            "mode": "mig",
            "slices": [
                {"profile": "4g.20gb", "start": 0, "pod": "a/bound"},
                {"profile": "3g.20gb", "start": 4, "pod": "a/three"},
            ],
        }
    ]


def test_a_pod_on_its_way_out_ends_at_its_deletion_time():
    leaving = pod(
        "leaving",
        meta=', creationTimestamp: "2026-03-02T09:00:00Z", deletionTimestamp: "2026-03-02T09:00:20Z"',
        spec=", nodeName: n1",
        status="status: {phase: Running}",
    )
    result = play(NODE, leaving, pod("next"))
    assert outcomes(result) == {"leaving": "finished", "next": "running"}
    assert happened(result, "started") == [(20.0, "a/next")]


def test_priorities_come_from_their_classes():
    classes = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
"""
    usual = classes.replace("urgent", "usual").replace("1000", "5\nglobalDefault: true")
    result = play(
        NODE,
        classes,
        usual,
        pod("a-low", spec=", priority: 4"),
        pod("b-usual"),
        pod("c-urgent", spec=", priorityClassName: urgent", duration="10s"),
    )
    assert [name for _, name in happened(result, "started")] == ["a/c-urgent", "a/b-usual"]


def test_a_pod_without_a_gpu_waits_for_room_like_any_other():
    large = pod("large", slices="").replace("image: x,", "image: x, resources: {limits: {cpu: 9}}")
    result = play(
        NODE, large, pod("small", slices="").replace("image: x,", 'image: x, resources: {limits: {cpu: "0.3"}}')
    )
    assert outcomes(result) == {"large": "waiting", "small": "running"}
    assert result["pods"]["a/large"]["reason"] == "1 of 1 nodes: not enough cpu"
    assert result["pods"]["a/small"]["resources"] == {"main": {"cpu": "300m"}}


def test_what_is_not_understood_or_not_simulated_is_a_problem():
    odd = NODE.replace("n1", "odd").replace("NVIDIA-A100-SXM4-40GB", "NVIDIA-Z900-96GB")
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {namespace: a, name: data}\nspec: {}"
    lost = pod("lost", spec=", nodeName: n9")
    problems = {item["object"]: item["message"] for item in play(NODE, odd, claim, lost)["problems"]}
    assert problems == {
        "Node odd": "label nvidia.com/gpu.product: 'NVIDIA-Z900-96GB' is in no table and no agent has reported "
        "nos.nebuly.com/gpu-inventory; its boards are left alone",
        "Pod a/lost": "is bound to n9, which is not in the input",
        "PersistentVolumeClaim a/data": "is not taken into account: this version does not simulate it",
    }


@pytest.mark.parametrize(
    ("annotation", "fault"),
    [
        pytest.param(
            "at: soon", "[simulate.apportion/at]: soon: write a duration such as 30s, 5m or 1m30s", id="words"
        ),
        pytest.param("at: 30", "[simulate.apportion/at]: 30: write a duration such as 30s, 5m or 1m30s", id="no unit"),
        pytest.param("at: 99999999999h", "[simulate.apportion/at]: 99999999999h: write a duration", id="ages"),
        pytest.param("duration: -5s", "[simulate.apportion/duration]: -5s: write a duration", id="negative"),
        pytest.param(
            "durtion: 5s",
            "[simulate.apportion/durtion]: 5s: no such annotation; there are simulate.apportion/at and",
            id="near miss",
        ),
    ],
)
def test_a_timing_that_cannot_be_read_is_told_with_its_place(annotation, fault):
    document = pod("p").replace(
        "annotations: {}", f"annotations: {{simulate.apportion/{annotation.replace(': ', ': !!str ')}}}"
    )
    with pytest.raises(UnreadableManifests) as refused:
        play(NODE, document)
    assert f"story.yaml, document 2: metadata.annotations{fault}" in refused.value.message
