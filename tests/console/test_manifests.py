"""Reading Kubernetes objects from files: everything that is wrong at once, with file, document and path."""

import io

import pytest

from console.manifests import UnreadableManifests, load
from console.submitted import as_submitted
from policies.view import view_node


def read(*texts):
    files = []
    for number, text in enumerate(texts):
        file = io.BytesIO(text if isinstance(text, bytes) else text.encode())
        file.name = f"f{number}.yaml"
        files.append(file)
    return load(files)


def faults(*texts):
    with pytest.raises(UnreadableManifests) as raised:
        read(*texts)
    assert raised.value.exit_code == 2
    return raised.value.message.splitlines()[1:]


POD = """
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: team-a}
spec: {containers: [{name: main}]}
"""


def test_kinds_are_sorted_and_keep_their_order():
    found = read(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n---" + POD,
        "---\n\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\n"
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: b, namespace: team-a}\nspec: {minAvailable: 1}\n---\n"
        "apiVersion: nos.nebuly.com/v1alpha1\nkind: ElasticQuota\nmetadata: {name: q}\nspec: {min: {cpu: 2}}\n---\n"
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\n---\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: team-a}\ndata: {a: b}\n",
    )
    assert [each.key for each in found.namespaces] == ["team-a"]
    assert [each.key for each in found.pods] == ["team-a/a"]
    assert [each.value.metadata.name for each in found.nodes] == ["n1"]
    assert [each.key for each in (*found.budgets, *found.quotas, *found.priorities)] == [
        "team-a/b",
        "default/q",
        "high",
    ]
    (other,) = found.others
    assert (other.kind, other.key, other.raw["data"]) == ("ConfigMap", "team-a/c", {"a": "b"})
    assert found.nodes[0].source == "f1.yaml, document 2"


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        pytest.param("", True, id="no-status"),
        pytest.param("status: {allocatable: {cpu: 4}}", True, id="no-conditions"),
        pytest.param("status: {conditions: []}", True, id="empty-conditions"),
        pytest.param('status: {conditions: [{type: Ready, status: "True"}]}', True, id="Ready"),
        pytest.param('status: {conditions: [{type: Ready, status: "False"}]}', False, id="not-Ready"),
        pytest.param("status: {conditions: [{type: Ready, status: Unknown}]}", False, id="unknown"),
        pytest.param('status: {conditions: [{type: DiskPressure, status: "False"}]}', False, id="others-alone"),
    ],
)
def test_a_node_of_which_no_condition_is_written_is_ready(status, ready):
    (node,) = read(f"apiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\n{status}").nodes
    assert view_node(node.value).ready is ready


def test_a_list_is_its_items():
    found = read(
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n"
        "apiVersion: v1\nkind: NodeList\nitems:\n- {metadata: {name: n2}}\n"
    )
    assert [(each.name, each.source) for each in found.nodes] == [
        ("n1", "f0.yaml, document 1, items[0]"),
        ("n2", "f0.yaml, document 2, items[0]"),
    ]


def test_unnamed_pods_are_counted_by_namespace_and_generate_name():
    """W05: a pod made by a controller has no name yet."""
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {{generateName: {}, namespace: {}}}\nspec: {{containers: []}}\n"
    found = read("---\n".join(pod.format(*each) for each in [("a-", "x"), ("a-", "y"), ("b-", "x"), ("a-", "x")]))
    assert [each.key for each in found.pods] == ["x/a-0", "y/a-0", "x/b-0", "x/a-1"]
    assert "name" not in found.pods[0].raw["metadata"]


def test_a_pod_without_namespace_is_in_the_default_one():
    (pod,) = read("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}").pods
    assert pod.key == "default/a"
    assert "namespace" not in pod.raw["metadata"]


