"""Nodes with a fixed layout: how they get there, what stays while pods are in the way, and what they say of files and neighbours."""

from policies import names
from policies.boards import read_boards
from reconciler.agent.pace import SETTLE_S
from reconciler.agent.simulated.memory import recall
from tests.agent.fixed.node import FixedNode, mig_parted, sharing
from tests.agent.world import layout
from tests.builders import A30, H100, T4

ONE, TWO, THREE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"
READY = ("True", "BoardsReady", "")
SEVEN = mig_parted('devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 7}')
THREES = mig_parted('devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 2}')
FOUR_TURNS = sharing("timeSlicing", "name: nvidia.com/gpu, replicas: 4")


# Static MIG ------------------------------------------------------------------------------------------------------------


def test_an_empty_board_is_cut_at_once():
    """The row "static MIG by the GPU operator"."""
    node = FixedNode(mig_parted=SEVEN)
    assert node.resources() == {ONE: 7}
    assert node.reported() == [f"1g.5gb@{start} free" for start in range(7)]
    assert node.condition() == READY
    assert len(node.patches) == 1


def test_the_planner_is_told_that_the_layout_is_fixed_and_what_it_has():
    node = FixedNode(mig_parted=SEVEN)
    told = node.inventory()
    assert (told.fixed, told.mode, [profile.name for profile in told.profiles]) == (True, "mig", ["1g.5gb"])
    (board,) = read_boards(node.read().labels, node.read().annotations, "mig", [])
    assert not board.cuttable
    assert (board.model.compute, board.model.memory_units) == (7, 8)


def test_an_order_for_a_fixed_board_is_dealt_with_and_changes_nothing():
    node = FixedNode(mig_parted=SEVEN)
    node.order({0: ()})
    node.allow()
    node.run()
    assert node.dealt_with
    assert node.resources() == {ONE: 7}


def test_what_is_not_in_the_layout_is_withdrawn_then_known_then_destroyed():
    node = FixedNode({0: [("2g.10gb", 0), ("3g.20gb", 4)]}, mig_parted=THREES)
    assert node.reported() == ["3g.20gb@0 free", "3g.20gb@4 free"]
    first = node.patches[0]
    assert first["status"]["allocatable"] == {THREE: "1"}
    assert node.resources() == {THREE: 2}


def test_nothing_is_destroyed_before_it_has_got_about_that_it_is_withdrawn():
    node = FixedNode({0: [("2g.10gb", 0)]})
    node.fix(THREES)
    node.act()
    assert node.reported() == ["2g.10gb@0 withdrawn"]
    outcome = node.act()
    assert outcome.again_s == SETTLE_S
    node.now += SETTLE_S - 0.01
    node.act()
    assert node.layout(0) == layout(("2g.10gb", 0))
    node.now += 0.01
    node.act()
    assert node.layout(0) == layout(("3g.20gb", 0), ("3g.20gb", 4))


def test_what_becomes_free_later_gets_about_by_itself():
    """The kubelet has just restarted and lists nothing, so that its word alone would not do."""
    node = FixedNode({0: [("2g.10gb", 0), ("2g.10gb", 2)]}, pods=[("team-a/train", TWO)])
    node.fix(THREES)
    node.act()
    node.act()
    assert node.reported() == ["2g.10gb@0 team-a/train", "2g.10gb@2 withdrawn"]
    node.now += SETTLE_S
    node.end("team-a/train")
    node._kubelet._known = node._kubelet._announced = {}
    node.act()
    assert node.reported() == ["2g.10gb@0 withdrawn", "2g.10gb@2 withdrawn"]
    node.run()
    assert node.reported() == ["3g.20gb@0 free", "3g.20gb@4 free"]


def test_a_pod_that_was_bound_meanwhile_gets_its_slice():
    """Scheduled before the withdrawal got about: the kubelet does not know it yet, the API server does."""
    node = FixedNode({0: [("2g.10gb", 0)]})
    node.fix(THREES)
    node.act()
    node.bind("team-a/quick", TWO)
    node.run()
    assert node.reported() == ["2g.10gb@0 team-a/quick", "3g.20gb@4 free"]
    assert node.condition() == (
        "False",
        "FixedLayoutPending",
        f"GPU 0 ({node.uuids[0]}): waits for the pods that hold 2g.10gb at 0 to end",
    )
    node.end("team-a/quick")
    node.run()
    assert node.reported() == ["3g.20gb@0 free", "3g.20gb@4 free"]
    assert node.condition() == READY


