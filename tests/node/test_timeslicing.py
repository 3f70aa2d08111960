"""Time-slicing on a real node: one T4, given four times, as it is where nothing says otherwise."""

import pytest

from tests.node.containers import container_of
from tests.node.gpus import gpu_node


@pytest.fixture(scope="module")
def gpus(cluster, programs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("timeslicing")
    with gpu_node(
        "turns", "Tesla-T4", mode="timeslicing", sandbox=cluster, programs=programs, directory=directory
    ) as gpus:
        yield gpus


def test_four_pods_take_turns_on_a_board_and_a_fifth_waits_for_one_of_them(cluster, gpus, pods):
    first = [f"pod-{number}" for number in range(4)]
    for name in first:
        pods.run(name, gpu_fraction="0.5", gpu_mode="timeslicing")
    given = {container_of(cluster, pods.namespace, name).environment["NVIDIA_VISIBLE_DEVICES"] for name in first}
    assert given == {gpus.machine.uuids[0]}
    pods.add("fifth", gpu_fraction="0.5", gpu_mode="timeslicing")
    pods.wait("fifth", lambda pod: pod is not None and bool(pod.waiting), 30)
    pods.end(first[0])
    pods.wait("fifth", lambda pod: pod is not None and pod.running, 30)
