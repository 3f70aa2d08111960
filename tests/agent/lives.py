"""The agent as a process that is killed, with the real driver: `python -m tests.agent.lives DIRECTORY LIBRARY`.

For each line on its input, the number of a boundary or 0, it forks an agent, which lives until it has nothing to do or
comes to that boundary, where it is killed (SIGKILL). It answers with a line: how the agent ended, and how many boundaries
it had passed. Boards are the mock NVML's; node and kubelet are files. All three outlive the agents.

Boundaries lie before and after each call that changes a board, each announcement, and each write to the API server.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

import msgspec
import pynvml

from reconciler.agent.agent import NodeAgent
from reconciler.agent.node import read_node
from reconciler.agent.nvml import NvmlDriver
from tests.agent.hardware import CALLS
from tests.agent.merging import merge

NOW = 1_000.0


class Life:
    """One agent, from its start to its end."""

    def __init__(self, directory, end):
        self.node, self.kubelet = directory / "node.json", directory / "kubelet.json"
        self.passed, self.count, self.end = directory / "passed", 0, end

    def live(self):
        agent = NodeAgent(NvmlDriver(), self)
        for name in CALLS:
            setattr(pynvml, name, self.bounded(getattr(pynvml, name)))
        while patch := agent.act(read_node(self.node.read_bytes()), NOW).patch:
            self.bounded(self.write)(patch)

    def bounded(self, function):
        def call(*arguments):
            self.boundary()
            answer = function(*arguments)
            self.boundary()
            return answer

        return call

    def boundary(self):
        self.count += 1
        self.passed.write_text(str(self.count))
        if self.count == self.end:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, patch):
        node = json.loads(self.node.read_bytes())
        merge(node, msgspec.json.decode(msgspec.json.encode(patch)))
        replace(self.node, node)

    # The kubelet, which takes an announcement over at once.

    def announce(self, devices):
        known = json.loads(self.kubelet.read_bytes())
        if known["devices"] != devices:
            self.bounded(replace)(self.kubelet, {**known, "devices": devices})
        return {}

    def allocatable(self):
        devices = json.loads(self.kubelet.read_bytes())["devices"]
        return frozenset(one for found in devices.values() for one, healthy in found.items() if healthy)

    def allocated(self):
        return json.loads(self.kubelet.read_bytes())["allocated"]


def replace(path, content):
    """Change a file in one step."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(content))
    new.replace(path)


def main(directory, library):
    ctypes.CDLL(library)  # by its name the loader finds what is loaded already
    passed = directory / "passed"
    for line in sys.stdin:
        passed.write_text("0")
        child = os.fork()
        if child == 0:
            sys.stdout = sys.stderr
            Life(directory, int(line)).live()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), passed.read_text(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
