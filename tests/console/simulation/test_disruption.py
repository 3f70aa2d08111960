"""PodDisruptionBudgets of files without a status: what they allow is counted as Kubernetes does, at each moment."""

import io

import pytest

from console.manifests import UnreadableManifests, load
from console.simulate import simulated
from console.simulation.disruption import allowed
from console.simulation.report import report
from policies.model import BudgetSpec
from policies.view import PodView


def pods(running, *, pending=0, ending=0, bare=0):
    """Return pods with a controller in so many states, and bare ones that run."""
    states = [{"node": "n1"}] * running + [{}] * pending + [{"node": "n1", "terminating": True}] * ending
    made = [PodView(namespace="a", name=f"p-{index}", controlled=True, **state) for index, state in enumerate(states)]
    return made + [PodView(namespace="a", name=f"bare-{index}", node="n1") for index in range(bare)]


@pytest.mark.parametrize(
    ("rule", "covered", "expected"),
    [
        pytest.param({"min_available": 2}, pods(3), 1, id="at least two of three"),
        pytest.param({"min_available": 2}, pods(2, pending=1), 0, id="who does not run is not there to spare"),
        pytest.param({"min_available": 2}, pods(2, ending=1), 0, id="nor who is being deleted"),
        pytest.param({"min_available": 9}, pods(3), 0, id="never less than none"),
        pytest.param({"min_available": 1}, pods(0, bare=3), 2, id="a number holds without a controller"),
        pytest.param({"min_available": 0}, [], 0, id="nobody there"),
        pytest.param({"min_available": "50%"}, pods(5), 2, id="half of five is three"),
        pytest.param({"min_available": "100%"}, pods(5), 0, id="all"),
        pytest.param({"min_available": "50%"}, pods(0, bare=3), 0, id="percent of what no controller wants"),
        pytest.param({"max_unavailable": 1}, pods(3), 1, id="one may be away"),
        pytest.param({"max_unavailable": 1}, pods(2, pending=1), 0, id="one is away"),
        pytest.param({"max_unavailable": 2}, pods(2, ending=1), 1, id="one goes, one more may"),
        pytest.param({"max_unavailable": "34%"}, pods(5), 2, id="a third of five is two"),
        pytest.param({"max_unavailable": 9}, pods(3), 3, id="all may be away"),
        pytest.param({"max_unavailable": 1}, pods(0, bare=3), 0, id="away from what no controller wants"),
        pytest.param({"max_unavailable": 0, "min_available": 0}, pods(3), 0, id="maxUnavailable comes first"),
        pytest.param({}, pods(3), 0, id="no rule"),
    ],
)
def test_a_budget_allows_what_the_disruption_controller_would(rule, covered, expected):
    assert allowed(BudgetSpec(**rule), covered) == expected


NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  capacity: {cpu: "8", memory: 64Gi, pods: "110", nvidia.com/gpu: "4"}
  allocatable: {cpu: "8", memory: 64Gi, pods: "110", nvidia.com/gpu: "4"}
"""


def quota(space, least):
    return f"""
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota
metadata: {{name: quota, namespace: {space}}}
spec: {{min: {{nvidia.com/gpu: {least}}}}}
"""


def pod(space, name, *, node="", **notes):
    annotations = ", ".join(f"simulate.apportion/{key}: {text}" for key, text in notes.items())
    owner = "ownerReferences: [{kind: ReplicaSet, name: web, uid: web, controller: true}]," if space == "web" else ""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{namespace: {space}, name: {name}, {owner} labels: {{app: {space}}}, annotations: {{{annotations}}}}}
spec:
  {f"nodeName: {node}" if node else ""}
  containers: [{{name: main, image: x, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"""


def budget(rule, status=""):
    return f"""
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: web, namespace: web}}
spec: {{{rule}, selector: {{matchLabels: {{app: web}}}}}}
{status}
"""


TEAMS = [NODE, quota("lender", 2), quota("web", 1), quota("other", 1), pod("other", "batch", node="n1", duration="60s")]
WEB = [pod("web", f"web-{index}", node="n1") for index in range(3)]
CLAIMS = [pod("lender", "one"), pod("lender", "two", at="90s")]


def read(*documents):
    file = io.BytesIO("\n---\n".join(documents).encode())
    file.name = "story.yaml"
    return load([file])


def evictions(*documents):
    return [event.at for event in simulated(read(*documents)).events if event.what == "evicted"]


@pytest.mark.parametrize(
    ("rule", "status", "expected"),
    [
        pytest.param("maxUnavailable: 1", "", [0.0, 90.0], id="one at a time"),
        pytest.param("minAvailable: 67%", "", [], id="percent rounds up"),
        pytest.param("maxUnavailable: 1", "status: {disruptionsAllowed: 0}", [], id="its status says no"),
        pytest.param("maxUnavailable: 0", "status: {disruptionsAllowed: 1}", [0.0], id="its status says one"),
    ],
)
def test_evictions_are_counted_anew_when_who_was_evicted_runs_again(rule, status, expected):
    """Q11. The victim of the first claim is back at 60 s, when other/batch ends, and goes for the second at 90 s."""
    assert evictions(*TEAMS, budget(rule, status), *WEB, *CLAIMS) == expected


def test_as_long_as_a_victim_is_away_nobody_else_goes():
    assert evictions(*TEAMS[:-1], pod("other", "batch", node="n1"), budget("maxUnavailable: 1"), *WEB, *CLAIMS) == [0.0]


@pytest.mark.parametrize(
    ("rule", "status", "problems"),
    [
        pytest.param("minAvailable: 0", "", [], id="a rule"),
        pytest.param("unhealthyPodEvictionPolicy: AlwaysAllow", "status: {disruptionsAllowed: 1}", [], id="a status"),
        pytest.param(
            "unhealthyPodEvictionPolicy: AlwaysAllow",
            "",
            ["has neither minAvailable nor maxUnavailable, so that none of its pods may be evicted"],
            id="neither",
        ),
    ],
)
def test_a_budget_that_says_nothing_is_a_problem(rule, status, problems):
    manifests = read(budget(rule, status))
    assert [item["message"] for item in report(simulated(manifests), manifests)["problems"]] == problems


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        pytest.param("minAvailable: half", "spec.minAvailable: half: write a number of pods", id="words"),
        pytest.param('minAvailable: "2"', "spec.minAvailable: 2: write a number of pods", id="a number in quotes"),
        pytest.param("maxUnavailable: -1", "spec.maxUnavailable: -1: write a number of pods", id="negative"),
    ],
)
def test_a_rule_that_is_no_number_of_pods_is_told_with_its_place(rule, fault):
    with pytest.raises(UnreadableManifests) as refused:
        evictions(budget(rule))
    assert f"story.yaml, document 1: {fault}" in refused.value.message
