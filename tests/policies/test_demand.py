"""What a pod needs besides its slices decides where boards are cut for it: the scheduler's own rules, before it is asked.

Of two equal nodes the first is taken, so a board is cut on the second only because the pod cannot run on the first.
"""

import random

import pytest

from policies import names, packing
from policies.settle import settle
from tests.builders import A30, make_node
from tests.policies.cluster import begin, bound, cluster, free, gated, node, play, used

ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


def need(key, operator, *values):
    """Return required node affinity of one expression."""
    expression = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    return terms({"matchExpressions": [expression]})


def terms(*found):
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}}
    }


def ordered(nodes, *pods):
    """Return the nodes on which boards are cut."""
    return [layout.node for layout in settle(cluster(nodes, pods)).layouts]


@pytest.mark.parametrize(
    ("first", "second", "pod"),
    [
        pytest.param({}, {"labels": {ZONE: "b"}}, {"nodeSelector": {ZONE: "b"}}, id="selector"),
        pytest.param({}, {"labels": {ZONE: "b"}}, need(ZONE, "In", "a", "b"), id="In"),
        pytest.param({"labels": {ZONE: "a"}}, {}, need(ZONE, "NotIn", "a"), id="NotIn"),
        pytest.param({}, {"labels": {ZONE: ""}}, need(ZONE, "Exists"), id="Exists"),
        pytest.param({"labels": {ZONE: "a"}}, {}, need(ZONE, "DoesNotExist"), id="DoesNotExist"),
        pytest.param({"labels": {"gen": "7"}}, {"labels": {"gen": "8"}}, need("gen", "Gt", "7"), id="Gt"),
        pytest.param({"labels": {"gen": "8"}}, {"labels": {"gen": "7"}}, need("gen", "Lt", "8"), id="Lt"),
        pytest.param(
            {}, {}, terms({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), id="field"
        ),
        pytest.param(
            {}, {"labels": {"gen": "8"}},
            terms({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]},
                  {"matchExpressions": [{"key": "gen", "operator": "Exists"}]}),
            id="one-of-several-terms",
        ),
        pytest.param(
            {"labels": {ZONE: "b"}}, {"labels": {ZONE: "b", "gen": "8"}},
            terms({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]},
                                        {"key": "gen", "operator": "Exists"}]}),
            id="all-expressions-of-a-term",
        ),
        pytest.param({"taints": [TAINT]}, {}, {}, id="taint"),
        pytest.param({"taints": [TAINT | {"effect": "NoExecute"}]}, {}, {}, id="taint-that-evicts"),
        pytest.param(
            {"taints": [{**TAINT, "value": "web"}]}, {"taints": [TAINT]},
            {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}]},
            id="taint-of-another-value",
        ),
        pytest.param({"cordoned": True}, {}, {}, id="cordoned"),
        pytest.param({"ready": False}, {}, {}, id="not-ready"),
        pytest.param({"resources": {"cpu": "1"}}, {}, {"requests": {"cpu": "2"}}, id="cpu"),
        pytest.param({"resources": {"memory": "1Gi"}}, {}, {"requests": {"memory": "2Gi"}}, id="memory"),
        pytest.param({"resources": {"pods": "0"}}, {}, {}, id="number-of-pods"),
        pytest.param({}, {"resources": {"example.com/nic": "1"}}, {"requests": {"example.com/nic": "1"}}, id="other-devices"),
        pytest.param({"product": A30}, {}, {}, id="a-board-that-makes-it"),
    ],
)  # fmt: skip
def test_a_board_is_cut_only_where_the_pod_can_run(first, second, pod):
    nodes = [make_node("n1", **first), make_node("n2", **second)]
    extra = pod.get("requests", {})
    rest = {key: value for key, value in pod.items() if key != "requests"}
    limits = {"nvidia.com/mig-3g.20gb": "1", **extra}
    asks = gated("ml/a", containers=[{"name": "main", "image": "i", "resources": {"limits": limits}}], **rest)
    assert ordered(nodes, asks) == ["n2"]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param({}, id="equal"),
        pytest.param({"taints": [TAINT | {"effect": "PreferNoSchedule"}]}, id="a-taint-that-only-prefers"),
    ],
)
def test_where_nothing_keeps_the_pod_off_the_first_of_equal_nodes_is_taken(first):
    """The twin of the table above: there something did."""
    assert ordered([make_node("n1", **first), make_node("n2")], gated("ml/a", "3g.20gb")) == ["n1"]