def test_what_a_pod_holds_counts_where_it_lies():
    """No slice is moved: of the layouts with the right slices the one is taken that has it in its place."""
    node = FixedNode({0: [("3g.20gb", 4), ("2g.10gb", 0)]}, pods=[("team-a/train", THREE)])
    node.fix(mig_parted('devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 1, "1g.5gb": 3}'))
    node.run()
    assert node.reported() == ["1g.5gb@0 free", "1g.5gb@1 free", "1g.5gb@2 free", "3g.20gb@4 team-a/train"]


def test_of_two_that_would_do_the_one_that_a_pod_holds_stays():
    node = FixedNode({0: [("3g.20gb", 0), ("3g.20gb", 4)]}, pods=[("team-a/train", THREE)])
    assert node.reported() == ["3g.20gb@0 team-a/train", "3g.20gb@4 free"]
    node.fix(mig_parted('devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 1}'))
    node.run()
    assert (node.reported(), node.condition()) == (["3g.20gb@0 team-a/train"], READY)


def test_only_the_boards_that_are_named_are_touched():
    """P07, A10: GPU 1 gets its layout, GPU 0 is the planner's, in use or not."""
    parted = mig_parted('devices: [1], mig-enabled: true, mig-devices: {"1g.6gb": 4}')
    node = FixedNode({0: [("2g.12gb", 0)]}, product=A30, count=2, mig_parted=parted)
    assert node.reported(0) == ["2g.12gb@0 free"]
    assert node.reported(1) == [f"1g.6gb@{start} free" for start in range(4)]
    assert (node.inventory(0).fixed, node.inventory(1).fixed) == (False, True)
    node.order({0: layout(("4g.24gb", 0))})
    node.finish()
    assert node.reported(0) == ["4g.24gb@0 free"]


def test_mig_mode_is_switched_on_where_that_needs_no_person():
    parted = mig_parted('devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}')
    node = FixedNode(product=H100, mode="mps", mig_parted=parted)
    assert node.resources() == {"nvidia.com/mig-1g.10gb": 7}


def test_strategy_single_announces_equal_slices_as_gpus():
    """The row "resource names of MIG"."""
    node = FixedNode(mig_parted=SEVEN, plugin="version: v1\nflags: {migStrategy: single}")
    assert node.resources() == {"nvidia.com/gpu": 7}
    assert node.reported() == ["gpu free"] * 7
    node.bind("team-a/notebook", "nvidia.com/gpu")
    node.run()
    assert node.devices("team-a/notebook") == ["1g.5gb/0"]
    assert node.reported() == ["gpu team-a/notebook", *["gpu free"] * 6]


def test_a_slice_that_gets_another_name_is_given_to_nobody_else_before_it_is_free():
    """The kubelet counts devices by resource: held as one, it would be free as the other."""
    node = FixedNode(mig_parted=THREES, pods=[("team-a/train", THREE)])
    node.config_maps["plugins"] = {"default": "version: v1\nflags: {migStrategy: single}"}
    node.label(PLUGIN_CONFIGS_LABEL="plugins")
    node.run()
    assert node.resources() == {"nvidia.com/gpu": 1}
    for name in ("a", "b"):
        node.bind(f"team-a/{name}", "nvidia.com/gpu")
    node.run()
    assert node.devices("team-a/train") == ["3g.20gb/0"]
    assert (node.devices("team-a/a"), node.devices("team-a/b")) == (["3g.20gb/4"], [])
    node.end("team-a/train")
    node.run()
    assert node.devices("team-a/b") == ["3g.20gb/0"]
    assert node.resources() == {"nvidia.com/gpu": 2}


def test_a_slice_on_which_pods_take_turns_is_nobodys_own_before_the_last_has_ended():
    turns = sharing("timeSlicing", "name: nvidia.com/mig-3g.20gb, replicas: 2", strategy="mixed")
    node = FixedNode(
        mig_parted=THREES, plugin=turns, pods=[("team-a/a", THREE), ("team-a/b", THREE), ("team-a/c", THREE)]
    )
    node.label(PLUGIN_CONFIGS_LABEL=None)
    node.run()
    assert node.resources() == {}
    for name in ("a", "b"):
        node.end(f"team-a/{name}")
    node.run()
    assert node.resources() == {THREE: 1}
    assert node.reported() == ["3g.20gb@0 team-a/c", "3g.20gb@4 free"]


def test_the_layout_comes_back_to_the_planner_with_the_label_taken_away():
    node = FixedNode(mig_parted=SEVEN)
    node.label(MIG_PARTED_LABEL=None, MIG_CONFIG_LABEL=None)
    node.run()
    assert not node.inventory().fixed
    assert node.reported() == [f"1g.5gb@{start} free" for start in range(7)]


