"""Passes of the agent over a node: what it does, in which order, and what it tells of it."""

import json

import pytest

from policies import names
from policies.annotations import write_inventory
from reconciler.agent.driver import GpuIsLost, InUse, NoPermission, NotSupported
from reconciler.agent.kubelet import KubeletBehind, KubeletError
from reconciler.agent.simulated.driver import (
    CREATE_COMPUTE_INSTANCE,
    CREATE_GPU_INSTANCE,
    DESTROY_COMPUTE_INSTANCE,
    DESTROY_GPU_INSTANCE,
    LIST,
    SimulatedDriver,
)
from tests.agent.world import World, layout
from tests.builders import A100, H100, T4

ONE, TWO, THREE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"
READY = ("True", "BoardsReady", "")


def test_a_fresh_node_tells_what_it_has_and_then_keeps_silent():
    world = World(count=2)
    assert [(board.index, board.uuid, board.model, board.mig) for board in map(world.inventory, (0, 1))] == [
        (0, world.uuids[0], "NVIDIA-A100-SXM4-40GB", True),
        (1, world.uuids[1], "NVIDIA-A100-SXM4-40GB", True),
    ]
    assert world.annotation(names.STATUS_PLACEMENTS) == '{"0":[],"1":[]}'
    assert names.STATUS_PLAN not in world.node["metadata"]["annotations"]
    assert world.condition() == READY
    assert len(world.patches) == 1


def test_empty_room_is_cut_in_one_pass_and_told_in_one_patch():
    """P16: plan, slices and allocatable arrive together."""
    world = World()
    world.order({0: layout(("3g.20gb", 4), ("1g.5gb", 0))})
    before = len(world.patches)
    world.act()
    assert len(world.patches) == before + 1
    assert world.patches[-1] == {
        "metadata": {
            "uid": "uid-node",
            "annotations": {
                names.STATUS_PLACEMENTS: '{"0":[{"profile":"1g.5gb","used":false,"start":0},'
                '{"profile":"3g.20gb","used":false,"start":4}]}',
                names.STATUS_PLAN: "1",
                names.STATUS_GPU + "0-1g.5gb-free": "1",
                names.STATUS_GPU + "0-3g.20gb-free": "1",
            },
        },
        "status": {"capacity": {ONE: "1", THREE: "1"}, "allocatable": {ONE: "1", THREE: "1"}},
    }
    assert world.act().patch is None


