"""What the boards of a node are to be by their files."""

import pytest

from policies.annotations import BoardInventory
from policies.catalogue import by_product
from reconciler.agent.fixed.layout import Fixture, Share, fixed_layout
from reconciler.agent.fixed.migparted import read_mig_config
from reconciler.agent.fixed.pluginconfig import read_plugin_config
from tests.agent.fixed.node import mig_parted, sharing
from tests.builders import A30, A100, T4

SEVEN = 'devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 7}'
ONE, THREE = ("1g.5gb",) * 7, ("3g.20gb",) * 2


def board(index, product=A100):
    model = by_product(product)
    return BoardInventory(
        index=index, uuid=f"GPU-{index}", model=product, memory_mib=model.memory_mib, profiles=model.profiles
    )


def layout(*boards, mode="mig", plugin=None, parted=None):
    """Return what boards are to be and the faults; (mode, profiles, shares) of each."""
    faults = []
    found = fixed_layout(
        boards,
        mode,
        read_plugin_config(plugin) if plugin else None,
        read_mig_config(parted, "chosen") if parted else None,
        faults,
    )
    return found, faults


def test_mig_parted_divides_the_boards_that_it_means_and_leaves_the_others_to_the_planner():
    """P07: a configuration for GPU 1 alone, nothing said of GPU 0."""
    parted = mig_parted('devices: [1], mig-enabled: true, mig-devices: {"1g.6gb": 4}')
    assert layout(board(0, A30), board(1, A30), parted=parted) == (
        {1: Fixture(mode="mig", profiles=("1g.6gb",) * 4)},
        [],
    )


def test_where_mig_is_off_the_board_is_given_as_a_whole():
    parted = mig_parted("devices: all, mig-enabled: false")
    assert layout(board(0), parted=parted) == ({0: Fixture(mode="timeslicing")}, [])


def test_strategy_single_calls_equal_slices_gpus():
    plugin = "version: v1\nflags: {migStrategy: single}"
    assert layout(board(0), plugin=plugin, parted=mig_parted(SEVEN)) == (
        {0: Fixture(mode="mig", profiles=ONE, shares={"1g.5gb": Share("nvidia.com/gpu")})},
        [],
    )


@pytest.mark.parametrize(
    ("strategy", "entries", "why"),
    [
        pytest.param(
            "single", ['devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 1, "3g.20gb": 1}'],
            "flags.migStrategy: single: all GPUs must be divided into equal slices by nvidia.com/mig.config, but there are "
            "1g.5gb, 3g.20gb: write mixed", id="unequal",
        ),
        pytest.param(
            "single", ['devices: [0], mig-enabled: true, mig-devices: {"1g.5gb": 7}'],
            "flags.migStrategy: single: all GPUs must be divided into equal slices by nvidia.com/mig.config, but GPU 1 has none: "
            "write mixed", id="one-board-only",
        ),
        pytest.param(
            "none", [SEVEN], "flags.migStrategy: none: would announce no MIG devices: write mixed or single", id="none",
        ),
        pytest.param(
            "mixed", ['devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 3, "4g.40gb": 1}'],
            "mig-configs[chosen][0].mig-devices: GPU 0 (NVIDIA-A100-SXM4-40GB): no profile 4g.40gb: there are 1g.5gb, 1g.5gb+me, "
            "1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb", id="unknown-profile",
        ),
        pytest.param(
            "mixed", ['devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 8}'],
            "mig-configs[chosen][0].mig-devices: GPU 0 (NVIDIA-A100-SXM4-40GB): these slices do not fit together", id="too-many",
        ),
    ],
)  # fmt: skip
def test_what_the_boards_cannot_be_is_told(strategy, entries, why):
    plugin = f"version: v1\nflags: {{migStrategy: {strategy}}}"
    _, faults = layout(board(0), board(1), plugin=plugin, parted=mig_parted(*entries))
    assert faults[0] == why


def test_a_board_of_two_entries_is_told():
    _, faults = layout(board(0), parted=mig_parted(SEVEN, "devices: [0], mig-enabled: false"))
    assert faults == ["mig-configs[chosen][1].devices: GPU 0 is named by an entry before it"]


def test_turns_on_gpus_are_taken_on_all_boards_but_those_that_mig_divides():
    plugin = sharing("timeSlicing", "name: nvidia.com/gpu, replicas: 4", strategy="mixed")
    parted = mig_parted('devices: [0], mig-enabled: true, mig-devices: {"3g.20gb": 2}')
    assert layout(board(0), board(1), plugin=plugin, parted=parted) == (
        {
            0: Fixture(mode="mig", profiles=THREE),
            1: Fixture(mode="timeslicing", shares={"gpu": Share("nvidia.com/gpu", 4)}),
        },
        [],
    )


