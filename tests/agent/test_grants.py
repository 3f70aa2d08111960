"""What a container gets with its devices."""

import pytest

from reconciler.agent.driver import InvalidArgument, Slice, device_id, read_device_id
from reconciler.agent.grants import Grant, Grants, Mount

A, B = "GPU-a", "GPU-b"


class Driver:
    """Names devices as NVML does, of what there is."""

    def __init__(self, *there):
        self._there = there

    def device_uuid(self, board, item):
        if (board, item) not in self._there:
            raise InvalidArgument(f"there is no {item}")
        return board if item.start is None else f"MIG-{board[-1]}{item.start}"


HARDWARE = Driver(
    (A, Slice("1g.5gb", 0)), (A, Slice("1g.5gb", 1)), (B, Slice("3g.20gb", 4)), (A, Slice("10gb", ordinal=1)), (B, Slice("10gb"))
)  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "visible"),
    [
        pytest.param(["GPU-a/1g.5gb/1"], "MIG-a1", id="a-slice-by-its-mig-uuid"),
        pytest.param(["GPU-b/3g.20gb/4", "GPU-a/1g.5gb/0"], "MIG-b4,MIG-a0", id="several-of-two-boards"),
        pytest.param(["GPU-a/10gb/1"], "GPU-a", id="a-share-by-its-board"),
    ],
)
def test_devices_are_named_by_the_variable_of_the_container_runtime(devices, visible):
    assert Grants(HARDWARE).grant(devices) == Grant(envs={"NVIDIA_VISIBLE_DEVICES": visible})


@pytest.mark.parametrize(
    ("device", "why"),
    [
        pytest.param("GPU-a/1g.5gb/6", "there is no 1g.5gb at 6", id="destroyed"),
        pytest.param("MIG-4711", "'MIG-4711' is no device of ours", id="of-another-plugin"),
        pytest.param("GPU-a/1g.5gb/x", "'GPU-a/1g.5gb/x' is no device of ours", id="no-number"),
    ],
)
def test_what_does_not_exist_is_not_granted(device, why):
    """A17: answered from the ids alone, or not at all."""
    with pytest.raises(InvalidArgument, match=why):
        Grants(HARDWARE).grant(["GPU-a/1g.5gb/0", device])


def pipe(device):
    return Grant(envs={"PIPE": f"/pipes/{device.board}"}, mounts=(Mount(host_path="/h", container_path="/c"),))


def test_what_sharing_needs_comes_besides():
    assert Grants(HARDWARE, sharing=pipe).grant(["GPU-a/10gb/1"]) == Grant(
        envs={"NVIDIA_VISIBLE_DEVICES": "GPU-a", "PIPE": "/pipes/GPU-a"},
        mounts=(Mount(host_path="/h", container_path="/c"),),
    )


def test_devices_of_which_a_container_can_have_only_one_are_refused_together():
    with pytest.raises(InvalidArgument, match="PIPE is /pipes/GPU-a and /pipes/GPU-b"):
        Grants(HARDWARE, sharing=pipe).grant(["GPU-a/10gb/1", "GPU-b/10gb/0"])


def test_devices_may_be_named_in_another_way():
    def cdi(devices):
        return Grant(cdi_devices=tuple(f"vendor/gpu={device.uuid}" for device in devices))

    assert Grants(HARDWARE, naming=cdi).grant(["GPU-a/1g.5gb/0"]) == Grant(cdi_devices=("vendor/gpu=MIG-a0",))


@pytest.mark.parametrize(
    "item", [Slice("1g.5gb+me.all", 3), Slice("4g.96gb+gfx", 0), Slice("10gb", ordinal=47), Slice("1g.12gb-me", 12)], ids=str
)  # fmt: skip
def test_a_device_is_read_from_its_id(item):
    assert read_device_id(device_id(A, item)) == (A, item)