# Files -----------------------------------------------------------------------------------------------------------------


def test_while_a_file_cannot_be_understood_what_held_last_goes_on_and_the_node_says_why():
    node = FixedNode(product=T4, count=2, mode="timeslicing", plugin=FOUR_TURNS)
    node.config_maps["plugins"] = {"default": "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu}]}}"}
    node.run()
    assert node.resources() == {"nvidia.com/gpu": 8}
    assert node.condition() == (
        "False",
        "FixedLayoutInvalid",
        "ConfigMap apportion-system/plugins, default: sharing.timeSlicing.resources[0].replicas: missing: a whole number is "
        "needed",
    )


def test_without_its_file_a_node_is_left_as_it_is():
    node = FixedNode({0: [("2g.10gb", 0)]}, labels={names.PLUGIN_CONFIGS_LABEL: "gone"})
    assert node.reported() == ["2g.10gb@0 free"]
    assert node.inventory().fixed
    assert node.condition() == (
        "False",
        "FixedLayoutInvalid",
        "ConfigMap apportion-system/gone: there is none: create it, or take the label from the node",
    )


def test_files_of_a_node_that_is_not_ours_are_not_heeded_and_it_says_so():
    node = FixedNode(mode=None, mig_parted=SEVEN)
    assert node.condition() == (
        "False",
        "NodeUnreadable",
        "label nos.nebuly.com/mig-parted-configs: default-mig-parted-config: has no effect on a node without the label "
        "nos.nebuly.com/gpu-partitioning: set it to one of mig, mps, timeslicing",
    )
    assert node.resources() == {}


def test_a_simulated_machine_remembers_what_it_is_and_not_what_its_files_say():
    """The agent's process holds simulated boards; when it starts anew, the node's report is their memory."""
    cut = recall(FixedNode(mig_parted=SEVEN).read())
    (board,) = cut.boards
    assert (board.fixed, board.mode, len(board.profiles), len(cut.slices[board.uuid])) == (False, None, 7, 7)
    shared = recall(FixedNode(product=T4, mode="timeslicing", plugin=FOUR_TURNS).read())
    (board,) = shared.boards
    assert (board.fixed, board.mode, shared.slices) == (False, None, {board.uuid: ()})


# Neighbours ------------------------------------------------------------------------------------------------------------


def test_another_plugin_on_the_node_is_told_with_the_way_out():
    """A08, and the row "NVIDIA's own device plugin on other nodes"."""
    node = FixedNode(resources={"nvidia.com/gpu": "8"})
    assert node.condition() == (
        "False",
        "AnotherDevicePlugin",
        "another device plugin announces nvidia.com/gpu on this node: keep it off nodes of ours by a required node affinity in "
        "its DaemonSet: nos.nebuly.com/gpu-partitioning NotIn [mig, mps, timeslicing]",
    )


def test_our_own_resources_are_no_other_plugins():
    node = FixedNode(product=T4, mode="timeslicing", plugin=FOUR_TURNS, labels={})
    node.restart()
    node.run()
    assert node.condition() == READY


def test_mig_manager_on_the_node_is_told_with_the_way_out():
    node = FixedNode(labels={names.MIG_CONFIG_LABEL: "all-disabled", names.MIG_STATE_LABEL: "success"})
    assert node.condition() == (
        "False",
        "MigManagerIsPresent",
        "label nvidia.com/mig.config.state: success: NVIDIA's mig-manager cuts boards of this node too: run the GPU operator "
        "with migManager.enabled=false, then take the label from the node",
    )
    assert not node.inventory().fixed


def test_what_the_gpu_operator_writes_by_itself_is_no_wish_for_a_fixed_layout():
    """It stays on the node after mig-manager has gone (docs/adr/0024)."""
    node = FixedNode(labels={names.MIG_CONFIG_LABEL: "all-disabled"})
    assert node.condition() == READY
    assert not node.inventory().fixed


def test_a_wish_for_a_fixed_layout_without_a_file_is_not_passed_over():
    node = FixedNode(labels={names.MIG_CONFIG_LABEL: "all-1g.5gb"})
    assert node.condition() == (
        "False",
        "FixedLayoutInvalid",
        "label nvidia.com/mig.config: all-1g.5gb: asks for a fixed layout, but nothing says which file has it: name its "
        "ConfigMap in apportion-system by the label nos.nebuly.com/mig-parted-configs, or take the label from the node",
    )
