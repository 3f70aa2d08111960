"""Which of many nodes pods may run on is what their constraints say of each node."""

from hypothesis import given
from hypothesis import strategies as st

from policies.constraints import Constraints
from policies.hosts import Hosts
from policies.model import NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration
from policies.nodesets import nodes_in
from policies.view import NodeView

KEYS = st.sampled_from(["zone", "pool", "metadata.name"])
VALUES = st.sampled_from(["a", "b", "1", "2"])
TAINTS = st.builds(
    Taint,
    key=st.sampled_from(["team", "node.kubernetes.io/unreachable"]),
    effect=st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    value=st.none() | VALUES,
)
TOLERATIONS = st.builds(
    Toleration,
    key=st.none() | st.sampled_from(["team", "node.kubernetes.io/unreachable"]),
    operator=st.sampled_from([None, "Equal", "Exists"]),
    value=st.none() | VALUES,
    effect=st.none() | st.sampled_from(["NoSchedule", "NoExecute"]),
)
REQUIREMENTS = st.builds(
    NodeSelectorRequirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]),
    values=st.none() | st.lists(VALUES, max_size=2).map(tuple),
)
TERMS = st.builds(
    NodeSelectorTerm,
    match_expressions=st.none() | st.lists(REQUIREMENTS, max_size=2).map(tuple),
    match_fields=st.none() | st.lists(REQUIREMENTS, max_size=1).map(tuple),
)
CONSTRAINTS = st.builds(
    Constraints,
    selector=st.dictionaries(KEYS, VALUES, max_size=2).map(lambda pairs: tuple(sorted(pairs.items()))),
    terms=st.none() | st.lists(TERMS, max_size=2).map(tuple),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
)
NODES = st.lists(
    st.builds(
        NodeView,
        name=VALUES,
        labels=st.dictionaries(KEYS, VALUES),
        taints=st.lists(TAINTS, max_size=2).map(tuple),
        ready=st.booleans(),
        managed=st.booleans(),
        allocatable=st.just({}),
        capacity=st.just({}),
    ),
    max_size=20,
)


@given(nodes=NODES, asked=st.lists(CONSTRAINTS, min_size=1, max_size=5), although_away=st.booleans())
def test_nodes_are_open_to_a_pod_where_its_constraints_say_so_of_each(nodes, asked, although_away):
    hosts = Hosts(nodes)
    for constraints in asked:
        assert list(nodes_in(hosts.open_to(constraints, although_away=although_away))) == [
            place
            for place, node in enumerate(nodes)
            if constraints.selects(node.name, node.labels)
            and constraints.tolerates(node.taints, although_away=although_away)
        ]


def test_what_is_asked_for_ever_anew_is_forgotten_and_found_again(monkeypatch):
    monkeypatch.setattr("policies.hosts._REMEMBERED", 2)
    node = NodeView(name="n1", labels={"zone": "a"}, ready=True, managed=True, allocatable={}, capacity={})
    hosts = Hosts([node])
    asked = [Constraints(selector=(("zone", value),)) for value in "abcab"]
    assert [hosts.open_to(constraints) for constraints in asked] == [1, 0, 0, 1, 0]
