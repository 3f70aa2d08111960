"""The first process of the enclosure: it makes the node's own view of the machine, says so, and waits.

What a kubelet and containerd change on a machine happens on copies: the directories that they use by default lie under
an overlay in memory, cgroups begin at ours, and the kernel's settings that a kubelet insists on are files that have
them already. It ends when its standard input closes, and the kernel then ends all other processes of the enclosure.

Run by `enclosure` as `python -P inside.py DIRECTORY`, in mount, pid and cgroup namespaces of its own.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Where programs of a node keep their things unless told otherwise: plugins find the kubelet's sockets only there.
PRIVATE = ("/run", "/var/lib", "/var/log")

# Below it in each hierarchy is all that the node sees of cgroups.
CGROUP = "apportion-node-test"

# What a kubelet sets if it does not find it so (setupKernelTunables).
TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def main(directory: Path) -> None:
    """Prepare, write `ready`, and wait for the end of standard input."""
    # Nothing reaches the machine, but containers of the node see what is mounted on it.
    mount("--make-rprivate", "/")
    mount("--make-rshared", "/")
    mount("-t", "proc", "proc", "/proc")
    mount("-t", "tmpfs", "tmpfs", str(directory))
    for place in PRIVATE:
        upper, work = (directory / kind / place[1:] for kind in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        mount("-t", "overlay", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={work}", place)
    for hierarchy in cgroup_hierarchies():
        mount("--bind", str(hierarchy / CGROUP), str(hierarchy))
    for name, value in TUNABLES.items():
        mine = directory / name.replace("/", ".")
        mine.write_text(f"{value}\n")
        mount("--bind", str(mine), f"/proc/sys/{name}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Orphans are its children: the kernel reaps them.
    print("ready", flush=True)
    sys.stdin.read()


def cgroup_hierarchies() -> Iterator[Path]:
    """Return where each hierarchy of cgroups is mounted: one of version 2, several of version 1."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted, _, what = line.partition(" - ")
        if what.split()[0] in ("cgroup", "cgroup2"):
            yield Path(mounted.split()[4])


def mount(*arguments: str) -> None:
    """Call mount(8). Raises CalledProcessError; its words are on standard error."""
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
