"""Devices named by CDI: what a container's name stands for changes with the device, and its name never."""

import json
import re

import pytest

from reconciler.agent.agent import NodeAgent
from reconciler.agent.cdi import CdiDevices, cdi_name
from reconciler.agent.driver import DriverError, GpuIsLost, InvalidArgument, read_device_id
from reconciler.agent.grants import Grant, Grants
from tests.agent.world import World, layout
from tests.builders import A100

A, B, LOST = "GPU-a/1g.5gb+me/0", "GPU-b/3g.20gb/4", "GPU-a/1g.5gb/3"
LOST_BOARD = "GPU-9"


class Driver:
    """Names MIG devices by how often the machine was booted."""

    boot = 1

    def device_uuid(self, board, item):
        if item.start == 3:
            raise InvalidArgument(f"there is no {item}")
        return f"MIG-{board[-1]}{item.start}-{self.boot}"

    def device_uuids(self, board):
        if board == LOST_BOARD:
            raise GpuIsLost("list the instances of GPU 9: GPU is lost")
        return {item: self.device_uuid(on, item) for on, item in map(read_device_id, (A, B)) if on == board}


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def devices(driver, tmp_path):
    """Return a function that starts the agent anew."""
    return lambda: CdiDevices(driver, tmp_path / "cdi.json", tmp_path / "cdi")


def spec(tmp_path):
    return json.loads((tmp_path / "cdi" / "nos.nebuly.com-slice.json").read_text())


def named(tmp_path):
    """Return what names stand for, in the file."""
    return {device["name"]: device["containerEdits"]["env"] for device in spec(tmp_path)["devices"]}


def test_what_is_announced_has_a_name_before(devices, tmp_path):
    devices().refresh([A, B], [])
    assert spec(tmp_path) == {
        "cdiVersion": "0.6.0",
        "kind": "nos.nebuly.com/slice",
        "devices": [
            {"name": "GPU-a_1g.5gb.me_0", "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=MIG-a0-1"]}},
            {"name": "GPU-b_3g.20gb_4", "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=MIG-b4-1"]}},
        ],
    }


def test_a_container_is_told_a_name_and_nothing_else(devices, driver):
    grants = Grants(driver, naming=devices())
    assert grants.grant([A]) == Grant(cdi_devices=("nos.nebuly.com/slice=GPU-a_1g.5gb.me_0",))


def test_two_devices_of_a_container_have_a_name_together(devices, driver, tmp_path):
    """Two names would each set the variable, and one would win."""
    assert Grants(driver, naming=devices()).grant([B, A]).cdi_devices == (
        "nos.nebuly.com/slice=GPU-a_1g.5gb.me_0--GPU-b_3g.20gb_4",
    )
    assert named(tmp_path)["GPU-a_1g.5gb.me_0--GPU-b_3g.20gb_4"] == ["NVIDIA_VISIBLE_DEVICES=MIG-a0-1,MIG-b4-1"]


def test_after_a_reboot_the_same_names_stand_for_the_new_uuids(devices, driver, tmp_path):
    """A container that starts again goes on: the kubelet replays the name, not the UUID."""
    before = devices()
    before.refresh([A, B], [])
    Grants(driver, naming=before).grant([A, B])
    (tmp_path / "cdi" / "nos.nebuly.com-slice.json").unlink()
    driver.boot = 2
    devices().refresh([A, B], [A, B])
    assert named(tmp_path) == {
        "GPU-a_1g.5gb.me_0": ["NVIDIA_VISIBLE_DEVICES=MIG-a0-2"],
        "GPU-a_1g.5gb.me_0--GPU-b_3g.20gb_4": ["NVIDIA_VISIBLE_DEVICES=MIG-a0-2,MIG-b4-2"],
        "GPU-b_3g.20gb_4": ["NVIDIA_VISIBLE_DEVICES=MIG-b4-2"],
    }


def test_names_that_nobody_has_any_more_are_forgotten_at_the_next_start(devices, driver, tmp_path):
    Grants(driver, naming=devices()).grant([A, B])
    devices().refresh([A, B], [A])
    assert list(named(tmp_path)) == ["GPU-a_1g.5gb.me_0", "GPU-b_3g.20gb_4"]


def test_a_device_that_is_not_there_has_no_name(devices, tmp_path):
    devices().refresh([A, LOST, "GPU-b/10gb/0"], [LOST, f"{LOST_BOARD}/1g.5gb/0"])
    assert list(named(tmp_path)) == ["GPU-a_1g.5gb.me_0", "GPU-b_10gb_0"]


def test_the_file_is_replaced_in_one_step_and_only_if_it_says_something_else(devices, tmp_path):
    cdi = devices()
    cdi.refresh([A], [])
    file = tmp_path / "cdi" / "nos.nebuly.com-slice.json"
    first = file.stat().st_ino
    cdi.refresh([A], [])
    assert file.stat().st_ino == first
    cdi.refresh([A, B], [])
    assert file.stat().st_ino != first
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_directory_that_cannot_be_written_is_told(driver, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DriverError, match=r"the CDI devices cannot be written to .*/file/nos\.nebuly\.com-slice\.json"):
        CdiDevices(driver, tmp_path / "cdi.json", tmp_path / "file").refresh([A], [])


@pytest.mark.parametrize(
    "ids",
    [(A,), (B, A), ("GPU-7c1f8a3e-0000-0000-0000-000000000000/1g.24gb+me.all/11::99",), ("GPU-a/1g.24gb-me/0",)],
)
def test_names_have_only_what_cdi_allows(ids):
    """Source: container-device-interface, pkg/parser, ValidateDeviceName."""
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", cdi_name(ids))


def test_the_agent_names_devices_before_it_announces_them(tmp_path):
    """A pod may come the moment that the kubelet knows of a device."""
    world = World(product=A100)
    cdi, seen = CdiDevices(world.driver, tmp_path / "cdi.json", tmp_path / "cdi"), []
    kubelet = world.agent._kubelet
    announce = kubelet.announce

    def look(devices):
        seen.append((sum(map(len, devices.values())), len(spec(tmp_path)["devices"])))
        return announce(devices)

    kubelet.announce = look
    world.agent = NodeAgent(world.driver, kubelet, name_devices=cdi.refresh, ticks=lambda: world.now)
    world.order({0: layout(("3g.20gb", 0), ("3g.20gb", 4))})
    world.run()
    assert seen[0] == (2, 2)
