"""One process: its log, its end with all that it started, and that it cannot outlive its parent."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.sandbox.processes import Command, Process, end
from tests.sandbox.waiting import eventually


def _start(directory: Path, script: str, **options) -> Process:
    command = Command(name="it", arguments=("/bin/sh", "-c", script), **options)
    return Process(command, directory=directory, logs=directory, environment={"PATH": os.environ["PATH"]})


def _wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 10)[0], f"process {pid} goes on"
    finally:
        os.close(descriptor)


def test_it_runs_in_its_directory_and_its_output_is_logged(tmp_path: Path) -> None:
    process = _start(tmp_path, "pwd; echo $WORD", environment={"WORD": "word"})
    assert process._child.wait() == 0
    assert process.last_words() == f"{tmp_path}\nword"


def test_its_end_is_seen_without_giving_its_id_away(tmp_path: Path) -> None:
    process = _start(tmp_path, "exit 3")
    _wait_for_end(process.pid)
    assert process.has_ended()
    assert process.has_ended()
    assert process.clear() == 3


def test_it_ends_by_itself_when_asked(tmp_path: Path) -> None:
    process = _start(tmp_path, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    eventually(process.last_words, "its first word")
    end([process])
    assert process._child.returncode == 0
    assert process.last_words().endswith("bye")


def test_it_is_killed_if_it_does_not_end_within_its_grace(tmp_path: Path) -> None:
    process = _start(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.01; done", grace_s=0.1)
    eventually(process.last_words, "its first word")
    end([process])
    assert process._child.returncode == -signal.SIGKILL


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    process = _start(tmp_path, "sleep 600 & echo $!; wait")
    eventually(process.last_words, "its first word")
    child = int(process.last_words())
    end([process])
    _wait_for_end(child)


def test_the_kernel_kills_it_when_its_parent_is_killed(tmp_path: Path) -> None:
    """The parent is killed by SIGKILL, so that no code of ours can run."""
    parent_code = (
        "import sys; from pathlib import Path; from console.sandbox.processes import Command, Process\n"
        "it = Process(Command(name='it', arguments=('sleep', '600')), directory=Path(sys.argv[1]),"
        " logs=Path(sys.argv[1]), environment={'PATH': '/usr/bin:/bin'})\n"
        "print(it.pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent_code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    _wait_for_end(pid)


def test_a_program_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Process(Command(name="it", arguments=("/no/such/program",)), directory=tmp_path, logs=tmp_path, environment={})
