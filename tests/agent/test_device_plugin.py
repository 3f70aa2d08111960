"""The agent's side of the kubelet's two services, against a server that speaks both."""

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from policies.catalogue import by_product
from policies.view import view_pod
from reconciler.agent.deviceplugin.endpoint import socket_name
from reconciler.agent.deviceplugin.kubelet import GrpcKubelet
from reconciler.agent.deviceplugin.plugin import DevicePlugin
from reconciler.agent.driver import InvalidArgument, Slice, device_id
from reconciler.agent.grants import Grants
from reconciler.agent.kubelet import KubeletBehind, KubeletError
from reconciler.agent.proto import deviceplugin_pb2 as pb
from reconciler.agent.proto.deviceplugin_pb2_grpc import RegistrationStub
from tests.agent.kubelet import KubeletServer, Rejected
from tests.apiserver.server import PATIENCE_S
from tests.builders import A100, make_pod

ONE, TWO, THREE, TEN_GB = (
    "nvidia.com/mig-1g.5gb",
    "nvidia.com/mig-2g.10gb",
    "nvidia.com/mig-3g.20gb",
    "nvidia.com/gpu-10gb",
)
A0, A1, B0 = "GPU-a/1g.5gb/0", "GPU-a/1g.5gb/1", "GPU-b/1g.5gb/0"


class Driver:
    """Names every MIG device but those that are gone; a test may look in while it does."""

    def __init__(self):
        self.gone, self.meanwhile = set(), lambda: None

    def device_uuid(self, board, item):
        self.meanwhile()
        if device_id(board, item) in self.gone:
            raise InvalidArgument(f"there is no {item}")
        return board if item.start is None else f"MIG-{board[-1]}{item.start}"


class Node:
    """A kubelet and our plugins at it."""

    def __init__(self, server):
        self.server, self.driver, self.pods = server, Driver(), []
        self.kubelet = GrpcKubelet(server.directory, Grants(self.driver), lambda: self.pods, look_s=0.02)
        self.changed = threading.Semaphore(0)
        self.kubelet.start(self.changed.release)

    def announce(self, **resources):
        """Announce and wait until the kubelet has taken it over: `announce(ONE=[A0])`, or with health `ONE={A0: False}`."""
        devices = {
            globals()[name]: dict(found) if isinstance(found, dict) else dict.fromkeys(found, True)
            for name, found in resources.items()
        }
        self.kubelet.announce(devices)
        self.server.wait(lambda server: {name: server.devices.get(name) for name in devices} == devices)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let a kubelet that a busy machine keeps from its work be slow, and not away."""
    for module in ("endpoint", "podresources"):
        monkeypatch.setattr(f"reconciler.agent.deviceplugin.{module}.ANSWER_S", PATIENCE_S)


@pytest.fixture
def server():
    with KubeletServer() as server:
        yield server


@pytest.fixture
def node(server):
    node = Node(server)
    yield node
    node.kubelet.close()
    assert not node.kubelet.alive()


def pod(key, **fields):
    return view_pod(make_pod(key, limits={ONE: 1}, node="n1", **fields))


def variables(answer):
    return dict(answer.envs)


# Announcing -------------------------------------------------------------------------------------------------------------


def test_devices_are_offered_and_a_container_gets_the_mig_device(node, server):
    node.announce(ONE=[A0, A1])
    assert node.kubelet.allocatable() == {A0, A1}
    assert variables(server.admit("team-a/train", ONE)) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a0"}
    assert node.kubelet.allocated() == {A0: "team-a/train"}
    server.end("team-a/train")
    assert node.kubelet.allocated() == {}


def test_each_resource_has_one_plugin_which_stays_when_its_devices_go(node, server):
    """A07: a resource that has none any more says so, instead of keeping the number it had."""
    node.announce(ONE=[A0], TWO=["GPU-a/2g.10gb/2"])
    node.kubelet.announce({TWO: {}})
    server.wait(lambda server: not server.healthy())
    assert server.counts() == {ONE: (0, 0), TWO: (0, 0)}
    node.announce(ONE=[A1])
    assert sorted(server.registered) == [
        (ONE, "apportion-nvidia.com_mig-1g.5gb.sock"),
        (TWO, "apportion-nvidia.com_mig-2g.10gb.sock"),
    ], "once each"


def test_a_resource_without_devices_is_registered_all_the_same(node, server):
    """A07: what an agent before this one, or another plugin, has left in the node's status is driven to zero."""
    node.announce(TWO=[])
    assert server.counts() == {TWO: (0, 0)}