def test_a_timestamp_stays_text():
    (pod,) = read(POD.replace("name: a,", "name: a, creationTimestamp: 2026-01-02T03:04:05Z,")).pods
    assert pod.value.metadata.creation_timestamp == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("a: [", ["f0.yaml, line 2, column 1: did not find expected node content"], id="no YAML"),
        pytest.param("a: b: c", ["f0.yaml, line 1, column 5: mapping values are not allowed in this context"], id="two colons"),
        pytest.param(b"\xff\xfe\xfa", None, id="no text"),
        pytest.param("x: " + "9" * 5000, None, id="a number of 5000 digits"),
        pytest.param("just text", ["f0.yaml, document 1: just text: must be a Kubernetes object"], id="no object"),
        pytest.param("a: 1", ["f0.yaml, document 1: kind: missing: every object names its kind"], id="no kind"),
        pytest.param("kind: Pod", ["f0.yaml, document 1: apiVersion: missing: every object names its version"], id="no version"),
        pytest.param("apiVersion: V1\nkind: Pod", ["f0.yaml, document 1: apiVersion: V1: a Pod is of v1"], id="wrong version"),
        pytest.param(POD.replace("name: main", "name: main, name: other"),
                     ["f0.yaml, line 5, column 34: name: stands twice in one mapping"], id="a key twice"),
        pytest.param(POD.replace("name: a,", "name: a, creationTimestamp: yesterday, deletionTimestamp: 2026-02-30T00:00:00Z,"),
                     ["f0.yaml, document 1: metadata.creationTimestamp: yesterday: write a time such as 2026-01-31T12:00:00Z",
                      "f0.yaml, document 1: metadata.deletionTimestamp: 2026-02-30T00:00:00Z: write a time such as 2026-01-31T12:00:00Z"],
                     id="no times"),
        pytest.param(POD.replace("name: a,", "name: a, creationTimestamp: 2026-01-31T12:00:00,"),
                     ["f0.yaml, document 1: metadata.creationTimestamp: 2026-01-31T12:00:00: write a time such as 2026-01-31T12:00:00Z"],
                     id="a time without offset"),
        pytest.param("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"
                     "status: {conditions: [{type: Ready, status: 'True', lastTransitionTime: now}]}",
                     ["f0.yaml, document 1: status.conditions[0].lastTransitionTime: now: write a time such as 2026-01-31T12:00:00Z"],
                     id="no time in a condition"),
        pytest.param("apiVersion: v1\nkind: Node\nmetadata: {}",
                     ["f0.yaml, document 1: metadata.name: missing: a Node needs a name"], id="no name"),
        pytest.param("apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\nspec: {containers: [{resources: {limits: {cpu: x}}}]}",
                     ["f0.yaml, document 1: spec.containers[0].resources.limits[cpu]: 'x' is not a quantity; write for example 2, 500m or 4Gi",
                      "f0.yaml, document 1: metadata.name: 7: must be text, not a number: quote it",
                      "f0.yaml, document 1: spec.containers[0].name: missing: text is needed"], id="every fault of a pod"),
        pytest.param(POD + "---" + POD, ["f0.yaml, document 2: metadata.name: a: stands already in f0.yaml, document 1"], id="twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_place(text, found):
    told = faults(text)
    assert told == found if found else len(told) == 1


def test_a_merged_key_may_be_written_again():
    (pod,) = read(
        POD.replace("metadata: {", "x: &x {name: z, uid: y}\nw: &w {<<: *x, name: w}\nmetadata: {<<: [*w, *x], ")
    ).pods
    assert (pod.name, pod.value.metadata.uid) == ("a", "y")


def test_another_groups_kind_of_the_same_name_is_none_of_ours():
    (node,) = read("apiVersion: longhorn.io/v1beta2\nkind: Node\nmetadata: {name: n}").others
    assert node.kind == "Node"


def test_faults_of_all_files_are_told_together():
    assert [line.split(":")[0] for line in faults("a: 1\n---\nb: 1\n---\na: [", POD, "c: 1")] == [
        "f0.yaml, document 1", "f0.yaml, document 2", "f0.yaml, line 6, column 1", "f2.yaml, document 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "shown"),
    [
        (
            {"limits": {"nvidia.com/gpu": 0.5}},
            {"limits": {"nvidia.com/gpu": "500m"}, "requests": {"nvidia.com/gpu": "500m"}},
        ),
        (
            {"limits": {"nvidia.com/gpu": "2000m"}},
            {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}},
        ),
        ({"requests": {"cpu": "0.1"}}, {"requests": {"cpu": "100m"}}),
        (
            {"limits": {"cpu": 2, "memory": "1024Mi"}, "requests": {"cpu": "1500m"}},
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1500m", "memory": "1Gi"}},
        ),
        ({"limits": None}, {"limits": None}),
    ],
)
def test_pods_are_shown_as_the_api_server_shows_them_to_a_webhook(resources, shown):
    pod = {
        "spec": {"containers": [{"name": "a", "resources": resources}], "initContainers": [{"resources": resources}]}
    }
    seen = as_submitted(pod, faults := [])
    assert not faults
    assert [seen["spec"][kind][0]["resources"] for kind in ("containers", "initContainers")] == [shown, shown]
    assert pod["spec"]["containers"][0]["resources"] is resources