def test_pods_share_what_a_node_has_besides_slices():
    """Three pods of 24 of 64 cores: the board would hold them, the node holds two."""
    pods = [gated(f"ml/p{number}", "1g.5gb", cpu="24") for number in range(3)]
    decision = settle(cluster([make_node("n1"), make_node("n2")], pods))
    assert {layout.node: len(layout.target[0]) for layout in decision.layouts} == {"n1": 2, "n2": 1}


def test_slices_of_one_pod_come_from_several_boards_of_one_node_and_never_of_two():
    nodes = [make_node("n1"), make_node("n2", count=2)]
    decision = settle(cluster(nodes, [gated("ml/a", "4g.20gb", count=2), gated("ml/b", "4g.20gb")]))
    assert {layout.node: sorted(layout.target) for layout in decision.layouts} == {"n1": [0], "n2": [0, 1]}


@pytest.mark.parametrize(
    ("age_s", "there"),
    [
        pytest.param(299, 2, id="young"),
        pytest.param(300, 1, id="old"),
    ],
)
def test_a_board_is_kept_for_an_old_pod_that_others_would_starve(age_s, there):
    """Design 4, waiting: on the board that can serve it soonest, where one slice has to end and not three."""
    nodes = [
        node("n1", A30, placements={"0": [used("1g.6gb", start) for start in (0, 1, 2)]}),
        node("n2", A30, placements={"0": [used("1g.6gb", 0)]}),
    ]
    runs = [bound(f"web/runs-{number}", "n1", "1g.6gb") for number in range(3)] + [bound("web/runs-3", "n2", "1g.6gb")]
    old = gated("ml/old", "4g.24gb", created="1970-01-01T00:00:00Z")
    young = [gated(f"web/{name}", "1g.6gb", created="1970-01-01T00:00:01Z") for name in ("early", "young")]
    view, decision = play(cluster(nodes, [*runs, old, *young], now=age_s), random.Random(1))
    assert sum(pod.node == "n2" for pod in view.pods) == there
    held = [one.reason for one in decision.waiting if one.pod.startswith("web/")]
    assert held == [names.PLACE_HELD] * (2 - there)


def test_of_nodes_where_as_much_is_missing_the_first_is_kept_whatever_is_on_their_boards():
    """n1 and n3 are alike, n2 has 10 GB left too: two old pods have the first two nodes, and n3 is left to others."""
    boards = {"n1": [used("30gb")], "n2": [used("10gb"), used("20gb")], "n3": [used("30gb")]}
    nodes = [node(name, mode="mps", placements={"0": slices}) for name, slices in boards.items()]
    runs = [
        bound(f"web/{name}-{number}", name, item["profile"])
        for name, slices in boards.items()
        for number, item in enumerate(slices)
    ]
    old = [gated(f"ml/{number}", "20gb", created="1970-01-01T00:00:00Z") for number in range(2)]
    young = [
        gated(f"web/{name}", "10gb", created="1970-01-01T00:00:01Z", nodeSelector={"kubernetes.io/hostname": name})
        for name in boards
    ]
    decision = settle(begin(cluster(nodes, [*runs, *old, *young], now=300)))
    assert decision.planned.keys() == {"web/n3"}


@pytest.mark.parametrize("size", [5, 50])
def test_equal_boards_are_thought_about_once(monkeypatch, size):
    """Of ten times as many boards and pods of the same kinds no layout is worked out that was not before."""
    asked = []
    arrange = packing.arrange

    def counted(*arguments):
        asked.append(arguments)
        return arrange(*arguments)

    monkeypatch.setattr(packing, "arrange", counted)
    nodes = [node(f"n{number:02}", placements={"0": [free("1g.5gb", 0)]}) for number in range(size)]
    pods = [
        gated(f"ml/{profile}-{number}", profile)
        for profile in ("3g.20gb", "2g.10gb", "1g.5gb")
        for number in range(size)
    ]
    assert len(settle(cluster(nodes, pods)).layouts) == size
    assert len(asked) < 50