def test_turns_are_taken_on_mig_devices_by_their_resource():
    plugin = sharing(
        "timeSlicing", "name: nvidia.com/mig-3g.20gb, replicas: 2", strategy="mixed", renameByDefault="true"
    )
    parted = mig_parted('devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 1, "1g.5gb": 4}')
    found, faults = layout(board(0), plugin=plugin, parted=parted)
    assert faults == []
    assert found[0].shares == {"3g.20gb": Share("nvidia.com/mig-3g.20gb.shared", 2)}


def test_turns_are_taken_on_what_single_calls_gpus():
    plugin = sharing("timeSlicing", "name: nvidia.com/gpu, replicas: 2", strategy="single")
    found, faults = layout(board(0), plugin=plugin, parted=mig_parted(SEVEN))
    assert faults == []
    assert found[0].shares == {"1g.5gb": Share("nvidia.com/gpu", 2)}


def test_memory_is_given_in_the_sizes_of_several_entries():
    """The row "MPS by nebuly's device-plugin fork", and a second size beside it."""
    plugin = sharing(
        "mps",
        "name: nvidia.com/gpu, rename: nvidia.com/gpu-4gb, memoryGB: 4, replicas: 2, devices: ['0']",
        "name: nvidia.com/gpu, rename: nvidia.com/gpu-8gb, memoryGB: 8, replicas: 1, devices: ['0']",
    )
    assert layout(board(0, T4), board(1, T4), mode="mps", plugin=plugin) == (
        {
            0: Fixture(
                mode="mps",
                profiles=("4gb", "4gb", "8gb"),
                shares={
                    "4gb": Share("nvidia.com/gpu-4gb", alone=True),
                    "8gb": Share("nvidia.com/gpu-8gb", alone=True),
                },
            )
        },
        [],
    )


def test_without_a_size_each_gets_an_equal_part_of_the_memory():
    """As NVIDIA's own plugin has it; whole GB, since bins are: 16 / 3 is 5."""
    found, faults = layout(board(0, T4), mode="mps", plugin=sharing("mps", "name: nvidia.com/gpu, replicas: 3"))
    assert faults == []
    assert found[0] == Fixture(mode="mps", profiles=("5gb",) * 3, shares={"5gb": Share("nvidia.com/gpu", alone=True)})


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        pytest.param(
            sharing("mps", "name: gpu, memoryGB: 9, replicas: 2"),
            "sharing.mps.resources[0]: GPU 0 (Tesla-T4): 9gb beside 9 GB: Tesla-T4 has 16 GB", id="too-much-memory",
        ),
        pytest.param(
            sharing("mps", "name: gpu, replicas: 17"),
            "sharing.mps.resources[0].replicas: 17: GPU 0 (Tesla-T4) has 16 GB, one for each at least: write at most 16",
            id="less-than-a-gb",
        ),
        pytest.param(
            sharing("mps", "name: gpu, memoryGB: 4, replicas: 1", "name: gpu, rename: gold, memoryGB: 4, replicas: 1"),
            "sharing.mps.resources[1]: GPU 0 (Tesla-T4): 4 GB are announced as nvidia.com/gpu already", id="two-names-of-a-size",
        ),
        pytest.param(
            sharing("timeSlicing", "name: gpu, replicas: 2", "name: gpu, replicas: 3, devices: [0]"),
            "sharing.timeSlicing.resources[1].devices: GPU 0 is shared by an entry before it", id="shared-twice",
        ),
        pytest.param(
            sharing("timeSlicing", "name: gpu, replicas: 2, devices: 2"),
            "sharing.timeSlicing.resources[0].devices: 2: the node has 1 GPU", id="more-than-there-are",
        ),
        pytest.param(
            sharing("timeSlicing", "name: gpu, replicas: 2, devices: [0, GPU-9]"),
            "sharing.timeSlicing.resources[0].devices[1]: GPU-9: no such GPU: the node has 0 (GPU-0)", id="not-there",
        ),
        pytest.param(
            sharing("timeSlicing", "name: nvidia.com/mig-1g.5gb, replicas: 2"),
            "sharing.timeSlicing.resources[0].name: nvidia.com/mig-1g.5gb: no slice of the node is called so: "
            "nvidia.com/mig.config divides no GPU", id="no-mig-devices",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_told(plugin, why):
    _, faults = layout(board(0, T4), mode="mps", plugin=plugin)
    assert faults == [why]


def test_on_a_time_sliced_node_the_boards_that_no_entry_means_are_given_as_a_whole():
    plugin = sharing("timeSlicing", "name: gpu, replicas: 4, devices: [1]")
    assert layout(board(0, T4), board(1, T4), mode="timeslicing", plugin=plugin) == (
        {
            0: Fixture(mode="timeslicing"),
            1: Fixture(mode="timeslicing", shares={"gpu": Share("nvidia.com/gpu", 4)}),
        },
        [],
    )
