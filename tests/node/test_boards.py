"""Two boards on a real node: the one that the plan names is the one that is cut, and the one that the container sees.

A100-40, of whose profiles 9 is 3g.20gb, by its id. By their UUIDs they are sorted the other way round than NVML numbers them.
"""

import pytest

from policies import names
from tests.node.containers import container_of
from tests.node.gpus import gpu_node
from tests.sandbox.waiting import eventually

A100 = "NVIDIA-A100-SXM4-40GB"


@pytest.fixture
def gpus(request, cluster, programs, tmp_path_factory):
    """A node in the mode that the test names; it is set up before the pods, and gone after them."""
    name = f"two-{request.param}"
    directory = tmp_path_factory.mktemp(name)
    with gpu_node(
        name, A100, A100, mode=request.param, sandbox=cluster, programs=programs, directory=directory
    ) as gpus:
        yield gpus


def visible(cluster, pods, name):
    return container_of(cluster, pods.namespace, name).environment["NVIDIA_VISIBLE_DEVICES"]


def held(gpus, pods):
    """Return (board, profile, start) of the slices that the node says are held, by the pods that hold them, without namespace."""
    return {
        item["pod"].removeprefix(f"{pods.namespace}/"): (int(board), item["profile"], item.get("start"))
        for board, items in gpus.annotation(names.STATUS_PLACEMENTS).items()
        for item in items
        if "pod" in item
    }


def numbered(gpus):
    """Return the UUIDs of the boards as the node numbers them."""
    return [board["uuid"] for board in sorted(gpus.annotation(names.INVENTORY), key=lambda board: board["index"])]


@pytest.mark.parametrize("gpus", ["mig"], indirect=True)
def test_the_board_that_the_plan_names_is_cut_and_is_the_one_that_the_container_sees(cluster, gpus, pods):
    """P20, with its input: three halves on two boards, of which the third one went to the first board in effect."""
    assert sorted(gpus.machine.uuids) == gpus.machine.uuids[::-1]
    ordered = []
    for name in ("first", "second", "third"):
        pods.run(name, gpu_fraction="0.5")
        ordered.append(gpus.annotation(names.SPEC_PLACEMENTS))
    # The fullest board first, the 3g at 4 before that at 0.
    assert ordered == [
        {"0": [{"profile": "3g.20gb", "start": 4}]},
        {"0": [{"profile": "3g.20gb", "start": 0}, {"profile": "3g.20gb", "start": 4}]},
        {"1": [{"profile": "3g.20gb", "start": 4}]},
    ]
    places = {"first": (0, "3g.20gb", 4), "second": (0, "3g.20gb", 0), "third": (1, "3g.20gb", 4)}
    eventually(lambda: held(gpus, pods) == places, "the node tells who holds what")
    assert numbered(gpus) == gpus.machine.uuids
    assert gpus.instances() == {
        visible(cluster, pods, "first"): (0, 9, 4),
        visible(cluster, pods, "second"): (0, 9, 0),
        visible(cluster, pods, "third"): (1, 9, 4),
    }


@pytest.mark.parametrize("gpus", ["mps"], indirect=True)
def test_boards_that_nvml_numbers_anew_after_a_reboot_stay_whose_they_are(cluster, gpus, pods):
    """P20: what was planned and given by one index is the same board by another, and new plans mean the new ones."""
    one, other = gpus.machine.uuids
    pods.run("first", gpu_memory="30GB")
    pods.run("second", gpu_memory="20GB")
    assert (visible(cluster, pods, "first"), visible(cluster, pods, "second")) == (one, other)
    eventually(
        lambda: held(gpus, pods) == {"first": (0, "30gb", None), "second": (1, "20gb", None)}, "both are told of"
    )
    gpus.lose_power(renumbered=True)
    eventually(lambda: held(gpus, pods) == {"first": (1, "30gb", None), "second": (0, "20gb", None)}, "so are they now")
    assert numbered(gpus) == [other, one]
    pods.run("third", gpu_memory="20GB")  # for which there is room beside the second only
    assert visible(cluster, pods, "third") == other
    pods.run("fourth", gpu_memory="10GB")  # and for this one beside the first
    assert visible(cluster, pods, "fourth") == one
    assert gpus.annotation(names.SPEC_PLACEMENTS) == {"1": [{"profile": "10gb"}, {"profile": "30gb"}]}
