"""Where nodes run: their programs on this machine, if it is one for that, and the cluster that they join."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from console.sandbox.build import ensure_binaries
from console.sandbox.lifecycle import Sandbox
from console.sandbox.progress import Progress
from console.sandbox.services import AGENT, RECONCILER, WEBHOOK
from policies import names
from tests.node.enclosure import Impossible, enclosed
from tests.node.image import IMAGE, PROGRAM
from tests.node.programs import NODE_PROGRAMS


def find_programs(trial: Path, progress: Progress) -> Mapping[str, Path]:
    """Return the programs of a node by name, once it is known that one can run here; `trial` is an empty directory.

    The first call on a machine builds them, which takes some minutes. Raises Impossible.
    """
    if shutil.which("gcc") is None:
        raise Impossible("gcc is not installed, with which runc, the image and the mock NVML are built")
    with enclosed(trial):
        pass
    return ensure_binaries(progress, NODE_PROGRAMS)


@contextmanager
def empty_cluster() -> Iterator[Sandbox]:
    """Run a control plane without nodes during the block, with our webhook and reconciler as in production.

    They run as processes of the sandbox, so their Deployments want no pods. Those of the DaemonSet hold what the agent
    is given on a node, its rights and directories, while it runs as a process of the node.
    """
    agent = {"name": "agent", "image": IMAGE, "imagePullPolicy": "Never", "command": [PROGRAM]}
    template = {"spec": {"containers": [{**agent, "livenessProbe": None, "readinessProbe": None}]}}
    with Sandbox.start({}, services=(WEBHOOK, RECONCILER)) as sandbox:
        system = f"--namespace={names.SYSTEM_NAMESPACE}"
        sandbox.kubectl("scale", system, "--replicas=0", f"deployment/{WEBHOOK}", f"deployment/{RECONCILER}")
        sandbox.kubectl("patch", system, f"daemonset/{AGENT}", "--patch", json.dumps({"spec": {"template": template}}))
        yield sandbox
