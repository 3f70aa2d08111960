"""The picture of the cluster holds what its objects say."""

import msgspec
import pytest

from policies import names
from policies.annotations import PlacedSlice, Placement
from policies.model import Pod
from policies.view import view_node, view_pod
from tests.builders import A30, A100, T4, container, make_node, make_pod, raw_pod


def sidecar(name, **fields):
    return container(name, restartPolicy="Always", **fields)


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("init", "apps", "peak"),
    [
        # W01, Q30: the larger of (apps + sidecars) and (each init + the sidecars before it), by hand.
        pytest.param([container("i", limits={GPU: 1})], [container()], 1000, id="only-init"),
        pytest.param([container("i")], [container("a", limits={GPU: 2}), container("b", limits={GPU: 2})], 4000, id="sum"),
        pytest.param([container("i", limits={GPU: 3})], [container(limits={GPU: 2})], 3000, id="init-larger"),
        pytest.param([sidecar("s", limits={GPU: 1})], [container(limits={GPU: 2})], 3000, id="sidecar-adds"),
        pytest.param(
            [sidecar("s", limits={GPU: 1}), container("i", limits={GPU: 3})], [container(limits={GPU: 2})], 4000,
            id="init-beside-sidecar",
        ),
        pytest.param(
            [container("i", limits={GPU: 3}), sidecar("s", limits={GPU: 1})], [container(limits={GPU: 1})], 3000,
            id="init-before-sidecar",
        ),
    ],
)  # fmt: skip
def test_the_peak_request_follows_the_order_of_containers(init, apps, peak):
    assert view_pod(make_pod(init=init, containers=apps)).request[GPU] == peak


def test_overhead_and_pod_level_resources_count():
    pod = make_pod(limits={"cpu": "1"}, overhead={"cpu": "250m"}, resources={"requests": {"cpu": "3", "memory": "1Gi"}})
    assert view_pod(pod).request == {"cpu": 3250, "memory": 2**30 * 1000}


def test_the_slices_of_a_pod_are_its_mig_and_mps_resources():
    limits = {"nvidia.com/mig-1g.5gb": 2, "nvidia.com/gpu-10gb": 1, "nvidia.com/gpu.shared": 1, "nvidia.com/gpu": 1}
    assert view_pod(make_pod(limits=limits)).slices == (("nvidia.com/gpu-10gb", 1), ("nvidia.com/mig-1g.5gb", 2))


@pytest.mark.parametrize(
    ("condition", "written", "since"),
    [
        pytest.param(None, None, None, id="the scheduler has said nothing"),
        pytest.param({"status": "False", "reason": "SchedulingGated"}, None, None, id="our gate"),
        pytest.param({"status": "False", "reason": "Unschedulable"}, None, 1772442000, id="never gated"),
        pytest.param(
            {"status": "False", "reason": "Unschedulable"}, "2026-03-02T09:10:00Z", 1772442600,
            id="not before it was released, though the condition still bears the time of the gate",
        ),
        pytest.param({"status": "False", "reason": "Unschedulable"}, "when?", 1772442000, id="not written by us"),
    ],
)  # fmt: skip
def test_a_pod_is_unschedulable_since_the_gate_is_gone_at_the_earliest(condition, written, since):
    """Kubernetes 1.36 keeps lastTransitionTime when SchedulingGated becomes Unschedulable: both are status False."""
    raw = raw_pod(annotations={"nos.nebuly.com/released-at": written} if written else None)
    if condition:
        told = {"type": "PodScheduled", "lastTransitionTime": "2026-03-02T09:00:00Z", **condition}
        raw["status"] = {"phase": "Pending", "conditions": [told]}
    assert view_pod(msgspec.convert(raw, Pod)).unschedulable_since == since


@pytest.mark.parametrize(
    ("fields", "released", "holds"),
    [
        pytest.param({}, True, False, id="free-to-be-bound"),
        pytest.param({"gates": [names.GATE]}, False, False, id="gated"),
        pytest.param({"gates": ["other/gate"]}, False, False, id="held-by-another"),
        pytest.param({"node": "n1"}, False, True, id="bound"),
        pytest.param({"node": "n1", "phase": "Succeeded"}, False, False, id="ended"),
        pytest.param({"phase": "Failed"}, False, False, id="failed-before-it-was-bound"),
    ],
)
def test_a_pod_holds_or_is_promised_slices(fields, released, holds):
    pod = view_pod(make_pod(**fields))
    assert (pod.released, pod.holds) == (released, holds)


def test_boards_come_from_the_table_until_an_agent_reports():
    node = view_node(make_node(product=A30, count=2, memory=24000))
    assert [(b.index, b.model.name, b.model.memory_mib, b.cuttable) for b in node.boards] == [
        (0, "NVIDIA-A30", 24000, True),
        (1, "NVIDIA-A30", 24000, True),
    ]


def test_an_inventory_wins_over_label_and_table():
    """P12: the board may have profiles that no table knows; totals follow from the largest, +me is there once."""
    inventory = (
        '[{"index": 3, "uuid": "GPU-1", "model": "NVIDIA-GB200", "memoryMiB": 193536, "mig": true, "profiles": ['
        '{"name": "7g.189gb", "id": 0, "compute": 7, "memoryUnits": 8, "memoryMiB": 191488, "starts": [0]},'
        '{"name": "1g.24gb+me", "id": 20, "compute": 1, "memoryUnits": 1, "memoryMiB": 22528, "starts": [0, 1]}]}]'
    )
    (board,) = view_node(make_node(product=A100, annotations={names.INVENTORY: inventory})).boards
    assert (board.index, board.uuid, board.model.compute, board.model.memory_units) == (3, "GPU-1", 7, 8)
    assert [(profile.name, profile.max) for profile in board.model.profiles] == [("1g.24gb+me", 1), ("7g.189gb", 0)]


