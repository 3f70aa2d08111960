"""To which pod a process belongs, and what the pods of a board use; pure.

A process is in the cgroup of its container, and that in the cgroup of its pod, which the kubelet names by the pod's uid:

    0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c..._..slice/cri-containerd-4711.scope    v2, systemd
    4:memory:/kubepods/burstable/pod1b2c...-.../4711                                                               v1, cgroupfs
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

# The pod of our kubelet is the first one of a path: a pod in which a kubelet runs has more of them inside. systemd's names
# have _ for -, since - means "below"; a static pod's uid is a hash without either.
_POD: Final = re.compile(
    r"kubepods(?:[^/]*/)+?(?:[^/]*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=[/:]|$)"
)


class Process(msgspec.Struct, frozen=True):
    """A process that uses a board: its PID, and the memory that it has there, in MiB."""

    pid: int
    mib: int


def pod_of(cgroups: str) -> str | None:
    """Return the uid of the pod of a process by its `/proc/PID/cgroup`; None if it is in none."""
    for line in cgroups.splitlines():
        *_, path = line.split(":", 2)
        if match := _POD.search(path):
            return match[1].replace("_", "-")
    return None


def memory_by_pod(processes: Iterable[Process], pods: Mapping[int, str]) -> Counter[str]:
    """Return uid of a pod -> MiB that its processes have together; `pods`: of those PIDs whose pod is known."""
    used: Counter[str] = Counter()
    for process in processes:
        if uid := pods.get(process.pid):
            used[uid] += process.mib
    return used
