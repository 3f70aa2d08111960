"""Directories of sandboxes: claimed by one, seen by all, and what a crash leaves is found and removed, nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.sandbox import marks, rooms
from console.sandbox.errors import SandboxError
from console.sandbox.rooms import Config, Room, State

pytestmark = pytest.mark.usefixtures("machine")


def _config(name: str, sandbox_id: str) -> Config:
    return Config(name=name, id=sandbox_id, binaries={})


def _crash(name: str, sandbox_id: str) -> None:
    """Leave what a sandbox leaves whose supervisor is killed: a directory that nobody holds."""
    room = rooms.claim(name)
    room.write_config(_config(name, sandbox_id))
    room.write_state(State(supervisor=os.getpid()))
    (room.directory / "logs").mkdir()
    (room.directory / "logs" / "etcd.log").write_text("...")
    room.leave()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that bears the id `mine` and has started another one that inherits it."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); input()"],
        env={**os.environ, marks.VARIABLE: "mine"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        yield process
        process.kill()


def test_a_room_is_claimed_by_one_only() -> None:
    room = rooms.claim("a")
    assert rooms.claim("a") is None
    room.leave()
    assert rooms.claim("a") is not None


def test_a_lock_that_a_child_has_inherited_holds_the_room_after_its_parent_let_go() -> None:
    room = rooms.claim("a")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[room.lock]) as child:
        room.leave()
        assert rooms.is_held("a")
        child.stdin.close()
        child.wait(30)
    assert not rooms.is_held("a")


def test_only_its_user_can_look_into_a_room(machine: Path) -> None:
    room = rooms.claim("a")
    assert room.directory == machine / f"apportion-{os.getuid()}" / "a"
    assert room.directory.stat().st_mode & 0o777 == 0o700
    assert room.directory.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: path.mkdir(mode=0o755), id="readable-by-others"),
        pytest.param(lambda path: path.write_text(""), id="a-file"),
        pytest.param(lambda path: path.symlink_to("/tmp"), id="a-link-to-elsewhere"),
    ],
)
def test_a_directory_that_is_not_ours_alone_is_refused(machine: Path, make) -> None:
    make(machine / f"apportion-{os.getuid()}")
    with pytest.raises((SandboxError, FileExistsError), match="apportion-"):
        rooms.root()


def test_the_last_room_takes_the_directory_of_rooms_with_it(machine: Path) -> None:
    first, second = rooms.claim("a"), rooms.claim("b")
    first.remove()
    assert rooms.names() == ["b"]
    second.remove()
    assert list(machine.iterdir()) == []


def test_what_a_crash_left_is_removed_with_all_its_processes_and_no_other(sleeper) -> None:
    """The child that a process of the sandbox had started bears the mark too; a process without it is not touched."""
    child = int(sleeper.stdout.readline())
    with subprocess.Popen(["sleep", "600"]) as stranger:
        _crash("a", "mine")
        assert rooms.clean("a")
        assert rooms.names() == []
        assert sleeper.wait(30) == -9
        assert not marks.bears(child, "mine")
        assert stranger.poll() is None
        stranger.kill()


def test_a_process_that_has_the_id_of_a_recorded_one_is_not_killed() -> None:
    """The kernel gives ids of ended processes to new ones: this test's own process stands in the state that is left."""
    _crash("a", "another")
    assert rooms.clean("a")


def test_a_running_sandbox_is_not_cleaned_away() -> None:
    room = rooms.claim("a")
    assert not rooms.clean("a")
    assert room.directory.exists()


def test_a_crash_before_anything_was_written_is_cleaned_too() -> None:
    rooms.claim("a").leave()
    assert rooms.clean("a")
    assert rooms.names() == []


def test_a_file_that_is_half_written_counts_as_none() -> None:
    room = rooms.claim("a")
    (room.directory / "config.json").write_text('{"name": "a", "id"')
    assert rooms.read_config("a") is None
    assert rooms.read_state("a") is None


def test_config_and_state_are_read_back() -> None:
    room = rooms.claim("a")
    room.write_config(_config("a", "mine"))
    room.write_state(State(supervisor=7, ports=(20001,)))
    assert rooms.read_config("a") == _config("a", "mine")
    assert rooms.read_state("a") == State(supervisor=7, ports=(20001,))


def test_the_ports_of_all_sandboxes_are_known() -> None:
    kept: list[Room] = []
    for name, ports in (("a", (20001, 20002)), ("b", (20003,))):
        kept.append(rooms.claim(name))
        kept[-1].write_state(State(supervisor=7, ports=ports))
    rooms.claim("c")
    assert rooms.taken_ports() == {20001, 20002, 20003}


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "a-", "a" * 41])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(SandboxError, match="write at most 40 of a-z, 0-9 and -"):
        rooms.check_name(name)


@pytest.mark.parametrize("name", ["a", "default", "tmp-0a1b", "a" * 40])
def test_a_name_may_be_a_word(name: str) -> None:
    rooms.check_name(name)
