"""The stand-in for `nvidia-cuda-mps-control`, built once per run, and a node on which daemons of it run."""

import atexit
import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

from kube.backoff import Backoff
from reconciler.agent.mps.daemon import Pace
from reconciler.agent.mps.site import MpsSite
from reconciler.agent.mps.supervisor import Supervisor

SOURCE = Path(__file__).with_name("nvidia-cuda-mps-control.c")
WAIT_S = 30.0  # for what takes milliseconds
UID = 1000 if os.geteuid() == 0 else os.geteuid()  # only root can become another


@cache
def program():
    """Return the path of the program, in a directory that everybody can reach."""
    directory = Path(tempfile.mkdtemp(prefix="mps-program-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    directory.chmod(0o755)
    path = directory / "nvidia-cuda-mps-control"
    subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", path, SOURCE], check=True)
    return path


class Node:
    """A node with its own program, whose faults are its own; `end` ends all that it started.

    Times are short: faults are reported when they happen, or after a tenth of a second.
    """

    def __init__(self, **site):
        # Not pytest's own directory, which is closed to others.
        self.directory = Path(tempfile.mkdtemp(prefix="mps-node-"))
        self.directory.chmod(0o755)
        self.program = self.directory / "nvidia-cuda-mps-control"
        shutil.copy(program(), self.program)
        self.site = MpsSite(**{"root": self.directory / "mps", "uid": UID, "program": str(self.program)} | site)
        self.news = threading.Condition()
        self.supervisors = []

    def pace(self, **pace):
        quick = {
            "check_s": 0.1,
            "answer_s": WAIT_S,
            "start_s": WAIT_S,
            "first_s": WAIT_S,
            "restart": Backoff(0.02, 0.1),
        }
        return Pace(**quick | pace)

    def supervisor(self, **pace):
        """Return the supervisor of an agent that starts now."""
        self.supervisors.append(Supervisor(self.site, pace=self.pace(**pace), changed=self._changed))
        return self.supervisors[-1]

    def _changed(self):
        with self.news:
            self.news.notify_all()

    def until(self, ask):
        """Wait for news until they say so; return the answer."""
        with self.news:
            assert self.news.wait_for(ask, WAIT_S), "it has not come to that"
            return ask()

    def break_by(self, *words):
        """Let the programs go wrong in these ways, and in no others."""
        new = self.directory / "faults.new"
        new.write_text("".join(f"{word}\n" for word in words))
        new.rename(self.directory / "faults")

    # What can be seen.

    def pid(self, board):
        """Return the PID of a board's daemon; None if none runs: a process that has ended, or another one, runs no program of ours."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.site.pipes(board) / "nvidia-cuda-mps-control.pid").read_text())
            if Path(f"/proc/{pid}/exe").samefile(self.program):
                return pid
        return None

    def ask(self, board, command):
        done = subprocess.run(
            [self.program], input=f"{command}\n", env=self.site.environment(board), capture_output=True, text=True, timeout=WAIT_S,
            check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def output(self, board):
        return self.site.output(board).read_text()

    def attach(self, board):
        """Return the connection of a program that uses a board."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(WAIT_S)
        client.connect(str(self.site.pipes(board) / "control"))
        client.sendall(b"attach\n")
        return client

    def kill(self, board):
        """Kill a board's daemon and wait until it is gone."""
        pid = self.pid(board)
        descriptor = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        await_end(descriptor)
        return pid

    def end(self):
        for supervisor in self.supervisors:
            supervisor.leave()
        for path in self.site.root.glob("*/pipe/nvidia-cuda-mps-control.pid"):
            if self.pid(path.parent.parent.name):
                self.kill(path.parent.parent.name)
        shutil.rmtree(self.directory)


def await_end(descriptor):
    """Wait for the end of a process, by a descriptor of it, which is closed."""
    ended, *_ = select.select([descriptor], [], [], WAIT_S)
    os.close(descriptor)
    assert ended, "it does not end"
