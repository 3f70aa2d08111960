"""The systems that Apportion replaces or stands beside: what their users do, and what happens then. A test for each row.

Nodes with a fixed layout are what the agent reports of them; who gets what on them is asked of `simulate` and `explain`.
"""

import json

import yaml
from click.testing import CliRunner

from console.cli import main
from policies import names
from policies.constraints import constraints_of
from policies.labels import holds
from policies.model import NodeSelectorRequirement
from tests.agent.fixed.node import FixedNode, mig_parted, sharing
from tests.builders import A100, A100_80, T4, make_pod, raw_node, raw_pod

AT, DURATION = "simulate.apportion/at", "simulate.apportion/duration"


def asked(command, *objects):
    """Return what a command of ours prints for objects in a file."""
    done = CliRunner().invoke(main, [command, "-f", "-", "-o", "json"], input=yaml.safe_dump_all(objects))
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


def outcomes(*objects):
    """Return pod -> how it ended."""
    return {key.partition("/")[2]: pod["outcome"] for key, pod in asked("simulate", *objects)["pods"].items()}


def slices(*objects, node="n1"):
    """Return the slices of a node at the end, as `3g.20gb team-a/train`."""
    gpus = asked("simulate", *objects)["nodes"][node]["gpus"]
    return [[f"{item['profile']} {item['pod'] or 'free'}" for item in gpu["slices"]] for gpu in gpus]


def pods(count, resource, *, name="p", namespace="team-a", **fields):
    made = [raw_pod(f"{namespace}/{name}{index}", limits={resource: 1}, **fields) for index in range(count)]
    for pod in made:
        pod["metadata"].pop("uid")
        pod["metadata"].pop("resourceVersion")
    return made


def quota(namespace, minimum, maximum=None):
    spec = {"min": {"nvidia.com/gpu": minimum}, **({"max": {"nvidia.com/gpu": maximum}} if maximum else {})}
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": spec,
    }


# nos -------------------------------------------------------------------------------------------------------------------


def test_dynamic_mig_boards_are_cut_to_what_waits_and_again_when_it_ends():
    node = raw_node(product=A100_80)
    first = pods(7, "nvidia.com/mig-1g.10gb", annotations={DURATION: "1m"})
    later = pods(1, "nvidia.com/mig-7g.80gb", name="large", annotations={AT: "30s"})
    assert outcomes(node, *first, *later) == {**{f"p{n}": "finished" for n in range(7)}, "large0": "running"}
    assert slices(node, *first, *later) == [["7g.80gb team-a/large0"]]


def test_dynamic_mps_slices_have_any_size_and_clients_what_they_need():
    node = raw_node(product=T4, mode="mps")
    (plain,) = pods(1, "nvidia.com/gpu-4gb")
    (by_hand,) = pods(1, "nvidia.com/gpu-11gb", name="by-hand", hostIPC=True, securityContext={"runAsUser": 1000})
    assert slices(node, plain, by_hand) == [["11gb team-a/by-hand0", "4gb team-a/p0"]]
    told = asked("explain", node, plain, by_hand)["pods"]
    admitted = told["team-a/p0"]["admitted"]["spec"]
    assert (admitted["hostIPC"], admitted["containers"][0]["securityContext"]) == (True, {"runAsUser": 1000})
    kept = told["team-a/by-hand0"]["admitted"]["spec"]
    assert (kept["hostIPC"], kept["securityContext"]) == (True, {"runAsUser": 1000})
    assert "securityContext" not in kept["containers"][0]


def test_elastic_quota_lends_what_is_unused_and_takes_it_back():
    node = raw_node(product=None, mode=None, resources={"nvidia.com/gpu": "2"})
    borrowers = pods(2, "nvidia.com/gpu", terminationGracePeriodSeconds=5)
    lender = pods(1, "nvidia.com/gpu", name="own", namespace="team-b", annotations={AT: "1m"})
    objects = [node, quota("team-a", 1), quota("team-b", 1), *borrowers, *lender]
    assert outcomes(*objects) == {"p0": "running", "p1": "evicted", "own0": "running"}


def test_twenty_gpus_of_which_three_are_a_teams():
    """Notebooks share its three; once in a while a job needs more, and borrows what is idle."""
    nodes = [raw_node(f"n{n}", count=4, product=A100) for n in range(5)]
    notebooks = pods(14, "nvidia.com/mig-1g.5gb", namespace="science", name="notebook")
    jobs = pods(6, "nvidia.com/mig-7g.40gb", namespace="science", name="job")
    told = asked("simulate", *nodes, quota("science", 3), quota("others", 17), *notebooks, *jobs)
    assert {pod["outcome"] for pod in told["pods"].values()} == {"running"}
    used = told["quotas"]["science/quota"]
    assert (used["used"]["nvidia.com/gpu"], used["borrowed"]["nvidia.com/gpu"]) == ("7750m", "4750m")
    boards = [gpu["slices"] for node in told["nodes"].values() for gpu in node["gpus"]]
    assert sum(any("notebook" in item["pod"] for item in board) for board in boards) == 2


# Plugins' files --------------------------------------------------------------------------------------------------------


def test_mps_by_nebulys_fork_is_honoured_as_a_fixed_layout():
    entry = "name: nvidia.com/gpu, rename: nvidia.com/gpu-4gb, memoryGB: 4, replicas: 2, devices: ['0']"
    node = FixedNode(product=T4, mode="mps", plugin=sharing("mps", entry)).node
    wanting = pods(3, "nvidia.com/gpu-4gb")
    told = asked("simulate", node, *wanting)["pods"]
    assert [told[f"team-a/p{n}"]["outcome"] for n in range(3)] == ["running", "running", "waiting"]
    assert told["team-a/p2"]["reason"] == (
        "needs 4gb; none is free, and 1 board cannot be cut now (node n1: its layout is fixed by a file)"
    )
    assert slices(node, *wanting) == [["4gb team-a/p0", "4gb team-a/p1"]]


