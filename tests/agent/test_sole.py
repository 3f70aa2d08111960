"""Two agents on one node: the second waits until the first has ended, however it ends, and then takes over."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reconciler.agent.__main__ import _run
from reconciler.agent.sole import sole
from tests.agent.process import AgentProcess
from tests.apiserver.server import PATIENCE_S
from tests.builders import A100
from tests.nvml.library import needs_gcc

HOLDER = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


def test_the_second_says_so_and_takes_over_when_the_first_is_killed(tmp_path):
    first = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "held\n"
    over, took = threading.Event(), threading.Event()

    def second():
        with sole(tmp_path, threading.Event(), look_s=0.01) as held:
            assert held
            took.set()
            over.wait(PATIENCE_S)

    with capture_logs() as logs:
        thread = threading.Thread(target=second)
        thread.start()
        assert not took.wait(0.1)
        first.kill()
        first.communicate()
        assert took.wait(PATIENCE_S)
        over.set()
        thread.join(PATIENCE_S)
    assert [(entry["event"], entry["holds"]) for entry in logs] == [("another_agent", str(tmp_path))], "once"


def test_one_that_is_told_to_end_while_it_waits_does_nothing(tmp_path):
    stop = threading.Event()
    with sole(tmp_path, stop) as first:
        assert first
        stop.set()
        with sole(tmp_path, stop) as second:
            assert not second


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made-anew"])
def test_a_directory_that_is_removed_beneath_it_is_held_no_longer(tmp_path, again):
    """Another agent could hold the new one at the same time."""
    directory = tmp_path / "state"
    directory.mkdir()
    with sole(directory, threading.Event()) as hold:
        assert hold.lasts()
        (directory / "bins.json").touch()
        assert hold.lasts()
        shutil.rmtree(directory)
        if again:
            directory.mkdir()
        assert not hold.lasts()


def test_a_mount_that_outlives_its_directory_is_held_no_longer(tmp_path, monkeypatch):
    """In a container the path still leads to the directory that the node has removed."""
    directory = tmp_path / "state"
    directory.mkdir()
    with sole(directory, threading.Event()) as hold:
        removed = os.open(directory, os.O_RDONLY)
        directory.rmdir()
        monkeypatch.setattr(Path, "stat", lambda _: os.fstat(removed))
        assert not hold.lasts()
        os.close(removed)


class Calls:
    """A service that notes what it is told."""

    def __init__(self):
        self.told = []

    def resync(self):
        self.told.append("resync")

    def stop(self):
        self.told.append("stop")


def test_an_agent_whose_directory_was_removed_ends_in_good_order(monkeypatch):
    monkeypatch.setattr("reconciler.agent.__main__.RESYNC_S", 0.001)
    service, answers = Calls(), iter([True, True, False])
    assert not _run(service, threading.Event(), lambda: next(answers))
    assert service.told == ["resync", "resync", "stop"]


def test_one_that_is_told_to_end_ends_whatever_its_directory():
    stop = threading.Event()
    stop.set()
    assert _run(Calls(), stop, lambda: True)


def test_children_do_not_hold_it(tmp_path):
    """MPS daemons outlive the agent."""
    with sole(tmp_path, threading.Event()):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with sole(tmp_path, threading.Event(), look_s=0.01) as held:
            assert held
    finally:
        child.kill()
        child.wait()


@needs_gcc
def test_the_process_of_a_second_agent_leaves_kubelet_and_node_alone():
    agent = AgentProcess(A100)
    (agent.directory / "state").mkdir()
    stop = threading.Event()
    with sole(agent.directory / "state", stop), agent:
        while '"another_agent"' not in agent.log():
            assert agent._process.poll() is None
        assert agent.stop() == 0
        assert agent.patches.empty()
        assert agent.kubelet.registered == []
        assert '"started"' not in agent.log()
