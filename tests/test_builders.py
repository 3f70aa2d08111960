"""Builders are code that every test trusts, so they are tested."""

from policies.view import view_node, view_pod
from tests.builders import A30, make_node, make_pod


def test_a_built_pod_asks_for_what_was_said():
    pod = view_pod(make_pod("ml/train", limits={"nvidia.com/mig-1g.5gb": "1", "cpu": "2"}))
    assert pod.key == "ml/train"
    assert pod.request == {"nvidia.com/mig-1g.5gb": 1000, "cpu": 2000}


def test_a_built_node_has_the_boards_that_were_said():
    node = view_node(make_node("gpu-1", A30, count=2, resources={"nvidia.com/mig-1g.6gb": "1"}))
    assert [board.model.name for board in node.boards] == ["NVIDIA-A30", "NVIDIA-A30"]
    assert node.allocatable["nvidia.com/mig-1g.6gb"] == 1000
    assert node.ready
    assert node.managed
