"""A real node with boards: our agent on it as in production, with NVIDIA's library and MPS program replaced by stand-ins.

The agent runs among the node's programs, as the service account of its DaemonSet and with a token for the pod that the
DaemonSet has there, so that it may do what it may do in production and nothing else.
"""

import json
import os
import random
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pynvml

from console.sandbox import credentials
from console.sandbox.apiclient import loopback_answers
from console.sandbox.lifecycle import Sandbox
from console.sandbox.ports import free_ports
from console.sandbox.services import AGENT
from policies import names
from tests.mps.standin import program as mps_program
from tests.node.node import Node, running_node, wait_for
from tests.nvml.library import library
from tests.nvml.machine import Machine

_TOKEN_S: Final = 3600
_COMPLAINT: Final = re.compile('"level": "error"|Traceback|Error:')
_SYSTEM: Final = f"--namespace={names.SYSTEM_NAMESPACE}"


class GpuNode:
    """A node with boards, and the agent that serves it.

    Attributes:
        node: its kubelet and containers.
        machine: its boards, by the mock of NVML.
        pod: name of the DaemonSet's pod on it.
        agent: the agent's process, or the last one that there was.
    """

    def __init__(self, node: Node, machine: Machine, sandbox: Sandbox, options: Sequence[str]) -> None:
        self.node = node
        self.machine = machine
        self._sandbox = sandbox
        self._options = options
        self.pod, uid = self._daemon_sets_pod()
        self._kubeconfig = self._as_the_pod(uid)
        self.start_agent()

    def start_agent(self) -> None:
        """Start the agent and wait until it is ready."""
        (port,) = free_ports(1, set(), random.Random())
        self.agent = self.node.enclosure.start(
            "agent",
            sys.executable,
            "-P",
            "-m",
            "reconciler.agent",
            f"--node-name={self.node.name}",
            f"--kubeconfig={self._kubeconfig}",
            f"--port={port}",
            *self._options,
            environment={
                "PATH": os.pathsep.join([str(mps_program().parent), os.defpath]),
                "LD_LIBRARY_PATH": str(library().parent),
                **self.machine.environment,
            },
        )
        wait_for(self.agent, "ready agent", partial(loopback_answers, port, "/readyz"))

    def stop_agent(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the agent by a signal and return its exit status."""
        return self.agent.end(number)

    def instances(self) -> dict[str, tuple[int, int, int]]:
        """Return what there is on the boards, by NVML: UUID of the MIG device -> board, id of the profile, start."""
        with self._nvml():
            return {
                uuid: (index, *where)
                for index, board in enumerate(self.machine.uuids)
                for uuid, where in _instances(pynvml.nvmlDeviceGetHandleByUUID(board))
            }

    def gpu_instances(self) -> int:
        """Return how many GPU instances there are, with those that have no compute instance."""
        with self._nvml():
            return sum(len(self.machine.numbers(board)) for board in self.machine.uuids)

    def annotation(self, name: str) -> Any:
        """Return what an annotation of the node says, in JSON; None if there is none."""
        node = json.loads(self._sandbox.kubectl("get", "node", self.node.name, "--output=json"))
        return json.loads(node["metadata"]["annotations"].get(name, "null"))

    def lose_power(self, *, renumbered: bool = False) -> None:
        """Let the boards be as after a reboot, and the agent start anew; the kubelet and the containers know nothing of it.

        NVML may number the boards anew: the last is the first then.
        """
        self.stop_agent()
        with self._nvml():
            self.machine.reboot(renumbered=renumbered)
        self.start_agent()

    def agent_mib(self) -> int:
        """Return how much memory the agent occupies (its resident set), in MiB."""
        status = Path(f"/proc/{self.agent.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) // 1024

    @contextmanager
    def _nvml(self) -> Iterator[None]:
        self.machine.enter()
        pynvml.nvmlInit()
        try:
            yield
        finally:
            self.machine.leave()

    def _daemon_sets_pod(self) -> tuple[str, str]:
        """Return name and uid of the pod of our DaemonSet, once it runs."""
        template = '{range .items[?(@.status.phase=="Running")]}{.metadata.name} {.metadata.uid}{end}'
        get = (
            "get", "pods", _SYSTEM, "--selector=app.kubernetes.io/component=agent",
            f"--field-selector=spec.nodeName={self.node.name}", f"--output=jsonpath={template}",
        )  # fmt: skip
        found: list[str] = []

        def runs() -> bool:
            found[:] = self._sandbox.kubectl(*get).split()
            return bool(found)

        wait_for(self.node.kubelet, "pod of the DaemonSet", runs)
        name, uid = found
        return name, uid

    def _as_the_pod(self, uid: str) -> Path:
        """Write a kubeconfig with a token such as the kubelet gives to that pod, and return its path."""
        token = self._sandbox.kubectl(
            "create", "token", AGENT, _SYSTEM, f"--duration={_TOKEN_S}s",
            "--bound-object-kind=Pod", f"--bound-object-name={self.pod}", f"--bound-object-uid={uid}",
        )  # fmt: skip
        return credentials.write_kubeconfig(
            self.node.enclosure.directory / "agent.kubeconfig",
            name="node",
            server=self._sandbox.server_url,
            ca=self._sandbox.directory / "ca.crt",
            user=AGENT,
            token=token.strip(),
        )


@contextmanager
def gpu_node(
    name: str,
    *products: str,
    mode: str,
    sandbox: Sandbox,
    programs: Mapping[str, Path],
    directory: Path,
    options: Sequence[str] = (),
) -> Iterator[GpuNode]:
    """Run a node with these boards in this mode, and its agent with these options, during the block; see `running_node`."""
    for part in ("machine", "node"):
        (directory / part).mkdir()
    machine = Machine(directory / "machine", *products, mig=mode == names.MIG)
    labels = {
        names.PARTITIONING_LABEL: mode,
        names.PRODUCT_LABEL: products[0],
        names.COUNT_LABEL: str(len(products)),
    }
    with running_node(name, labels, sandbox=sandbox, programs=programs, directory=directory / "node") as node:
        gpus = GpuNode(node, machine, sandbox, options)
        yield gpus
        complaints = [line for line in gpus.agent.log.read_text().splitlines() if _COMPLAINT.search(line)]
        assert not complaints, "nothing that a person has to look at, and no error that nobody expects"


def _instances(board: object) -> Iterator[tuple[str, tuple[int, int]]]:
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(board)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board, index)
        except pynvml.NVMLError_NotFound:
            continue
        number = pynvml.nvmlDeviceGetGpuInstanceId(device)
        info = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(board, number))
        yield pynvml.nvmlDeviceGetUUID(device), (info.profileId, info.placement.start)
