"""What outgrows the annotations of a node is refused, with the figure, before the API server refuses every report of it."""

import pytest

from policies.annotations import PlacedSlice, write_status
from tests.agent.fixed.node import FixedNode, sharing
from tests.builders import T4


def test_more_parts_than_a_node_can_report_are_a_fault_of_the_file():
    plugin = sharing("timeSlicing", "name: nvidia.com/gpu, replicas: 501")
    node = FixedNode(product=T4, mode="timeslicing", count=2, plugin=plugin)
    assert node.condition() == (
        "False",
        "FixedLayoutInvalid",
        "2 GPUs in 1002 parts: a node reports 1000 at most: give fewer replicas",
    )
    assert node.allocatable() == {}


def test_by_the_label_of_the_node_too():
    labels = {"nvidia.com/gpu.replicas": "1000"}
    node = FixedNode(product=T4, mode="timeslicing", count=2, labels=labels)
    assert node.condition()[1] == "FixedLayoutInvalid"


@pytest.mark.parametrize("replicas", ["500", "4"])
def test_as_many_as_can_be_reported_are_shared(replicas):
    node = FixedNode(product=T4, mode="timeslicing", count=2, labels={"nvidia.com/gpu.replicas": replicas})
    assert node.condition() == ("True", "BoardsReady", "")
    assert node.allocatable() == {"nvidia.com/gpu.shared": 2 * int(replicas)}


def test_the_figure_is_within_what_the_api_server_takes():
    """A thousand turns, five hundred of them held by pods with names of 150 characters; the API server takes 262,144 bytes in all."""
    held = [PlacedSlice(profile="gpu.shared", used=True, pod=f"{n:0>50}/{'x' * 100}") for n in range(500)]
    free = [PlacedSlice(profile="gpu.shared", used=False) for _ in range(500)]
    written = write_status({0: (*held, *free)}, "1")
    assert sum(len(key) + len(value) for key, value in written.items()) < 200_000