def test_unhealthy_devices_stay_but_are_not_offered(node, server):
    node.announce(ONE={A0: True, B0: True})
    server.admit("team-a/train", ONE)
    node.announce(ONE={A0: False, B0: True})
    assert server.counts() == {ONE: (2, 1)}
    assert node.kubelet.allocatable() == {B0}
    assert node.kubelet.allocated() == {A0: "team-a/train"}, "its pod keeps it"
    node.announce(ONE={A0: True, B0: True})
    assert node.kubelet.allocatable() == {A0, B0}


def test_two_hundred_devices(node, server):
    many = [
        f"GPU-0000000{board}-0000-0000-0000-000000000000/1g.5gb/{start}" for board in range(8) for start in range(25)
    ]
    node.announce(ONE=many)
    assert node.kubelet.allocatable() == set(many)
    with ThreadPoolExecutor(8) as pool:
        pods = [f"ns/p{n}" for n in range(200)]
        granted = [
            variables(answer)["NVIDIA_VISIBLE_DEVICES"]
            for answer in pool.map(lambda found: server.allocate(ONE, found), many)
        ]
    server.holders = {device: (pod, ONE) for device, pod in zip(many, pods, strict=True)}
    assert len(granted) == 200
    assert node.kubelet.allocated() == dict(zip(many, pods, strict=True))


# Allocating -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "why"),
    [
        pytest.param("GPU-a/1g.5gb/6", "GPU-a/1g.5gb/6 is not, or no longer, announced as nvidia.com/mig-1g.5gb", id="unknown"),
        pytest.param(A1, "GPU-a/1g.5gb/1 is not, or no longer, announced as nvidia.com/mig-1g.5gb", id="withdrawn"),
        pytest.param(B0, "GPU-b/1g.5gb/0 cannot serve now: its board has failed", id="unhealthy"),
        pytest.param("GPU-a/1g.5gb/5", "there is no 1g.5gb at 5", id="vanished-behind-our-back"),
        pytest.param("MIG-4711", "MIG-4711 is not, or no longer, announced as nvidia.com/mig-1g.5gb", id="of-another-plugin"),
    ],
)  # fmt: skip
def test_what_is_not_to_be_had_is_an_error_that_says_so(node, server, device, why):
    node.announce(ONE=[A0, A1, B0])
    node.announce(ONE={A0: True, B0: False, "GPU-a/1g.5gb/5": True})
    node.driver.gone.add("GPU-a/1g.5gb/5")
    with pytest.raises(Rejected) as caught:
        server.allocate(ONE, A0, device)
    assert str(caught.value) == f"FAILED_PRECONDITION: {why}"
    assert variables(server.allocate(ONE, A0)) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a0"}


def test_two_pods_that_are_allocated_at_once_get_their_own_devices(node, server):
    """A17: each is answered from the ids that the kubelet sends, while the other is being answered."""
    node.announce(ONE=[A0, A1, B0])
    both = threading.Barrier(2, timeout=PATIENCE_S)
    met = threading.local()

    def meet():
        if not getattr(met, "once", False):
            met.once = True
            both.wait()

    node.driver.meanwhile = meet
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.submit(server.allocate, ONE, A0), pool.submit(server.allocate, ONE, A1, B0)
        assert variables(one.result()) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a0"}
        assert variables(two.result()) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a1,MIG-b0"}


def test_an_allocation_is_answered_while_another_waits_for_the_driver(node, server):
    node.announce(ONE=[A0])
    node.announce(ONE=[A0], TEN_GB=["GPU-b/10gb/0"])
    asked, answer = threading.Event(), threading.Event()

    def wait_once():
        if not asked.is_set():
            asked.set()
            assert answer.wait(PATIENCE_S)

    node.driver.meanwhile = wait_once
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.allocate, ONE, A0)
        assert asked.wait(PATIENCE_S)
        assert variables(server.allocate(ONE, A0)) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a0"}
        assert variables(server.allocate(TEN_GB, "GPU-b/10gb/0")) == {"NVIDIA_VISIBLE_DEVICES": "GPU-b"}
        node.announce(ONE=[A0, A1], TEN_GB=[])
        answer.set()
        slow.result()


