"""What a simulated node remembers when its agent starts: what it reported last."""

import msgspec
import pytest

from policies import names
from reconciler.agent.node import read_node
from reconciler.agent.simulated.memory import recall
from tests.agent.world import World
from tests.builders import A30, H100, T4, raw_node

ONE, TEN_GB = "nvidia.com/mig-1g.5gb", "nvidia.com/gpu-10gb"


def node(**fields):
    return read_node(msgspec.json.encode(raw_node(**fields)))


@pytest.mark.parametrize(
    ("product", "mode", "mig", "switch"),
    [
        pytest.param("NVIDIA-A100-SXM4-40GB", "mig", True, "admin", id="a100-needs-a-reset"),
        pytest.param(A30, "mps", False, "admin", id="a30-in-mps"),
        pytest.param(H100, "mig", True, "live", id="hopper-switches-live"),
        pytest.param(T4, "mps", False, "live", id="no-mig"),
    ],
)
def test_a_fresh_node_has_the_boards_of_its_labels(product, mode, mig, switch):
    boards = recall(node(product=product, mode=mode, count=2, memory=24000)).boards
    assert [(b.index, b.model, b.memory_mib, b.mig, b.switch) for b in boards] == [
        (index, product, 24000, mig, switch) for index in (0, 1)
    ]
    assert len({board.uuid for board in boards}) == 2


def test_boards_have_the_same_uuids_whenever_the_node_is_seen_and_others_on_another_node():
    """P07: state is kept per UUID."""
    uuids = [[board.uuid for board in recall(node(name=name)).boards] for name in ("n1", "n1", "n2")]
    assert uuids[0] == uuids[1] != uuids[2]


@pytest.mark.parametrize("mode", ["mig", "mps"])
def test_slices_use_and_withdrawal_are_as_reported(mode):
    slices = {"mig": [("1g.5gb", 4), ("1g.5gb", 5), ("1g.5gb", 6)], "mps": ["10gb", "10gb", "10gb"]}[mode]
    resource = {"mig": ONE, "mps": TEN_GB}[mode]
    world = World({0: slices}, mode=mode, pods=[("team-a/train", resource)])
    world.order({0: [item.placement for item in world.driver.slices(world.uuids[0])][:2]})
    world.run()
    memory = recall(world.read())
    uuid = world.uuids[0]
    assert set(memory.slices[uuid]) == set(world.driver.slices(uuid))
    assert len(memory.announced[resource]) == 2
    assert memory.allocated == world._kubelet.allocated()
    assert set(memory.allocated) <= set(memory.announced[resource])
    assert memory.fault == ""


def test_a_fault_of_a_board_is_over_with_the_agent():
    world = World(product=T4, mode="mps")
    world.driver.fail(world.uuids[0], "GPU is lost")
    world.run()
    assert world.inventory().fault == "GPU is lost"
    assert recall(world.read()).boards[0].fault is None


def test_what_a_board_cannot_have_is_left_out():
    placements = {
        "0": [
            {"profile": "4g.20gb", "start": 0, "used": False},
            {"profile": "3g.20gb", "start": 0, "used": False},
            {"profile": "10gb", "used": False},
            {"profile": "7g.79gb", "start": 0, "used": False},
        ],
        "7": [{"profile": "1g.5gb", "start": 0, "used": False}],
    }
    memory = recall(node(placements=placements))
    assert [[str(item) for item in items] for items in memory.slices.values()] == [["4g.20gb at 0"]]


def test_a_board_that_no_table_knows_is_named():
    memory = recall(node(product="NVIDIA-Z900-96GB"))
    assert memory.boards == ()
    assert memory.fault.startswith(f"label {names.PRODUCT_LABEL}: 'NVIDIA-Z900-96GB' is in no table")
