"""A real node of a sandbox's cluster: containerd 2 and a kubelet, in an enclosure of this machine.

They have the directories that they have by default, which are the enclosure's own. Pods without hostNetwork get a
network of their own with nothing in it: our CNI plugin only names an address, since no test talks to a pod, and so
there is no interface and no firewall rule to be removed.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import yaml

from console.sandbox.apiclient import Refused
from console.sandbox.lifecycle import Sandbox
from console.sandbox.ports import free_ports
from policies.model import Node as NodeObject
from tests.node.enclosure import Enclosure, Process, enclosed
from tests.node.image import IMAGE, write_image

SOCKET: Final = "/run/containerd/containerd.sock"
START_S: Final = 60.0
_POLL_S: Final = 0.05

_CONTAINERD: Final = """
version = 3
disabled_plugins = ["io.containerd.internal.v1.opt"]  # It would make /opt/containerd.

[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"  # An overlay cannot lie on the overlay of the enclosure.
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{image}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true  # Root of a virtual machine may lack CAP_SYS_RESOURCE.
disable_apparmor = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{directory}"]
conf_dir = "{directory}/cni"
use_internal_loopback = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{directory}/runc-without-seccomp"
SystemdCgroup = false
"""

# Every pod's first container is to be confined, for which runc would need libseccomp. A key that it does not know it skips.
_RUNC: Final = """\
#!/bin/sh
before=
for argument; do
    [ "$before" = --bundle ] && sed -i 's/"seccomp":{/"no-seccomp":{/' "$argument/config.json"
    before=$argument
done
exec runc "$@"
"""

_NO_NETWORK: Final = """\
#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
ADD) cat <<END ;;
{"cniVersion": "1.0.0", "interfaces": [{"name": "$CNI_IFNAME", "sandbox": "$CNI_NETNS"}],
 "ips": [{"interface": 0, "address": "10.88.0.2/24"}]}
END
esac
"""
_NETWORK: Final = '{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "no-network"}]}'


@contextmanager
def running_node(
    name: str, labels: Mapping[str, str], *, sandbox: Sandbox, programs: Mapping[str, Path], directory: Path
) -> Iterator["Node"]:
    """Run a node during the block, ready, with these labels; its files are in an empty directory. Raises Impossible."""
    with enclosed(directory) as enclosure:
        node = Node(name, enclosure, programs, sandbox)
        node.start_containerd()
        node.start_kubelet(labels)
        yield node
    sandbox.kubectl("delete", "node", name)


class Node:
    """A running node.

    Attributes:
        name: of the Node object.
        enclosure: where it runs; agents and others are started there.
        kubelet: its process, or the last one that it had.
    """

    def __init__(self, name: str, enclosure: Enclosure, programs: Mapping[str, Path], sandbox: Sandbox) -> None:
        self.name = name
        self.enclosure = enclosure
        self._programs = programs
        self._sandbox = sandbox
        # containerd finds its shim, and the shim runc, on PATH.
        path = os.pathsep.join([*(str(program.parent) for program in programs.values()), os.environ["PATH"]])
        self._environment = {"PATH": path, "HOME": str(enclosure.directory), "TMPDIR": str(enclosure.directory)}

    def start_containerd(self) -> Process:
        """Start containerd and give it the image; return its process."""
        directory = self.enclosure.directory
        config = directory / "containerd.toml"
        config.write_text(_CONTAINERD.format(image=IMAGE, directory=directory))
        for name, script in (("runc-without-seccomp", _RUNC), ("no-network", _NO_NETWORK)):
            (directory / name).write_text(script)
            (directory / name).chmod(0o755)
        (directory / "cni").mkdir()
        (directory / "cni" / "none.conflist").write_text(_NETWORK)
        process = self._start("containerd", f"--config={config}")
        wait_for(process, "socket of containerd", lambda: self.enclosure.path(SOCKET).exists())
        ctr = (self._programs["ctr"], "--namespace=k8s.io", "images", "import", "--local", "--snapshotter=native")
        self.enclosure.run(*ctr, write_image(directory), environment=self._environment)
        self._events = self._start("ctr", "--namespace=k8s.io", "events")
        return process

    def start_kubelet(self, labels: Mapping[str, str]) -> None:
        """Start the kubelet and wait until the node is ready; on its first start it makes the Node object."""
        self._labels = labels
        directory = self.enclosure.directory
        config = directory / "kubelet.yaml"
        (port,) = free_ports(1, set(), random.Random())
        config.write_text(yaml.safe_dump(_kubelet(port)))
        self.kubelet = self._start(
            "kubelet",
            f"--config={config}",
            f"--kubeconfig={self._sandbox.kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in labels.items())}",
        )
        wait_for(self.kubelet, "a ready node", self._is_ready)

    def restart_kubelet(self) -> None:
        """End the kubelet, and start it as it was; containers go on meanwhile."""
        self.kubelet.end()
        self.start_kubelet(self._labels)

    def started_at(self, container: str) -> float:
        """Return when the process of a container (`containerd://...`) was started, by containerd, in seconds since the epoch."""
        name = container.rpartition("/")[2]
        for line in self._events.log.read_text().splitlines():
            day, hour, zone, _name, _namespace, topic, what = line.split(" ", 6)
            if topic == "/tasks/start" and name in what:
                return datetime.strptime(f"{day} {hour[:15]} {zone}", "%Y-%m-%d %H:%M:%S.%f %z").timestamp()
        raise LookupError(f"{container} has not been started")

    def _start(self, program: str, *arguments: str) -> Process:
        return self.enclosure.start(program, self._programs[program], *arguments, environment=self._environment)

    def _is_ready(self) -> bool:
        with self._sandbox.client() as client, suppress(Refused):
            node = msgspec.json.decode(client.get(f"/api/v1/nodes/{self.name}"), type=NodeObject)
            return any(
                found.type == "Ready" and found.status == "True"
                for found in (node.status and node.status.conditions) or ()
            )
        return False


def wait_for(process: Process, what: str, condition: Callable[[], bool]) -> None:
    """Return once a condition holds that a process is to bring about. Raises RuntimeError with its last words if not."""
    deadline = time.monotonic() + START_S
    while not condition():
        if process.ends_within(_POLL_S) or time.monotonic() > deadline:
            raise RuntimeError(f"no {what}: {process.log.read_text(errors='replace')[-4000:]}")


def _kubelet(port: int) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": 0,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        # Cgroups for each class of pods, and bounds for all: nothing of that is tested, and not every machine allows it.
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "clusterDNS": ["10.96.0.10"],  # Nothing answers there, but without any each pod gets a warning.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # What the machine's disk and memory hold besides is no reason to evict.
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    }
