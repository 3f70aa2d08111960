"""The processes of this node: to which pod one belongs, and its name for people, who know pods and programs and no PIDs.

A process is in the cgroup of its container, and that in the cgroup of its pod, which the kubelet names by the pod's uid:

    0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c..._..slice/cri-containerd-4711.scope    v2, systemd
    4:memory:/kubepods/burstable/pod1b2c...-.../4711                                                               v1, cgroupfs
"""

import re
from pathlib import Path
from typing import Final

from reconciler.agent.pods import Pods

# The pod of our kubelet is the first one of a path: a pod in which a kubelet runs has more of them inside. systemd's names
# have _ for -, since - means "below"; a static pod's uid is a hash without either.
_POD: Final = re.compile(
    r"kubepods(?:[^/]*/)+?(?:[^/]*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=[/:]|$)"
)


class Processes:
    """The processes of this node. Any thread may ask.

    Args:
        pods: the pods of the node.
        proc: where the node's processes are; in the agent's pod its own, by `hostPID`.
    """

    def __init__(self, pods: Pods, proc: Path = Path("/proc")) -> None:
        self._pods, self._proc = pods, proc

    def name(self, pid: int) -> str:
        """Return PID, program and pod, as `4711 python of pod team-a/train`, as far as they can be known."""
        program, uid = self._read(pid, "comm").strip(), self.pod(pid)
        words = [str(pid), *([program] if program else [])]
        if uid:
            words.append(f"of pod {next((pod.key for pod in self._pods() if pod.uid == uid), uid)}")
        return " ".join(words)

    def pod(self, pid: int) -> str | None:
        """Return the uid of the pod of a process; None if it is of none, or has ended."""
        return pod_of(self._read(pid, "cgroup"))

    def _read(self, pid: int, name: str) -> str:
        try:
            return (self._proc / str(pid) / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def pod_of(cgroups: str) -> str | None:
    """Return the uid of the pod of a process by its `/proc/PID/cgroup`; None if it is in none."""
    for line in cgroups.splitlines():
        *_, path = line.split(":", 2)
        if match := _POD.search(path):
            return match[1].replace("_", "-")
    return None
