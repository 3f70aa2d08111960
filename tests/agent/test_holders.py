"""Who holds an instance that is to go: named, waited for, and no hindrance to other boards (pain A05)."""

import pytest

from policies.view import view_pod
from reconciler.agent.nvml import NvmlDriver
from reconciler.agent.processes import Processes
from tests.agent.world import World, layout
from tests.builders import make_pod
from tests.nvml.library import needs_gcc

UID = "1b2c3d4e-0000-4000-8000-00000000beef"
IN_POD = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-47.scope\n"


@pytest.fixture
def known(tmp_path):
    """Return a monitor and a process of a pod, and the pods of the node, of which there are none yet."""
    for pid, program, cgroup in ((99, "nv-hostengine", "0::/system.slice/dcgm.service\n"), (4711, "python", IN_POD)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{program}\n")
        (tmp_path / str(pid) / "cgroup").write_text(cgroup)
    pods = []
    return Processes(lambda: pods, tmp_path), pods


def test_processes_are_named_by_program_and_pod_as_far_as_they_are_known(known):
    processes, pods = known
    assert [processes.name(pid) for pid in (99, 12)] == ["99 nv-hostengine", "12"]
    assert processes.name(4711) == f"4711 python of pod {UID}"
    pods += [view_pod(make_pod("team-a/train", uid=UID)), view_pod(make_pod("team-a/other", uid="another"))]
    assert processes.name(4711) == "4711 python of pod team-a/train"


@needs_gcc
@pytest.mark.usefixtures("nvml")
def test_a_monitor_that_holds_an_instance_is_named_and_other_boards_are_cut_meanwhile(known, monkeypatch):
    world = World({0: [("3g.20gb", 0)], 1: [("3g.20gb", 0)]}, count=2)
    (held, free), machine = world.uuids, world._hardware.machine
    monkeypatch.setattr(world.driver, "_name", known[0].name)
    monkeypatch.setattr(machine, "mend", lambda: None)  # which would end the monitor before each call
    machine.hold(held, machine.numbers(held)[9, 0], 99)
    world.order({0: layout(("7g.40gb", 0)), 1: layout(("7g.40gb", 0))})
    world.finish()
    assert (world.layout(0), world.layout(1)) == (layout(("3g.20gb", 0)), layout(("7g.40gb", 0)))
    assert world.condition() == (
        "False",
        "BoardFailed",
        f"GPU 0 ({held}): destroy the compute instance of 3g.20gb at 0: In use by another client "
        "(process 99 nv-hostengine), when it was last tried",
    ), "it may have let go since"
    assert world.allocatable() == {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-7g.40gb": 1}, "it goes on to serve"
    monkeypatch.undo()
    machine.mend()
    world.now += 60.0
    world.order({0: layout(("7g.40gb", 0))}, plan="2")
    world.finish()
    assert world.layout(0) == layout(("7g.40gb", 0))
    assert world.condition()[0] == "True"
    assert NvmlDriver().slices(free) == world.driver.slices(free)