def test_time_slicing_by_nvidias_plugin_is_honoured_and_explain_says_that_nothing_is_limited():
    plugin = sharing("timeSlicing", "name: nvidia.com/gpu, replicas: 4")
    node = FixedNode(product=T4, count=2, mode="timeslicing", plugin=plugin).node
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert list(outcomes(node, *pods(9, "nvidia.com/gpu")).values()) == [*["running"] * 8, "waiting"]
    (told,) = asked("explain", node, *pods(1, "nvidia.com/gpu"))["pods"].values()
    assert told["warnings"] == [
        "nvidia.com/gpu is a turn on a GPU on n1; nothing is limited: neither memory nor compute, no fault isolation"
    ]


def test_static_mig_of_the_gpu_operator_is_honoured_as_a_fixed_layout():
    parted = mig_parted('devices: all, mig-enabled: true, mig-devices: {"2g.10gb": 3}')
    node = FixedNode(mig_parted=parted).node
    assert node["status"]["allocatable"]["nvidia.com/mig-2g.10gb"] == "3"
    assert outcomes(node, *pods(4, "nvidia.com/mig-2g.10gb"), *pods(1, "nvidia.com/mig-3g.20gb", name="large")) == {
        "p0": "running", "p1": "running", "p2": "running", "p3": "waiting", "large0": "denied",
    }  # fmt: skip


def test_a_share_is_served_by_the_slices_of_a_fixed_layout():
    node = FixedNode(mig_parted=mig_parted('devices: all, mig-enabled: true, mig-devices: {"2g.10gb": 3}')).node
    (pod,) = pods(1, "nvidia.com/gpu")
    pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "0.1"}
    assert slices(node, pod)[0].count("2g.10gb team-a/p0") == 1


def test_static_mig_that_is_left_to_the_operator_is_read_and_never_cut():
    """A foreign node, with the labels of NVIDIA's feature discovery and mig-manager; even where more is asked for."""
    node = raw_node(
        mode=None,
        resources={"nvidia.com/mig-1g.5gb": "2"},
        labels={
            names.MIG_CONFIG_LABEL: "all-1g.5gb", names.MIG_STATE_LABEL: "success",
            "nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-1g.5gb.count": "2",
        },
    )  # fmt: skip
    told = asked("simulate", node, *pods(3, "nvidia.com/mig-1g.5gb"))
    assert [pod["outcome"] for pod in told["pods"].values()] == ["running", "running", "waiting"]
    assert told["nodes"]["n1"]["gpus"] == []
    assert {event["what"] for event in told["events"]} == {"started"}


def test_resource_names_of_mig_are_single_for_equal_slices_of_a_fixed_layout_and_else_mixed():
    parted = mig_parted('devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 7}')
    single = FixedNode(mig_parted=parted, plugin="version: v1\nflags: {migStrategy: single}").node
    assert list(outcomes(single, *pods(8, "nvidia.com/gpu")).values()) == [*["running"] * 7, "waiting"]
    mixed = raw_node("n1", product=A100_80)
    assert slices(mixed, *pods(1, "nvidia.com/mig-1g.10gb")) == [["1g.10gb team-a/p0"]]


# Beside others ---------------------------------------------------------------------------------------------------------


def test_nvidias_plugin_is_kept_off_our_nodes_by_the_expression_that_nos_documents():
    """In its DaemonSet: required node affinity; with all modes in place of `mps` alone."""
    expression = NodeSelectorRequirement(names.PARTITIONING_LABEL, "NotIn", names.MODES)
    ours = [{names.PARTITIONING_LABEL: mode} for mode in names.MODES]
    assert [holds(expression, labels) for labels in (*ours, {})] == [False, False, False, True]
    plugin = make_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": names.PARTITIONING_LABEL, "operator": "NotIn", "values": ["mig", "mps", "timeslicing"]}]}
    ]}}})  # fmt: skip
    assert [constraints_of(plugin.spec).selects("n1", labels) for labels in (*ours, {})] == [False, False, False, True]


def test_two_plugins_on_a_node_are_found():
    node = FixedNode(resources={"nvidia.com/gpu": "1"})
    assert node.condition()[:2] == ("False", "AnotherDevicePlugin")


def test_ordinary_integer_requests_are_left_as_they_are():
    node = raw_node(mode=None, resources={"nvidia.com/gpu": "8"})
    (told,) = asked("explain", node, *pods(1, "nvidia.com/gpu"))["pods"].values()
    assert (told["patch"], told["warnings"], told["denied"]) == ([], [], None)


def test_isolation_is_said_wherever_a_slice_is_chosen():
    """A22: each way of making a slice says what a user may rely on."""

    def said(mode, product):
        (pod,) = pods(1, "nvidia.com/gpu")
        pod["spec"]["containers"][0].pop("resources")
        pod["metadata"]["annotations"] = {names.FRACTION: "0.5", names.MODE: mode}
        (told,) = asked("explain", raw_node(product=product, mode=mode), pod)["pods"].values()
        return told["warnings"][0]

    assert said("timeslicing", T4).endswith("; nothing is limited: neither memory nor compute, no fault isolation")
    assert said("mps", T4).endswith("; memory limit per process, no fault isolation")
    assert said("mig", A100).endswith("(3/7 compute, 19.5 GiB of NVIDIA-A100-SXM4-40GB); isolated in hardware")
