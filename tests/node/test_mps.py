"""MPS on a real node, with a stand-in for NVIDIA's control daemon. One A100-40, for which NVML says 40960 MiB."""

import signal
from pathlib import Path

import pytest

from tests.node.containers import container_of
from tests.node.gpus import gpu_node
from tests.node.timeline import way_of
from tests.sandbox.waiting import eventually

A100 = "NVIDIA-A100-SXM4-40GB"


@pytest.fixture(scope="module")
def gpus(cluster, programs, tmp_path_factory):
    with gpu_node(
        "mps",
        A100,
        mode="mps",
        sandbox=cluster,
        programs=programs,
        directory=tmp_path_factory.mktemp("mps"),
    ) as gpus:
        yield gpus


@pytest.fixture
def pipes(gpus):
    """Where the daemon of the board can be reached, on the node and in containers."""
    return f"/run/apportion/mps/{gpus.machine.uuids[0]}/pipe"


def daemon(gpus, pipes):
    """Return the id of the daemon, as the node knows it."""
    return (gpus.node.enclosure.path(pipes) / "nvidia-cuda-mps-control.pid").read_text().strip()


def test_a_fraction_becomes_a_client_with_a_limit_of_a_daemon_that_it_can_reach(cluster, gpus, pods, pipes, tell):
    pods.run("quarter", gpu_fraction="0.25")
    container = container_of(cluster, pods.namespace, "quarter")
    assert container.environment["NVIDIA_VISIBLE_DEVICES"] == gpus.machine.uuids[0]
    assert container.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10240M", "a quarter of 40960 MiB"
    assert container.environment["CUDA_MPS_PIPE_DIRECTORY"] == pipes
    assert {pipes, "/dev/shm"} <= container.mounts
    assert container.path(f"{pipes}/control").is_socket()
    assert container.uid == 1000
    assert container.ipc == str(Path("/proc/self/ns/ipc").readlink()), "that of the node, by hostIPC"
    tell("a pod with gpu-fraction 0.25, on a board in MPS mode:")
    for what, at in way_of(pods, "quarter", gpus, cluster).items():
        tell(f"  {at:6.3f} s  {what}")


def test_a_board_is_shared_anew_around_a_client_that_notices_nothing(cluster, gpus, pods, pipes):
    pods.run("stays", gpu_memory="20GB")
    pods.run("goes", gpu_memory="20GB")
    pods.remove("goes")
    stays, serves = container_of(cluster, pods.namespace, "stays"), daemon(gpus, pipes)
    pods.run("comes", gpu_memory="15GB")
    comes = container_of(cluster, pods.namespace, "comes")
    assert comes.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=15360M"
    assert container_of(cluster, pods.namespace, "stays") == stays
    assert daemon(gpus, pipes) == serves


def test_a_daemon_outlives_the_agent_and_so_do_its_clients(cluster, gpus, pods, pipes):
    pods.run("stays", gpu_fraction="0.25")
    stays, serves = container_of(cluster, pods.namespace, "stays"), daemon(gpus, pipes)
    assert gpus.stop_agent(signal.SIGKILL) == -signal.SIGKILL
    gpus.start_agent()
    pods.run("comes", gpu_fraction="0.5")
    assert container_of(cluster, pods.namespace, "stays") == stays
    assert daemon(gpus, pipes) == serves


def test_a_daemon_that_dies_is_followed_by_another_for_the_next_client(cluster, gpus, pods, pipes):
    """A19."""
    pods.run("before", gpu_fraction="0.25")
    died = daemon(gpus, pipes)
    gpus.node.enclosure.run("/bin/kill", "-KILL", died, environment={})
    eventually(lambda: daemon(gpus, pipes) != died, "another daemon")
    pods.run("after", gpu_fraction="0.5")
    assert container_of(cluster, pods.namespace, "after").path(f"{pipes}/control").is_socket()