@pytest.mark.parametrize(
    ("mode", "entry", "cuttable"),
    [
        pytest.param("mig", '"mig": true', True, id="mig-on"),
        pytest.param("mig", '"mig": false, "switch": "live"', True, id="switchable-live"),
        pytest.param("mig", '"mig": false, "switch": "admin"', False, id="an-admin-must-switch"),
        pytest.param("mps", '"mig": false', True, id="mps"),
        pytest.param("mig", '"mig": false, "mode": "mps"', True, id="mps-by-board"),
        pytest.param("timeslicing", '"mig": false', False, id="timeslicing"),
        pytest.param("mig", '"mig": true, "fault": "In use by another client"', False, id="faulty-mig"),
        pytest.param("mps", '"mig": false, "fault": "GPU is lost"', False, id="faulty-mps"),
    ],
)
def test_a_board_can_be_cut_in_the_mode_that_it_is_in(mode, entry, cuttable):
    inventory = '[{"index": 0, "uuid": "GPU-1", "model": "NVIDIA-A30", "memoryMiB": 24576, %s}]' % entry  # noqa: UP031
    (board,) = view_node(make_node(mode=mode, annotations={names.INVENTORY: inventory})).boards
    assert board.cuttable is cuttable


def test_an_unknown_model_is_left_alone_and_named():
    node = view_node(make_node(product="NVIDIA-Z900-96GB"))
    assert node.boards == ()
    assert "NVIDIA-Z900-96GB" in node.faults[0]


def test_a_foreign_node_is_read_and_has_no_boards_of_ours():
    node = view_node(make_node(mode=None, resources={"nvidia.com/mig-1g.5gb": "7"}))
    assert (node.managed, node.boards, node.faults) == (False, (), ())
    assert node.capacity["nvidia.com/mig-1g.5gb"] == 7000


def test_placements_and_counts_of_nos_are_kept_apart():
    placed = make_node(placements={"0": [{"profile": "3g.20gb", "start": 4, "used": True}]})
    assert view_node(placed).boards[0].slices == (PlacedSlice(profile="3g.20gb", start=4, used=True),)
    counted = make_node(annotations={"nos.nebuly.com/status-gpu-0-1g.5gb-free": "2"})
    assert view_node(counted).boards[0].counted == (("1g.5gb", False), ("1g.5gb", False))


def test_a_node_in_flight_is_about_to_have_what_was_ordered():
    order = {names.SPEC_PLACEMENTS: '{"0":[{"profile":"7g.40gb","start":0}]}', names.SPEC_PLAN: "2"}
    node = view_node(make_node(placements={"0": []}, annotations={**order, names.STATUS_PLAN: "1"}))
    assert node.in_flight
    assert node.target(node.boards[0]) == (Placement("7g.40gb", 0),)
    settled = view_node(make_node(placements={"0": []}, annotations={**order, names.STATUS_PLAN: "2"}))
    assert not settled.in_flight
    assert settled.target(settled.boards[0]) == ()


def test_what_cannot_be_read_of_a_node_is_a_fault_of_that_node():
    node = view_node(make_node(mode="mips", product=T4, resources={"cpu": "many"}))
    assert [fault.split(":")[0] for fault in node.faults] == [
        "label nos.nebuly.com/gpu-partitioning",
        "status.allocatable",
        "status.capacity",
    ]


@pytest.mark.parametrize("count", ["1000000", "99999999999999999999", "-1", "x", "\u0663", ""])
def test_a_count_of_boards_that_no_node_has_is_a_fault(count):
    node = view_node(make_node(count=count))
    assert node.boards == ()
    assert [names.COUNT_LABEL in each for each in node.faults] == [True]


@pytest.mark.parametrize("memory", ["0", "\u0663", "-1", "99999999999999999999"])
def test_a_memory_label_that_no_board_has_leaves_the_table_to_say(memory):
    """T4: 15360 MiB. With 0 every wish for memory, on whatever node, ended in a division by zero."""
    node = view_node(make_node(product=T4, mode="mps", memory=memory))
    assert [board.model.memory_mib for board in node.boards] == [15360]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        pytest.param("", "", "1772442000500", id="milliseconds since the epoch"),
        pytest.param("1772442000", "1772441990", "1772442000500", id="nos counted in seconds"),
        pytest.param("1772442000500", "", "1772442000501", id="two orders in one millisecond"),
        pytest.param("1772442009000", "1772442009000", "1772442009001", id="a last leader whose clock is ahead"),
        pytest.param("node-1-17", "", "1772442000500", id="no number"),
        pytest.param("9796076207440", "9796076207440", "1772442000500", id="a time that no leader can have had"),
        pytest.param("9" * 400, "9" * 5000, "1772442000500", id="more than a number can hold"),
    ],
)
def test_plan_ids_grow(spec, status, expected):
    annotations = {"nos.nebuly.com/spec-partitioning-plan": spec, "nos.nebuly.com/status-partitioning-plan": status}
    assert view_node(make_node(annotations=annotations)).next_plan(1772442000.5) == expected
