"""The agent's own process on a machine with mock NVML, a stand-in kubelet and a scripted API server with its node."""

import copy
import json
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from kube.resource import NODES, PODS
from policies import names
from tests.agent.kubelet import KubeletServer
from tests.agent.merging import merge
from tests.apiserver.server import PATIENCE_S, ApiServer
from tests.apiserver.steps import Live, listing
from tests.builders import raw_node, raw_pod
from tests.nvml.library import library
from tests.nvml.machine import Machine

STATUS = NODES.path(name="n1", subresource="status")


class AgentProcess:
    """A node `n1` whose boards are these products, and the agent that serves it; use as a context manager.

    Args:
        products: of the boards.
        driver: whether NVML's library can be found.
        kubelet: whether the kubelet runs.
        node: how the node is labelled, as for `raw_node`.
        environment: variables of the agent besides.
        options: of the machine.
    """

    def __init__(self, *products, driver=True, kubelet=True, node=None, environment=None, **options):
        self._environment = environment or {}
        self.directory = Path(tempfile.mkdtemp(prefix="agent-"))
        self.machine = Machine(self._made("machine"), *products, **options)
        self.kubelet = KubeletServer()
        if kubelet:
            self.kubelet.start()
        self.node = raw_node(**(node or {}))
        self.node["metadata"]["uid"] = "uid-1"
        self.version = 10
        self.patches = queue.Queue()
        self._libraries = Path(library()).parent if driver else self._made("nothing")
        self._turn = threading.RLock()

    def _made(self, name):
        path = self.directory / name
        path.mkdir()
        return path

    def __enter__(self):
        self.api = ApiServer().__enter__()
        self.api.route("GET", NODES.path(), self._list)
        self.api.route("GET", PODS.path(), listing([], 10))
        self.api.route("PATCH", STATUS, self._patch)
        self.api.route("POST", "/api/v1/namespaces/team-a/events", lambda _, wire: wire.json(201, {}))
        self.start()
        return self

    def __exit__(self, *_):
        if self._process.returncode is None:
            self.stop(signal.SIGKILL)  # in good order it would wait a second for the driver's events
        self.api.__exit__()
        self.kubelet.close()
        shutil.rmtree(self.directory)

    def start(self):
        """Start the agent, as the DaemonSet does."""
        self.nodes, self.pods = Live(), Live()
        self.api.route("GET", NODES.path(), self.nodes, watch=True)
        self.api.route("GET", PODS.path(), self.pods, watch=True)
        arguments = [
            f"--kubelet-directory={self.kubelet.directory}",
            f"--state-directory={self.directory / 'state'}",
            f"--kubeconfig={self.api.kubeconfig(self.directory)}",
            "--port=0",
        ]
        environment = {
            "APPORTION_NODE_NAME": "n1",
            "LD_LIBRARY_PATH": str(self._libraries),
            "PATH": "/usr/bin:/bin",
            **self.machine.environment,
            **self._environment,
        }
        self._log = (self.directory / "log").open("a+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "reconciler.agent", *arguments],
            env=environment, cwd=Path(__file__).parents[2], stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def stop(self, number=signal.SIGTERM):
        """End the agent; return its exit status."""
        self._process.send_signal(number)
        status = self._process.wait(PATIENCE_S)
        self._log.close()
        self.nodes.end()
        self.pods.end()
        return status

    def log(self):
        return (self.directory / "log").read_text()

    def resident_mib(self):
        """Return what of its memory is in RAM, in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024

    # What the leader and the kubelet write.

    def annotate(self, annotations):
        with self._turn:
            self.node["metadata"]["annotations"] |= annotations
            self._changed()

    def write_status(self, **fields):
        """Let the kubelet write capacity or allocatable: `None` removes."""
        with self._turn:
            for field, amounts in fields.items():
                merged = {**self.node["status"][field], **amounts}
                self.node["status"][field] = {name: amount for name, amount in merged.items() if amount is not None}
            self._changed()

    def pod(self, kind, key, **fields):
        """Send a pod of this node down the watch: `ADDED`, `MODIFIED` or `DELETED`."""
        with self._turn:
            self.version += 1
            self.pods.send(kind, raw_pod(key, node="n1", version=str(self.version), **fields))

    # What can be seen.

    def wait(self, condition, patience_s=PATIENCE_S):
        """Wait until a patch has been written after which this holds of the node; return that patch."""
        while True:
            patch, node = self.patches.get(timeout=patience_s)
            if condition(node):
                return patch

    def machine_numbers(self):
        """Return the GPU instances of the first board, by NVML itself."""
        self.machine.enter()
        try:
            return self.machine.numbers(self.machine.uuids[0])
        finally:
            self.machine.leave()

    def placements(self, node):
        return json.loads(node["metadata"]["annotations"].get(names.STATUS_PLACEMENTS, "{}"))

    def _list(self, request, wire):
        with self._turn:
            body = [copy.deepcopy(self.node)]
        listing(body, self.version)(request, wire)

    def _patch(self, request, wire):
        body = json.loads(request.body)
        with self._turn:
            merge(self.node, body)
            wire.json(200, self._changed())
            self.patches.put((body, copy.deepcopy(self.node)))

    def _changed(self):
        self.version += 1
        self.node["metadata"]["resourceVersion"] = str(self.version)
        node = copy.deepcopy(self.node)
        self.nodes.send("MODIFIED", node)
        return node


def condition(node):
    """Return status, reason and message of the agent's condition."""
    found = [one for one in node["status"]["conditions"] if one["type"] == names.PARTITIONING_CONDITION]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None
