"""MIG on a real node: kubelet, containerd and runc, with our agent, webhook and reconciler as in production.

One A100-40. Of its profiles, by their ids: 9 is 3g.20gb, 5 is 4g.20gb, 14 is 2g.10gb, 15 is 1g.10gb, 19 is 1g.5gb.
"""

import itertools
import signal
import statistics
import time

import pytest

from policies import names
from tests.node.containers import container_of
from tests.node.gpus import gpu_node
from tests.node.timeline import recuts, way_of

A100 = "NVIDIA-A100-SXM4-40GB"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
RECUTS = 6
CHURNED = 50


@pytest.fixture(scope="module")
def gpus(cluster, programs, tmp_path_factory):
    with gpu_node(
        "mig",
        A100,
        mode="mig",
        sandbox=cluster,
        programs=programs,
        directory=tmp_path_factory.mktemp("mig"),
    ) as gpus:
        yield gpus


@pytest.fixture
def stays(cluster, gpus, pods):
    """A pod with a 3g.20gb, whose container must be the same at the end of the test, on the same instance."""
    # What earlier tests have left is replaced by one free slice of the whole board, so that layouts can be foretold.
    pods.run("first", limits={"nvidia.com/mig-7g.40gb": "1"})
    pods.remove("first")
    pods.run("stays", gpu_fraction="3/7")
    container = container_of(cluster, pods.namespace, "stays")
    instance = container.environment[VISIBLE]
    place = gpus.instances()[instance]
    yield container
    assert container_of(cluster, pods.namespace, "stays") == container, "id, restarts and process"
    assert gpus.instances()[instance] == place


def uuid_in(cluster, pods, name):
    return container_of(cluster, pods.namespace, name).environment[VISIBLE]


def test_the_daemon_sets_pod_sees_the_kubelets_sockets(cluster, gpus):
    container = container_of(cluster, names.SYSTEM_NAMESPACE, gpus.pod)
    for socket in ("device-plugins/kubelet.sock", "pod-resources/kubelet.sock"):
        assert container.path(f"/var/lib/kubelet/{socket}").is_socket()


def test_a_fraction_becomes_an_instance_that_the_container_sees(cluster, gpus, pods, tell):
    pods.run("quarter", gpu_fraction="0.25")
    assert gpus.instances() == {uuid_in(cluster, pods, "quarter"): (0, 15, 6)}
    tell("a pod with gpu-fraction 0.25, on an empty board:")
    for what, at in way_of(pods, "quarter", gpus, cluster).items():
        tell(f"  {at:6.3f} s  {what}")


def test_a_board_is_cut_anew_around_a_container_that_notices_nothing(cluster, gpus, pods, stays, tell):
    pods.run("goes", limits={"nvidia.com/mig-4g.20gb": "1"})
    assert gpus.instances()[uuid_in(cluster, pods, "goes")] == (0, 5, 0)
    pods.remove("goes")
    pods.run("comes", gpu_fraction="0.25")
    assert gpus.instances() == {
        stays.environment[VISIBLE]: (0, 9, 4),
        uuid_in(cluster, pods, "comes"): (0, 15, 0),
    }
    tell("a pod with gpu-fraction 0.25, where a free 4g.20gb is in the way and a 3g.20gb in use:")
    for what, at in way_of(pods, "comes", gpus, cluster).items():
        tell(f"  {at:6.3f} s  {what}")


def test_from_creation_to_a_running_container_with_a_recut_takes_less_than_a_second(cluster, gpus, pods, stays, tell):
    took = recuts(pods, gpus, cluster, RECUTS + 1)
    median = statistics.median(took[1:])
    tell(f"{RECUTS} pods one after another, each with a recut: median {median:.3f} s, longest {max(took[1:]):.3f} s")
    assert median <= 1.0
    assert gpus.agent_mib() <= 90
    tell(f"the agent occupies {gpus.agent_mib()} MiB")


def test_a_kubelet_that_restarts_disturbs_nobody_and_is_served_again(cluster, gpus, pods, stays):
    gpus.node.restart_kubelet()
    pods.run("after", gpu_fraction="0.25")
    assert gpus.instances()[uuid_in(cluster, pods, "after")] == (0, 15, 0)


def test_an_agent_that_restarts_disturbs_nobody_and_goes_on(cluster, gpus, pods, stays):
    assert gpus.stop_agent(signal.SIGTERM) == 0
    pods.add("waits", gpu_fraction="0.25")
    gpus.start_agent()
    pods.wait("waits", lambda pod: pod is not None and pod.running, 30)
    assert gpus.instances()[uuid_in(cluster, pods, "waits")] == (0, 15, 0)


@pytest.mark.parametrize(
    "call",
    [
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
    ],
)
def test_an_agent_killed_in_the_midst_of_a_cut_goes_on_where_it_was(cluster, gpus, pods, stays, call):
    """A03: after each of the four calls by which a slice gives way to another. The mock ends it there, without a word."""
    pods.run("goes", limits={"nvidia.com/mig-4g.20gb": "1"})
    pods.remove("goes")
    gpus.machine.die(call)
    pods.add("comes", gpu_fraction="0.25")
    assert gpus.agent.ends_within(30)
    gpus.machine.mend()
    gpus.start_agent()
    pods.wait("comes", lambda pod: pod is not None and pod.running, 30)
    assert gpus.instances() == {
        stays.environment[VISIBLE]: (0, 9, 4),
        uuid_in(cluster, pods, "comes"): (0, 15, 0),
    }
    assert gpus.gpu_instances() == 2, "none without a compute instance is left"


def test_fifty_pods_come_and_go_beside_one_that_stays(cluster, gpus, pods, stays, tell):
    """Of several sizes, in any order, some at a time; each gets an instance that there is, and none is turned away."""
    profiles = itertools.cycle(("1g.5gb", "2g.10gb", "1g.5gb", "1g.10gb", "4g.20gb"))
    for number, profile in zip(range(CHURNED), profiles, strict=False):
        pods.add(f"pod-{number}", limits={f"nvidia.com/mig-{profile}": "1"})
    ran: set[str] = set()

    def waiting(found):
        return [pod for pod in found if pod.name.startswith("pod-") and pod.name not in ran]

    while waiting(pods.all()):
        pods.wait_for("another one runs", lambda found: any(pod.running or pod.finished for pod in waiting(found)), 60)
        for pod in waiting(pods.all()):
            assert not pod.finished, f"{pod.name} was turned away: {pods.status(pod.name)}"
            if pod.running:
                ran.add(pod.name)
                pods.end(pod.name)
    assert len(ran) == CHURNED
    took = time.time() - pods.seen["pod-0"]["created"]
    tell(
        f"{CHURNED} pods at once, each for a slice and ended as soon as it runs: {took:.0f} s; the agent occupies {gpus.agent_mib()} MiB"
    )
    assert gpus.agent_mib() <= 90


def test_a_pod_that_was_told_a_uuid_that_is_no_more_has_to_go(cluster, gpus, pods):
    """A reboot gives instances other UUIDs, and the kubelet tells a container its old ones again."""
    pods.run("told", gpu_fraction="0.25")
    before = uuid_in(cluster, pods, "told")
    gpus.lose_power()
    pods.wait("told", lambda pod: pod is None, 30)
    assert before not in gpus.instances()
    assert "told" in cluster.kubectl("get", "events", "-n", pods.namespace, "-o", "jsonpath={.items[*].message}")
