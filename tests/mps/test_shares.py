"""What an MPS slice is worth, and what a container gets with it. Boards and figures are those of their data sheets."""

import msgspec
import pytest

from policies.annotations import BoardInventory
from reconciler.agent.driver import InvalidArgument, Slice
from reconciler.agent.grants import Device, Grant, Grants, Mount
from reconciler.agent.mps.shares import Sharing, backstop_mib, limit_mib
from reconciler.agent.mps.site import MpsSite

GPU, OTHER = "GPU-0a", "GPU-1b"
BOARD = BoardInventory(index=0, uuid=GPU, model="NVIDIA-A100-SXM4-40GB", memory_mib=40536)


def board(model, memory_mib):
    return msgspec.structs.replace(BOARD, model=model, memory_mib=memory_mib)


@pytest.mark.parametrize(
    ("model", "memory_mib", "profile", "mib"),
    [
        pytest.param("NVIDIA-A100-SXM4-40GB", 40536, "20gb", 20268, id="P03-half-of-an-A100"),
        pytest.param("NVIDIA-A100-SXM4-40GB", 40536, "40gb", 40536, id="all-of-an-A100"),
        pytest.param("NVIDIA-A100-SXM4-40GB", 40536, "1gb", 1013, id="1013.4-is-rounded-down"),
        pytest.param("NVIDIA-A100-SXM4-40GB", 40960, "10gb", 10240, id="nothing-reserved"),
        pytest.param("Tesla-T4", 15360, "16gb", 15360, id="a-T4-has-16-GB-of-which-15360-MiB-can-be-used"),
        pytest.param("Tesla-T4", 15360, "5gb", 4800, id="5-of-16"),
        pytest.param("NVIDIA-L40S", 46068, "7gb", 6718, id="6718.25-is-rounded-down"),
        pytest.param("NVIDIA-Unheard-Of", 24000, "12gb", 12000, id="unknown-model-of-ceil-23.4-GiB"),
    ],
)
def test_a_slice_is_its_part_of_what_is_usable(model, memory_mib, profile, mib):
    assert limit_mib(board(model, memory_mib), profile) == mib


@pytest.mark.parametrize("memory_mib", [40536, 40535, 40960, 40000])
@pytest.mark.parametrize("sizes", [[20, 20], [13, 13, 14], [1] * 40, [39, 1]])
def test_slices_of_a_whole_board_are_no_more_than_it_has(memory_mib, sizes):
    """P03: by nominal GB they fit, so by MiB they must."""
    entry = board("NVIDIA-A100-SXM4-40GB", memory_mib)
    total = sum(limit_mib(entry, f"{size}gb") for size in sizes)
    assert memory_mib - len(sizes) < total <= memory_mib


def test_a_mig_slice_has_no_such_limit():
    with pytest.raises(InvalidArgument, match=r"3g\.20gb is no MPS slice"):
        limit_mib(BOARD, "3g.20gb")


@pytest.mark.parametrize(
    ("profiles", "mib"), [(["5gb", "20gb", "10gb"], 20268), (["5gb"], 5067), ([], 1013)], ids=["largest", "one", "none"]
)
def test_the_backstop_is_the_largest_slice(profiles, mib):
    assert backstop_mib(BOARD, [Slice(profile) for profile in profiles]) == mib


class Driver:
    def boards(self):
        return BOARD, msgspec.structs.replace(BOARD, index=1, uuid=OTHER)

    def device_uuid(self, board, _item):
        return board


@pytest.mark.parametrize(
    ("device", "gpu", "limit"),
    [
        pytest.param("GPU-0a/20gb/0", GPU, "0=20268M", id="first-board"),
        pytest.param("GPU-1b/20gb/1", OTHER, "0=20268M", id="A01-second-board-is-the-first-that-the-container-sees"),
        pytest.param("GPU-1b/1gb/0", OTHER, "0=1013M", id="A01-smallest"),
    ],
)
def test_a_container_gets_its_limit_its_daemon_and_the_daemons_shared_memory(device, gpu, limit):
    """A01: keyed by the index that the container sees, which is 0, whatever the board's is on the node."""
    driver = Driver()
    assert Grants(driver, sharing=Sharing(MpsSite(), driver.boards)).grant([device]) == Grant(
        envs={
            "NVIDIA_VISIBLE_DEVICES": gpu,
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limit,
            "CUDA_MPS_PIPE_DIRECTORY": f"/run/apportion/mps/{gpu}/pipe",
        },
        mounts=(
            Mount(host_path=f"/run/apportion/mps/{gpu}/pipe", container_path=f"/run/apportion/mps/{gpu}/pipe"),
            Mount(host_path="/dev/shm", container_path="/dev/shm"),
        ),
    )


@pytest.mark.parametrize(
    ("model", "capability"),
    [
        pytest.param("Tesla-P40", "6.1", id="by-what-it-says"),
        pytest.param("Tesla-P100-PCIE-16GB", None, id="by-the-table"),
    ],
)
def test_before_volta_nothing_is_limited_and_neither_daemon_nor_container_is_told_to(model, capability):
    entry = msgspec.structs.replace(board(model, 24576), compute_capability=capability)
    assert backstop_mib(entry, [Slice("4gb")]) is None
    pipe = "/run/apportion/mps/GPU-0a/pipe"
    grant = Sharing(MpsSite(), lambda: (entry,))(Device("GPU-0a/4gb/0", GPU, Slice("4gb"), GPU))
    assert grant.envs == {"CUDA_MPS_PIPE_DIRECTORY": pipe}
    assert [mount.host_path for mount in grant.mounts] == [pipe, "/dev/shm"]


def test_other_devices_need_nothing_of_this():
    sharing = Sharing(MpsSite(), Driver().boards)
    assert sharing(Device("GPU-0a/3g.20gb/4", GPU, Slice("3g.20gb", 4), "MIG-1")) == Grant()


def test_slices_of_two_boards_cannot_be_in_one_container():
    """A client talks to one daemon: two with the same limit would meet at one path."""
    driver = Driver()
    with pytest.raises(InvalidArgument, match="cannot be in one container"):
        Grants(driver, sharing=Sharing(MpsSite(), driver.boards)).grant(["GPU-0a/20gb/0", "GPU-1b/20gb/0"])


def test_the_board_must_be_there():
    with pytest.raises(InvalidArgument, match="there is no board GPU-9"):
        Sharing(MpsSite(), Driver().boards)(Device("GPU-9/10gb/0", "GPU-9", Slice("10gb"), "GPU-9"))