def test_a_pod_is_spread_over_boards_and_pods_are_packed(node, server):
    node.announce(ONE=[A0, A1, "GPU-a/1g.5gb/2", B0, "GPU-b/1g.5gb/1"])
    assert variables(server.admit("ns/wide", ONE, 2)) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a0,MIG-b0"}
    server.holders |= {"GPU-b/3g.20gb/4": ("ns/a", THREE)}
    node.kubelet.allocated()
    assert variables(server.admit("ns/b", ONE)) == {"NVIDIA_VISIBLE_DEVICES": "MIG-b1"}, "b has more in use than a"


def test_devices_that_a_container_must_get_count_among_its_own(node, server):
    node.announce(ONE=[A0, A1, B0])
    assert server._endpoints[ONE].prefer([A0, A1, B0], 2, must=[A1]) == [A1, B0]


# The kubelet comes and goes ---------------------------------------------------------------------------------------------


def test_after_a_restart_of_the_kubelet_all_is_offered_again(node, server):
    node.announce(ONE=[A0, A1], TWO=[])
    server.admit("team-a/train", ONE)
    server.restart()
    server.wait(lambda server: server.healthy() == {A0, A1})
    assert node.kubelet.allocatable() == {A0, A1}
    assert node.kubelet.allocated() == {A0: "team-a/train"}
    assert variables(server.admit("team-a/late", ONE)) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a1"}


def test_what_changes_while_the_kubelet_is_away_is_told_when_it_is_back(node, server):
    node.announce(ONE=[A0])
    server.stop()
    with pytest.raises(KubeletError, match=r"the kubelet does not answer on .*/pod-resources/kubelet\.sock"):
        node.kubelet.allocatable()
    with contextlib.suppress(KubeletError):  # we may have noticed by now
        node.kubelet.announce({ONE: {A1: True}})
    server.start()
    server.wait(lambda server: server.healthy() == {A1})


