"""A real sandbox from its start to its end, and to every other end that it can come to."""

import json
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.sandbox import lifecycle, marks, rooms, services
from console.sandbox.build import ensure_binaries
from console.sandbox.lifecycle import Sandbox
from console.sandbox.notices import Notice
from console.sandbox.ports import is_free
from console.sandbox.processes import Command
from console.sandbox.progress import Progress
from console.sandbox.rooms import Config, State
from console.sandbox.supervisor import Supervisor
from tests.sandbox.waiting import eventually

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("machine", "_nothing_left")]


@pytest.fixture
def _nothing_left(machine: Path) -> Iterator[None]:
    """Whatever a test does, no process and no file of its sandboxes outlives it."""
    yield
    for name in rooms.names():
        lifecycle.stop(name)


def _apportion(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = (str(Path(sys.executable).parent / "apportion"), "sandbox", *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


def _ended(state: State) -> None:
    for process in state.processes:
        eventually(lambda pid=process.pid: not Path(f"/proc/{pid}/statm").exists() or _is_zombie(pid), process.name)
    eventually(lambda: all(is_free(port) for port in state.ports), "its ports are free")


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_up_status_down_and_after_a_crash_up_again(machine: Path) -> None:
    """From a directory that has a package called `console`, as a user's may."""
    (machine / "console").mkdir()
    (machine / "console" / "__init__.py").write_text("raise SystemExit('not ours')")
    up = _apportion("up", "--bare", "--name", "mine", "--nodes", "l4=2", cwd=machine)
    assert up.returncode == 0, up.stderr
    kubeconfig = rooms.root() / "mine" / "kubeconfig"
    assert up.stdout == f"export KUBECONFIG={kubeconfig}\n"

    status = _apportion("status", "-o", "json", cwd=machine)
    assert status.returncode == 0
    (line,) = json.loads(status.stdout)["sandboxes"]
    assert (line["name"], line["state"], line["version"]) == ("mine", "running", "v1.36.3")
    assert [(node["name"], node["mode"], node["ready"]) for node in line["nodes"]] == [
        ("l4-0", "mps", True),
        ("l4-1", "mps", True),
    ]
    assert [process["name"] for process in line["processes"]] == [
        "etcd",
        "kube-apiserver",
        "kube-scheduler",
        "kube-controller-manager",
        "kwok",
    ]
    assert all(process["memoryMiB"] > 10 for process in line["processes"])

    crashed = rooms.read_state("mine")
    os.kill(crashed.supervisor, signal.SIGKILL)
    _ended(crashed)
    assert _apportion("status", cwd=machine).stdout.startswith("mine  crashed")

    again = _apportion("up", "--bare", "--name", "mine", "--nodes", "", cwd=machine)
    assert again.returncode == 0
    assert again.stderr.startswith("removed what a crashed sandbox left: mine\n")
    state = rooms.read_state("mine")

    down = _apportion("down", "--name", "mine", cwd=machine)
    assert (down.returncode, down.stderr) == (0, "sandbox mine: ended\n")
    _ended(state)
    assert not rooms.root().joinpath("mine").exists()


def test_it_ends_when_the_process_that_needs_it_is_killed(machine: Path) -> None:
    """SIGKILL gives the holder no chance to say so: the supervisor sees its lifeline close."""
    code = (
        "from console.sandbox.lifecycle import Sandbox\n"
        "with Sandbox.start(name='held', services=()): print('up', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"up\n"
        state = rooms.read_state("held")
        holder.kill()
    eventually(lambda: "held" not in rooms.names(), "the room is removed")
    _ended(state)


def test_two_run_side_by_side_and_a_component_that_is_killed_comes_back(machine: Path) -> None:
    with Sandbox.start({"t4": 1}, services=()) as first, Sandbox.start({"a30": 1}, services=()) as second:
        assert "t4-0" in first.kubectl("get", "nodes", "-o", "name")
        assert "a30-0" in second.kubectl("get", "nodes", "-o", "name")
        etcd, api_server, *_ = rooms.read_state(first.name).processes
        os.kill(api_server.pid, signal.SIGKILL)
        client = first.client()
        eventually(lambda: rooms.read_state(first.name).processes[1].restarts == 1, "it is started again")
        eventually(lambda: client.answers("/readyz"), "it serves again")
        client.close()
        assert rooms.read_state(first.name).processes[0] == etcd
        assert "t4-0" in first.kubectl("get", "nodes", "-o", "name")
    assert rooms.names() == []


def test_ctrl_c_ends_one_in_the_foreground(machine: Path) -> None:
    command = (str(Path(sys.executable).parent / "apportion"), "sandbox", "up", "--foreground", "--bare", "--nodes", "")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as up:
        try:
            assert up.stdout.readline().startswith("export KUBECONFIG=")
            state = rooms.read_state("default")
            os.killpg(up.pid, signal.SIGINT)  # As a terminal does: to the whole group.
            assert up.wait(30) == 0
            assert up.stderr.read().endswith("ending it\n")
        finally:
            up.kill()  # or the block would wait for it for ever
    assert rooms.names() == []
    _ended(state)


def test_our_own_services_start_after_the_control_plane_and_end_with_it(machine: Path, monkeypatch) -> None:
    """The hook of `services`: a command with a port, started, waited for, and ended."""
    seen: dict[str, object] = {}

    def install(plane, ports):
        seen["nodes"] = plane.kubeconfig.exists()
        serve = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(ports["ours"]))
        return (Command(name="ours", arguments=serve, port=ports["ours"], ready=lambda: not is_free(ports["ours"])),)

    monkeypatch.setattr(services, "install", install)
    notices: list[Notice] = []
    room = rooms.claim("mine")
    programs = {name: str(path) for name, path in ensure_binaries(Progress()).items()}
    config = Config(name="mine", id=secrets.token_hex(16), binaries=programs, services=("ours",))
    room.write_config(config)

    def pause(timeout_s: float | None) -> bool:
        if notices and notices[-1].ready:
            seen["state"] = rooms.read_state("mine")
            return True
        select.select([], [], [], timeout_s)
        return False

    assert Supervisor(room, config, pause=pause, notify=notices.append).run()
    state = seen["state"]
    assert [process.name for process in state.processes][-1] == "ours"
    assert state.ready
    assert state.processes[-1].port == state.ports[-1]
    assert seen["nodes"]
    assert [notice.step.split(":")[0] for notice in notices[:-1]] == [
        "etcd, kube-apiserver",
        "kube-scheduler, kube-controller-manager, kwok",
        "ours",
    ]
    assert marks.marked(config.id) == []
    _ended(state)
