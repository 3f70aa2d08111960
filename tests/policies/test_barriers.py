"""A pod that may use no board of ours is told what keeps it off, and the ways out."""

import pytest

from policies import names
from policies.constraints import constraints_of
from policies.inventory import Inventory
from policies.policy import Terms
from policies.requests import read_requests
from policies.slicing import Wanted, choose
from policies.view import view_node
from tests.builders import A30, make_node, make_pod

LABELLED = "no node that is labelled nos.nebuly.com/gpu-partitioning and whose boards are known"
TO_COME = ", or have the policy name boards that are to come (gpuModels)"
TAINTS = [{"key": "team", "value": "ml", "effect": "NoSchedule"}, {"key": "old", "effect": "NoExecute"}]


def told(*nodes, models=(), **fields):
    """Return why a pod cannot be served."""
    pod = make_pod(annotations={names.FRACTION: "0.5"}, **fields)
    inventory = Inventory.of(view_node(node) for node in nodes)
    wanted = [Wanted(wish=wish, modes=("mig", "mps")) for wish in read_requests(pod).wishes]
    (fault,) = choose(wanted, inventory.offer(constraints_of(pod.spec), models), inventory, Terms(models=models)).faults
    start = "metadata.annotations[nos.nebuly.com/gpu-fraction]: 0.5: no board serves it by mig or mps; "
    assert fault.startswith(start)
    return fault.removeprefix(start)


def affinity(*terms):
    made = [
        {"matchExpressions": [{"key": key, "operator": operator, **({"values": values} if values else {})} for key, operator, values in term]}
        for term in terms
    ]  # fmt: skip
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": made}}}


WEST = affinity([("zone", "In", ["west", "north"]), ("ssd", "Exists", [])])


@pytest.mark.parametrize(
    ("nodes", "fields", "expected"),
    [
        pytest.param([], {}, "no node is labelled nos.nebuly.com/gpu-partitioning: label one (kubectl label node NODE nos.nebuly.com/gpu-partitioning=mig)", id="no nodes"),
        pytest.param([make_node(mode=None)], {"nodeSelector": {"a": "b"}}, "no node is labelled nos.nebuly.com/gpu-partitioning: label one (kubectl label node NODE nos.nebuly.com/gpu-partitioning=mig)", id="none with the label"),
        pytest.param([make_node(product="NVIDIA-Unheard-Of")], {}, "the boards of no node that is labelled nos.nebuly.com/gpu-partitioning are known: its agent, or its label nvidia.com/gpu.product, has to say what they are", id="boards that nobody knows"),
        pytest.param([make_node(product=None, agent=("NoBoards", "open NVML: Library Not Found"))], {}, "the boards of no node that is labelled nos.nebuly.com/gpu-partitioning are known: its agent, or its label nvidia.com/gpu.product, has to say what they are (node n1: open NVML: Library Not Found)", id="a node whose driver is not there (A14)"),
        pytest.param([make_node(labels={"zone": "east"})], {"nodeSelector": {"zone": "east", "pool": "a"}}, f"{LABELLED} has what the pod's nodeSelector wants (pool=a): change that", id="one pair of a selector"),
        pytest.param([make_node(labels={"zone": "east"}), make_node("b", labels={"pool": "a"})], {"nodeSelector": {"zone": "east", "pool": "a"}}, f"{LABELLED} has what the pod's nodeSelector wants (pool=a, zone=east): change that", id="pairs that no node has together"),
        pytest.param([make_node(labels={"zone": "east"})], {"affinity": WEST}, f"{LABELLED} has what the pod's required node affinity wants (zone In [west, north] and ssd Exists): change that", id="affinity"),
        pytest.param([make_node(labels={"zone": "east"})], {"affinity": affinity([("zone", "In", ["west"])], [])}, f"{LABELLED} has what the pod's required node affinity wants (zone In [west] or nothing): change that", id="terms, of which an empty one fits no node"),
        pytest.param([make_node(labels={"zone": "east"})], {"affinity": affinity()}, f"{LABELLED} has what the pod's required node affinity wants (nothing): change that", id="no terms"),
        pytest.param([make_node(labels={"zone": "east"}), make_node("b", labels={"pool": "a"})], {"nodeSelector": {"zone": "east"}, "affinity": affinity([("pool", "Exists", [])])}, f"{LABELLED} has what the pod's nodeSelector (zone=east) and its required node affinity (pool Exists) want together: change that", id="selector and affinity"),
        pytest.param([make_node(taints=TAINTS), make_node("b", taints=TAINTS[:1])], {"tolerations": [{"key": "old", "operator": "Exists"}]}, f"{LABELLED} is free of taints that the pod does not tolerate (team=ml:NoSchedule): tolerate them", id="a taint"),
        pytest.param([make_node(taints=[*TAINTS, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}])], {}, f"{LABELLED} is free of taints that the pod does not tolerate (team=ml:NoSchedule, old:NoExecute): tolerate them", id="taints, but for Kubernetes' own"),
    ],
)  # fmt: skip
def test_it_is_told_what_keeps_a_pod_off_all_boards(nodes, fields, expected):
    assert told(*nodes, **fields) == expected + TO_COME


def test_boards_that_are_to_come_are_no_way_out_where_the_policy_names_some_already():
    said = told(make_node(labels={"zone": "east"}), models=(A30,), nodeSelector={"pool": "a", names.PRODUCT_LABEL: "x"})
    assert said == (
        f"{LABELLED} has what the pod's nodeSelector wants (nvidia.com/gpu.product=x, pool=a): change that, "
        "and the policy allows only NVIDIA-A30 (gpuModels)"
    )
    elsewhere = told(make_node(), models=("NVIDIA-Unheard-Of",))
    assert elsewhere == "the policy allows only NVIDIA-Unheard-Of (gpuModels), and the pod may use no board of these"