def leave(path):
    """Let a socket be there that nobody serves."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def replace(path):
    """Do the same in place of a socket that is served: in one step, or another could be served there in between."""
    other = path.with_name("left.sock")
    leave(other)
    other.replace(path)


def test_a_kubelet_that_has_not_heard_of_its_pods_yet_is_not_believed(node, server):
    """After its start it answers at once, before it has them from the API server: as if nothing were held."""
    node.pods += [pod("team-a/train", phase="Running"), pod("team-a/coming", phase="Pending")]
    node.announce(ONE=[A0, A1])
    server.admit("team-a/train", ONE)
    assert node.kubelet.allocated() == {A0: "team-a/train"}
    server.knows_pods = False
    with pytest.raises(KubeletBehind) as caught:
        node.kubelet.allocated()
    assert str(caught.value) == "the kubelet does not know of pods that run on this node: team-a/train"
    node.pods.pop(0)
    assert node.kubelet.allocated() == {}
    server.knows_pods = True
    assert node.kubelet.allocated() == {A0: "team-a/train"}


@pytest.mark.parametrize("remove", [Path.unlink, replace], ids=["removed", "replaced"])
def test_a_socket_that_is_not_ours_any_more_is_made_again(node, server, remove):
    node.announce(ONE=[A0])
    remove(server.plugins / "apportion-nvidia.com_mig-1g.5gb.sock")
    server.wait(lambda server: len(server.registered) == 2 and server.healthy() == {A0})
    assert node.changed.acquire(timeout=PATIENCE_S), "a pass is due: the kubelet may have told the node something else"
    assert variables(server.admit("team-a/train", ONE)) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a0"}


def test_a_kubelet_that_hangs_up_is_registered_with_again(node, server):
    node.announce(ONE=[A0])
    server._endpoints[ONE].hang_up()
    server.wait(lambda server: len(server.registered) == 2 and server.healthy() == {A0})


def test_a_socket_left_by_an_agent_that_was_killed_is_replaced(server):
    leave(server.plugins / "apportion-nvidia.com_mig-1g.5gb.sock")
    node = Node(server)
    node.announce(ONE=[A0])
    node.kubelet.close()


def test_devices_are_no_longer_offered_when_the_agent_has_ended(server):
    node = Node(server)
    node.announce(ONE=[A0])
    node.kubelet.close()
    server.wait(lambda server: server.counts() == {ONE: (1, 0)})
    assert [path.name for path in server.plugins.iterdir()] == ["kubelet.sock"]


def test_a_kubelet_that_starts_after_the_agent_is_waited_for():
    server = KubeletServer()
    node = Node(server)
    with pytest.raises(KubeletError) as caught:
        node.kubelet.announce({ONE: {A0: True}})
    assert str(caught.value) == (
        f"there is no {server.directory}/device-plugins/kubelet.sock: does a kubelet run, and does the agent see this directory?"
    )
    server.start()
    server.wait(lambda server: server.healthy() == {A0})
    node.kubelet.close()
    server.close()


def test_a_resource_that_the_kubelet_refuses_is_named_and_asked_for_again_and_the_others_go_on(node, server):
    server.refuses = {ONE: (grpc.StatusCode.UNKNOWN, "invalid resource name")}
    why = f"the kubelet does not register {ONE}: UNKNOWN: invalid resource name"
    assert node.kubelet.announce({ONE: {A0: True}, TWO: {"GPU-a/2g.10gb/2": True}}) == {ONE: why}
    server.wait(lambda server: server.healthy() == {"GPU-a/2g.10gb/2"})
    server.refuses = {}
    server.wait(lambda server: server.healthy() == {A0, "GPU-a/2g.10gb/2"})
    assert node.kubelet.announce({ONE: {A0: True}, TWO: {"GPU-a/2g.10gb/2": True}}) == {}


def test_a_refused_resource_that_is_announced_no_more_is_asked_for_no_more(node, server):
    server.refuses = {ONE: (grpc.StatusCode.UNKNOWN, "invalid resource name")}
    assert [*node.kubelet.announce({ONE: {A0: True}})] == [ONE]
    assert node.kubelet.announce({TWO: {}}) == {}
    assert [path.name for path in server.plugins.iterdir() if "mig-1g" in path.name] == []


def test_a_plugin_that_cannot_be_served_is_an_error(node, server):
    (server.plugins / "apportion-nvidia.com_mig-1g.5gb.sock").mkdir()
    with pytest.raises(
        KubeletError, match=r"no device plugin can be served on .*apportion-nvidia\.com_mig-1g\.5gb\.sock: "
    ):
        node.kubelet.announce({ONE: {}})


class TimeIsUp(grpc.RpcError):
    """What a call raises that was not answered in time."""

    def code(self):
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self):
        return "Deadline Exceeded"


def test_a_kubelet_that_listens_knows_us_however_late_it_answers(node, server, monkeypatch):
    """One that answers Register after six seconds never came to the second resource, and took down the first each time."""

    class Late(RegistrationStub):
        """Its time is up as soon as the kubelet listens."""

        def __init__(self, channel):
            super().__init__(channel)
            begin = self.Register.future

            def register(request, timeout):
                call = begin(request)
                server.wait(lambda server: request.resource_name in server.devices)
                call.cancel()
                raise TimeIsUp

            self.Register = register

    monkeypatch.setattr("reconciler.agent.deviceplugin.endpoint.RegistrationStub", Late)
    server.answers = threading.Event()
    assert node.kubelet.announce({ONE: {A0: True}, TWO: {"GPU-a/2g.10gb/2": True}}) == {}
    server.wait(lambda server: server.healthy() == {A0, "GPU-a/2g.10gb/2"})
    assert [resource for resource, _ in server.registered] == [ONE, TWO]
    server.answers.set()


def test_a_kubelet_that_listens_anew_takes_the_place_of_itself(node, server):
    """Each listener takes a thread: with as many as there are, no container would get its devices any more."""
    node.announce(ONE=[A0])
    listeners = []
    for _ in range(6):
        listeners.append(server._endpoints[ONE]._stub.ListAndWatch(pb.Empty()))
        assert variables(server.allocate(ONE, A0)) == {"NVIDIA_VISIBLE_DEVICES": "MIG-a0"}
        assert [device.ID for device in next(listeners[-1]).devices] == [A0]


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param("nvidia.com/gpu.shared", "apportion-nvidia.com_gpu.shared.sock", id="short"),
        pytest.param("nvidia.com/mig-1g.12gb.me.all", "apportion-nvidia.com_mig-1g.12gb.me.all.sock", id="nvidias-longest"),
        pytest.param("nvidia.com/" + 63 * "x", "apportion-nvidia.com_xxxxxxxxxxx-a47ed7e9.sock", id="longest"),
        pytest.param("nvidia.com/" + 62 * "x" + "y", "apportion-nvidia.com_xxxxxxxxxxx-949d4c31.sock", id="another-as-long"),
    ],
)  # fmt: skip
def test_the_name_of_a_socket_is_as_short_as_its_path_must_be(resource, name):
    assert socket_name(resource) == name


# What it lacks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        pytest.param(
            (grpc.StatusCode.UNIMPLEMENTED, "unknown method GetAllocatableResources"),
            "the kubelet does not serve pod-resources GetAllocatableResources (UNIMPLEMENTED: unknown method "
            "GetAllocatableResources); Apportion needs a kubelet of Kubernetes 1.30 or later",
            id="before-1.21",
        ),
        pytest.param(
            (grpc.StatusCode.UNKNOWN, "Pod Resources API GetAllocatableResources disabled"),
            "the kubelet does not serve pod-resources GetAllocatableResources (UNKNOWN: Pod Resources API "
            "GetAllocatableResources disabled); Apportion needs a kubelet of Kubernetes 1.30 or later",
            id="switched-off",
        ),
    ],
)
def test_a_kubelet_that_lacks_what_we_need_is_told_apart(node, server, refusal, why):
    """A23."""
    server.refuses_reading = [refusal]
    with pytest.raises(KubeletError) as caught:
        node.kubelet.allocatable()
    assert str(caught.value) == why


def test_a_kubelet_without_pod_resources_is_told_apart():
    """A23."""
    server = KubeletServer().start(resources=False)
    node = Node(server)
    with pytest.raises(KubeletError) as caught:
        node.kubelet.allocated()
    assert str(caught.value) == (
        f"there is no {server.directory}/pod-resources/kubelet.sock: does the agent see this directory? Apportion needs a "
        "kubelet of Kubernetes 1.30 or later, with pod-resources"
    )
    node.kubelet.close()
    server.close()


def test_a_kubelet_that_is_asked_too_often_is_asked_again(node, server):
    """It answers a hundred calls a second and refuses the others at once."""
    node.announce(ONE=[A0])
    server.refuses_reading = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")]
    assert node.kubelet.allocatable() == {A0}
    assert server.asked == ["GetAllocatableResources"] * 2


def test_an_answer_that_is_too_large_is_told_and_not_asked_for_again(node, server):
    too_large = "CLIENT: Received message larger than max (20000000 vs. 16777216)"
    server.refuses_reading = [(grpc.StatusCode.RESOURCE_EXHAUSTED, too_large)]
    with pytest.raises(KubeletError, match=r"Received message larger than max \(20000000 vs\. 16777216\)"):
        node.kubelet.allocatable()
    assert server.asked == ["GetAllocatableResources"]


def test_devices_of_others_are_not_ours(node, server):
    node.announce(ONE=[A0])
    server.devices |= {"example.com/nic": {"rack/nic/0": True}}
    server.holders |= {"rack/nic/0": ("ns/a", "example.com/nic")}
    assert node.kubelet.allocatable() == {A0}
    assert node.kubelet.allocated() == {"rack/nic/0": "ns/a"}, "what that is, is not for it to say"


def test_another_plugin_for_one_of_our_resources_is_found(node, server):
    """A08: two plugins on one node take it from each other, and the kubelet offers what the last one said."""
    node.announce(ONE=[A0])
    server.devices = {ONE: {A0: True, "MIG-1b2c": True}}
    with pytest.raises(KubeletError) as caught:
        node.kubelet.allocatable()
    assert str(caught.value) == (
        "another device plugin announces nvidia.com/mig-1g.5gb here, for one MIG-1b2c: keep it off nodes with the label "
        "nos.nebuly.com/gpu-partitioning"
    )


def test_ids_are_short_enough_for_the_kubelet():
    assert len(device_id("GPU-00000000-0000-0000-0000-000000000000", Slice("1g.24gb+me.all", 11))) <= 63


def test_the_kubelet_is_asked_for_the_slice_beside_which_most_starts_are_left():
    """A lone 1g goes to 6 (section 5); where the boards are not known, the first by name is as good as any."""
    asked = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=[f"A/1g.5gb/{start}" for start in range(7)], allocation_size=1
    )
    request = pb.PreferredAllocationRequest(container_requests=[asked])
    for models, device in ((lambda: {"A": by_product(A100)}, "A/1g.5gb/6"), (dict, "A/1g.5gb/0")):
        plugin = DevicePlugin("nvidia.com/mig-1g.5gb", None, lambda: (), lambda: None, models)
        (answer,) = plugin.GetPreferredAllocation(request, None).container_responses
        assert answer.deviceIDs == [device]