def test_what_must_go_is_withdrawn_then_waited_for_then_cut():
    """P10: the busy 3g stays; one patch for each of the two steps."""
    world = World({0: [("3g.20gb", 0), ("2g.10gb", 4)]}, pods=[("team-a/busy", THREE)])
    told = len(world.patches)
    world.order({0: layout(("3g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5))})
    world.run()
    assert world.reported() == ["3g.20gb@0 team-a/busy", "2g.10gb@4 withdrawn"]
    assert world.patches[told:] == [
        {
            "metadata": {
                "uid": "uid-node",
                "annotations": {names.STATUS_PLACEMENTS: world.annotation(names.STATUS_PLACEMENTS)},
            },
            "status": {"capacity": {TWO: "0"}, "allocatable": {TWO: "0"}},
        }
    ]
    assert not world.dealt_with
    world.allow()
    world.run()
    assert len(world.patches) == told + 2
    assert world.reported() == ["3g.20gb@0 team-a/busy", "1g.5gb@4 free", "1g.5gb@5 free"]
    assert world.allocatable() == {THREE: 1, ONE: 2}
    assert world.dealt_with


def test_counts_that_are_no_longer_true_are_taken_away():
    """A07: nothing old is left in counting annotations or allocatable."""
    world = World({0: [("3g.20gb", 0)]})
    world.order({0: layout(("7g.40gb", 0))})
    world.finish()
    counts = {key.removeprefix(names.STATUS_GPU): value for key, value in world.read().annotations.items()
              if key.startswith(names.STATUS_GPU)}  # fmt: skip
    assert counts == {"0-7g.40gb-free": "1"}
    assert world.read().allocatable == {THREE: "0", "nvidia.com/mig-7g.40gb": "1"}


def test_a_resource_of_nvidia_that_is_no_slice_is_not_ours():
    world = World(resources={"nvidia.com/gpu": "4", "nvidia.com/gpu.shared": "8", TWO: "3"})
    assert world.node["status"]["capacity"]["nvidia.com/gpu"] == "4"
    assert world.node["status"]["capacity"]["nvidia.com/gpu.shared"] == "8"
    assert world.node["status"]["allocatable"][TWO] == "0"


# Pods --------------------------------------------------------------------------------------------------------------


def test_use_is_told_when_a_pod_comes_and_when_it_goes():
    world = World({0: [("1g.5gb", 5), ("1g.5gb", 6)]}, pods=[("team-a/train", ONE)])
    assert world.reported() == ["1g.5gb@5 team-a/train", "1g.5gb@6 free"]
    assert world.allocatable() == {ONE: 2}, "allocatable counts what is held as well"
    world.end("team-a/train")
    world.run()
    assert world.reported() == ["1g.5gb@5 free", "1g.5gb@6 free"]


def test_a_pod_bound_before_the_withdrawal_keeps_its_slice_and_the_plan_is_refused():
    world = World({0: [("3g.20gb", 0)]})
    world.order({0: layout(("7g.40gb", 0))})
    world.bind("team-a/late", THREE)
    world.run()
    assert world.reported() == ["3g.20gb@0 team-a/late"]
    assert world.allocatable() == {THREE: 1}
    assert world.dealt_with, "a refused plan is dealt with: the leader plans again"
    assert world.condition() == READY


def test_a_pod_bound_between_withdraw_and_cut_keeps_its_slice():
    """The leader sees the pod and, in place of the cut, orders a plan that keeps what it claims."""
    world = World({0: [("3g.20gb", 0), ("3g.20gb", 4)]})
    world.order({0: layout(("3g.20gb", 4), ("2g.10gb", 0))})
    world.run()
    assert world.reported() == ["3g.20gb@0 withdrawn", "3g.20gb@4 free"]
    world.bind("team-a/early", THREE)
    world.bind("team-a/late", THREE)
    world.run()
    assert world.reported() == ["3g.20gb@0 withdrawn", "3g.20gb@4 team-a/early"]
    assert [key for key, _ in world.rejected] == ["team-a/late"], "a real kubelet fails it; the simulated one says so"
    world.order({0: layout(("3g.20gb", 0), ("3g.20gb", 4))}, plan="2")
    world.allow("1")
    world.run()
    assert world.reported() == ["3g.20gb@0 team-a/late", "3g.20gb@4 team-a/early"]
    assert world.dealt_with


def test_a_pod_that_holds_a_withdrawn_slice_at_the_cut_keeps_it():
    """The kubelet gave it away at the moment at which it was withdrawn: the last look before destroying sees that."""
    world = World({0: [("3g.20gb", 0), ("3g.20gb", 4)]})
    world.order({0: layout(("2g.10gb", 0))})
    world.run()
    world._kubelet._holders[f"{world.uuids[0]}/3g.20gb/4"] = ("team-a/late", "")
    world.bind("team-a/late", THREE)
    world.allow()
    world.run()
    assert world.reported() == ["3g.20gb@0 free", "3g.20gb@4 team-a/late"]
    assert world.allocatable() == {THREE: 2}
    assert world.dealt_with


# Faults ------------------------------------------------------------------------------------------------------------


def test_a_board_that_fails_stops_no_other_and_is_tried_again_later():
    """A03, A05: IN_USE is an expected outcome; reported, then retried with pauses that double."""
    world = World({0: [("3g.20gb", 0)], 1: [("3g.20gb", 0)]}, count=2)
    world.faults[(DESTROY_COMPUTE_INSTANCE, world.uuids[0])] = InUse("In use by another client")
    world.order({0: layout(("7g.40gb", 0)), 1: layout(("7g.40gb", 0))})
    world.act()
    world.allow()
    outcome = world.act()
    assert world.layout(1) == layout(("7g.40gb", 0))
    assert world.dealt_with, "the node is free for the next plan"
    assert (world.inventory(0).fault, world.inventory(1).fault) == ("In use by another client", None)
    assert world.condition() == ("False", "BoardFailed", f"GPU 0 ({world.uuids[0]}): In use by another client")
    assert outcome.again_s == 1.0

    world.now += 1.0
    world.act()
    assert world.inventory(0).fault is None, "it may be planned again"
    assert world.condition()[0] == "False", "but it is not known to be well"

    world.order({0: layout(("7g.40gb", 0))}, plan="2")
    world.act()
    world.allow("2")
    assert world.act().again_s == 2.0

    world.faults.clear()
    world.now += 2.0
    world.order({0: layout(("7g.40gb", 0))}, plan="3")
    world.finish()
    assert world.layout(0) == layout(("7g.40gb", 0))
    assert world.condition() == READY


def test_an_instance_that_could_be_removed_only_by_half_is_removed_when_it_can_be():
    """The GPU instance is held by a monitor after its compute instance has gone: it leaks for no longer than that."""
    world = World({0: [("3g.20gb", 0)]})
    world.faults[DESTROY_GPU_INSTANCE] = InUse("In use by another client")
    world.order({0: ()})
    world.act()
    world.allow()
    assert world.act().again_s == 1.0
    assert len(world.driver.orphans(world.uuids[0])) == 1
    assert world.reported() == []
    world.now += 1.0
    assert world.act().again_s == 2.0
    world.faults.clear()
    world.now += 2.0
    world.run()
    assert world.driver.orphans(world.uuids[0]) == ()
    assert world.condition() == READY


def test_a_failure_that_nothing_follows_is_forgotten_after_two_minutes():
    world = World()
    world.faults[CREATE_GPU_INSTANCE] = NoPermission("Insufficient Permissions")
    world.order({0: layout(("7g.40gb", 0))})
    world.act()
    assert world.condition()[0] == "False"
    world.now += 1.0 + 120.0
    world.run()
    assert world.condition() == READY


def test_a_slice_that_cannot_be_completed_is_undone():
    world = World()
    world.faults[CREATE_COMPUTE_INSTANCE] = NotSupported("no compute instance")
    world.order({0: layout(("1g.5gb", 0), ("1g.5gb", 1))})
    world.act()
    assert world.layout(0) == ()
    assert world.driver.orphans(world.uuids[0]) == ()
    assert world.reported() == []
    assert world.dealt_with


def test_a_driver_that_claims_success_and_does_nothing_is_not_asked_for_ever(monkeypatch):
    world = World()
    asked = []
    monkeypatch.setattr(SimulatedDriver, "create", lambda self, board, item: asked.append(item))
    world.order({0: layout(("7g.40gb", 0))})
    world.act()
    assert len(asked) == 4
    assert world.condition()[2].endswith("the driver reports success, but nothing has changed")
    assert world.dealt_with


def test_a_lost_board_offers_nothing_and_the_others_go_on():
    world = World({0: [("1g.5gb", 0)], 1: [("1g.5gb", 0)]}, count=2)
    world.order({0: layout(("1g.5gb", 0), ("1g.5gb", 1)), 1: layout(("1g.5gb", 0), ("1g.5gb", 1))})
    world.faults[(LIST, world.uuids[0])] = GpuIsLost("GPU is lost")
    world.act()
    assert world.allocatable() == {ONE: 2}
    assert world.condition() == ("False", "BoardFailed", f"GPU 0 ({world.uuids[0]}): GPU is lost")
    assert world.dealt_with


def test_devices_of_a_board_that_cannot_serve_are_unhealthy():
    """A19: a dead MPS daemon: capacity stays and nothing is offered. Nobody has withdrawn anything."""
    world = World({0: ["5gb", "5gb"], 1: ["5gb"]}, product=T4, mode=names.MPS, count=2)
    world.driver.fail(world.uuids[0], "MPS control daemon: exited with status 1")
    world.run()
    assert world.read().capacity == {"nvidia.com/gpu-5gb": "3"}
    assert world.allocatable() == {"nvidia.com/gpu-5gb": 1}
    assert world.reported(0) == ["5gb free", "5gb free"]
    assert world.condition()[:2] == ("False", "BoardFailed")
    world.driver.fail(world.uuids[0], None)
    world.run()
    assert world.allocatable() == {"nvidia.com/gpu-5gb": 3}
    assert world.condition() == READY


def test_a_driver_without_boards_changes_nothing_but_the_condition(monkeypatch):
    """A14: the agent stays up, says why, and looks again."""
    world = World({0: [("3g.20gb", 0)]})
    told = len(world.patches)
    monkeypatch.setattr(SimulatedDriver, "boards", lambda self: (_ for _ in ()).throw(NotSupported("NVML unavailable")))
    assert world.act().again_s == 5.0
    assert [list(patch["status"]) for patch in world.patches[told:]] == [["conditions"]]
    assert world.condition() == ("False", "NoBoards", "NVML unavailable")
    assert world.inventory().model == A100
    assert world.allocatable() == {THREE: 1}
    monkeypatch.undo()
    world.act()
    assert world.condition() == READY


def test_boards_of_a_model_that_nobody_knows_are_left_alone():
    """The empty inventory tells the leader that an agent is there; it goes by no label then."""
    world = World(product="NVIDIA-Z900-96GB")
    why = (
        "label nvidia.com/gpu.product: 'NVIDIA-Z900-96GB' is in no table and no agent has reported "
        "nos.nebuly.com/gpu-inventory; its boards are left alone"
    )
    assert world.condition() == ("False", "NoBoards", why)
    assert world.read().annotations == {names.INVENTORY: "[]"}
    assert world.act().patch is None


def test_a_kubelet_that_does_not_answer_is_named_in_the_condition(monkeypatch):
    """A23."""
    world = World()
    monkeypatch.setattr(
        type(world._kubelet), "allocated", lambda self: (_ for _ in ()).throw(KubeletError("no pod-resources service"))
    )
    assert world.act().again_s == 5.0
    assert world.condition() == ("False", "KubeletDisagrees", "no pod-resources service")


def test_kubelet_and_driver_are_both_named_where_neither_is_there(monkeypatch):
    """A23: who mends one of the two is told of the other at once."""
    world = World()

    def missing(why):
        raise why

    monkeypatch.setattr(type(world._kubelet), "allocated", lambda _: missing(KubeletError("no pod-resources service")))
    monkeypatch.setattr(type(world.driver), "boards", lambda _: missing(NotSupported("no NVML")))
    assert world.act().again_s == 5.0
    assert world.condition() == ("False", "KubeletDisagrees", "no pod-resources service; no NVML")


def test_while_the_kubelet_is_away_nothing_is_offered(monkeypatch):
    """A pod that is bound meanwhile fails for good if the kubelet comes back before its plugins: it has no device for it."""
    world = World({0: [("1g.5gb", 6), ("3g.20gb", 0)]}, pods=[("team-a/train", THREE)])
    world.node["status"]["allocatable"] |= {"nvidia.com/gpu": "8"}  # another plugin's
    with monkeypatch.context() as away:
        away.setattr(
            type(world._kubelet), "allocated", lambda self: (_ for _ in ()).throw(KubeletError("it does not answer"))
        )
        world.act()
        assert world.patches[-1]["metadata"]["annotations"] == {}
        assert world.patches[-1]["status"]["allocatable"] == {ONE: "0", THREE: "0"}
        assert "capacity" not in world.patches[-1]["status"]
        assert world.act().patch is None
    del world.node["status"]["allocatable"]["nvidia.com/gpu"]
    world.act()
    assert world.allocatable() == {ONE: 1, THREE: 1}
    assert world.condition() == READY


def test_a_kubelet_that_does_not_know_its_pods_yet_is_waited_for_and_nothing_is_done(monkeypatch):
    """It would say that nothing is held: what runs there would be cut away."""
    world = World({0: [("3g.20gb", 0)]})
    world.order({0: layout(("2g.10gb", 0))})
    world.run()
    world.allow()
    told = len(world.patches)
    with monkeypatch.context() as started:
        behind = KubeletBehind("the kubelet does not know of pods that run on this node: team-a/train")
        started.setattr(type(world._kubelet), "allocated", lambda self: (_ for _ in ()).throw(behind))
        for _ in range(20):
            world.now += world.act().again_s
        assert world.layout(0) == layout(("3g.20gb", 0))
        assert len(world.patches) == told
        world.now += 10.0
        world.act()
        assert world.condition() == ("False", "KubeletDisagrees", str(behind))
    world.run()
    assert world.layout(0) == layout(("2g.10gb", 0))
    assert world.condition() == READY


@pytest.mark.parametrize("set_back_s", [0.0, 3600.0], ids=["", "clock-set-back"])
def test_nothing_is_told_before_the_kubelet_agrees_and_a_kubelet_that_never_does_is_named(set_back_s):
    """P16, A08: success is what the kubelet offers, not what was sent to it."""
    world = World(delay_s=3600.0)
    told = len(world.patches)
    world.order({0: layout(("7g.40gb", 0))})
    pauses = []
    while world.now < 1_000.0 + 12.0:
        pauses.append(world.act().again_s)
        world.now += pauses[-1]
        world.set_back_s = set_back_s
    assert pauses[0] == 0.02
    assert max(pauses) == 1.0
    assert len(pauses) < 60
    assert [list(patch["status"]) for patch in world.patches[told:]] == [["conditions"]]
    assert world.condition() == (
        "False",
        "KubeletDisagrees",
        f"the kubelet does not offer {world.uuids[0]}/7g.40gb/0",
    )
    assert not world.dealt_with
    world.now += 3600.0
    world.act()
    assert world.condition() == READY
    assert world.dealt_with


def test_mig_mode_is_switched_on_where_that_needs_no_reset():
    """A10: a mode change is another operation than a cut; the other board is not touched."""
    entries = [World(product=H100, count=2).inventory(index) for index in (0, 1)]
    off = type(entries[0])(
        **{field: getattr(entries[0], field) for field in entries[0].__struct_fields__} | {"mig": False}
    )
    world = World(product=H100, count=2, annotations=write_inventory([off, entries[1]]))
    assert [world.inventory(index).mig for index in (0, 1)] == [True, True]
    assert world.condition() == READY


def test_mig_mode_is_switched_on_when_the_last_slice_of_mps_has_gone():
    """P06: the node's label changes while a pod runs; it stays, and nothing is called a failure."""
    world = World({0: ["10gb", "20gb"]}, product=H100, mode="mps", pods=[("ml/runs", "nvidia.com/gpu-20gb")])
    world.node["metadata"]["labels"][names.PARTITIONING_LABEL] = "mig"
    world.run()
    assert (world.inventory().mig, world.condition()) == (False, READY)
    assert world.reported() == ["10gb free", "20gb ml/runs"]
    world.end("ml/runs")
    world.run()
    world.order({0: ()})
    world.finish()
    assert (world.inventory().mig, world.condition()) == (True, READY)
    assert (world.reported(), world.allocatable(), world.dealt_with) == ([], {}, True)


def test_a_person_is_told_where_mig_mode_needs_a_reset():
    entry = json.loads(World().annotation(names.INVENTORY))
    entry[0] |= {"mig": False}
    world = World(annotations={names.INVENTORY: json.dumps(entry)})
    world.order({0: layout(("7g.40gb", 0))})
    world.run()
    why = "MIG mode is off; stop what runs on it, run nvidia-smi -i 0 -mig 1 and reset it"
    assert world.condition() == ("False", "BoardFailed", f"GPU 0 ({world.uuids[0]}): {why}")
    assert world.inventory().fault == why, "the leader does not plan it again"
    assert world.dealt_with


# Orders and labels that cannot be understood -----------------------------------------------------------------------


def test_an_order_that_cannot_be_read_is_dealt_with_and_named():
    world = World({0: [("3g.20gb", 0)]})
    world.annotate({names.SPEC_PLAN: "7", names.SPEC_PLACEMENTS: '{"0": 3}'})
    world.run()
    assert world.dealt_with
    status, reason, message = world.condition()
    assert (status, reason) == ("False", "NodeUnreadable")
    assert message == "annotation nos.nebuly.com/spec-placements: board 0: 3: must be a list, not a number"
    assert world.reported() == ["3g.20gb@0 free"]


def test_of_an_order_that_can_be_read_in_part_that_part_is_carried_out():
    """What cannot be read of GPU 0 is no order to destroy what is on it."""
    world = World({0: [("3g.20gb", 0)]}, count=2)
    order = {"0": [{"profile": "3g.20gb", "start": "x"}], "1": [{"profile": "3g.20gb", "start": 4}]}
    basis = {"0": [{"profile": "3g.20gb", "start": 0}]}
    notes = {names.SPEC_PLACEMENTS: json.dumps(order), names.SPEC_BASIS: json.dumps(basis)}
    world.annotate({names.SPEC_PLAN: "7", **notes})
    world.run()
    assert world.dealt_with
    _, _, message = world.condition()
    path = "annotation nos.nebuly.com/spec-placements: board 0"
    assert message == f"{path}: [0].start: x: must be a whole number, not text"
    assert (world.reported(0), world.reported(1)) == (["3g.20gb@0 free"], ["3g.20gb@4 free"])


@pytest.mark.parametrize(
    ("mode", "reason", "why"),
    [
        pytest.param(
            "",
            "NotPartitioned",
            "the node has no label nos.nebuly.com/gpu-partitioning any more: its boards are not ours to cut",
            id="unlabelled",
        ),
        pytest.param(
            "migg",
            "NodeUnreadable",
            "label nos.nebuly.com/gpu-partitioning: 'migg' is no mode; write one of mig, mps, timeslicing",
            id="mislabelled",
        ),
    ],
)
def test_a_node_that_is_not_labelled_for_partitioning_is_left_alone_and_says_so(mode, reason, why):
    world = World()
    world.node["metadata"]["labels"][names.PARTITIONING_LABEL] = mode
    told = len(world.patches)
    world.order({0: layout(("7g.40gb", 0))})
    world.run()
    assert world.layout(0) == ()
    assert [list(patch["status"]) for patch in world.patches[told:]] == [["conditions"]]
    assert world.condition() == ("False", reason, why)
