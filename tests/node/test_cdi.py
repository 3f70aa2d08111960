"""Devices named to containers by CDI, as containerd resolves it. One A100-40; of its profiles, 15 is 1g.10gb."""

import pytest

from tests.node.containers import container_of
from tests.node.gpus import gpu_node

A100 = "NVIDIA-A100-SXM4-40GB"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def gpus(cluster, programs, tmp_path_factory):
    with gpu_node(
        "cdi",
        A100,
        mode="mig",
        sandbox=cluster,
        programs=programs,
        directory=tmp_path_factory.mktemp("cdi"),
        options=["--device-ids=cdi"],
    ) as gpus:
        yield gpus


def test_a_container_that_starts_again_after_a_reboot_is_told_the_uuid_that_there_is_now(cluster, gpus, pods):
    """The kubelet replays what it was told once; a name means what our file says when the container starts."""
    pods.run("named", gpu_fraction="0.25")
    before = container_of(cluster, pods.namespace, "named")
    assert gpus.instances() == {before.environment[VISIBLE]: (0, 15, 6)}
    gpus.lose_power()
    ((uuid, where),) = gpus.instances().items()
    assert uuid != before.environment[VISIBLE]
    assert where == (0, 15, 6)
    before.kill()
    after = container_of(cluster, pods.namespace, "named")
    assert after.restarts == 1
    assert after.environment[VISIBLE] == uuid
