"""The cgroups of an enclosure: one below the root of each hierarchy of this machine, one hierarchy with version 2, several with 1.

The enclosure sees nothing above them. Its processes are in a leaf, since in version 2 no cgroup has both processes and
controlled children.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.node.inside import CGROUP, cgroup_hierarchies

_LEAF: Final = "processes"

# What runc sets for a container. In version 2 the root gives its children only what is enabled there.
_NEEDED: Final = {"cpu", "memory", "pids"}


def ours() -> list[Path]:
    """Return the cgroup of the enclosure in each hierarchy, whether or not they exist."""
    return [hierarchy / CGROUP for hierarchy in cgroup_hierarchies()]


def root() -> Path:
    """Return a directory of this machine that everybody who makes them finds."""
    return next(cgroup_hierarchies())


@contextmanager
def made() -> Iterator[None]:
    """Have them during the block, and none before or after. Raises OSError if this machine does not let us."""
    remove()  # those of a run that was killed
    enabled = _enable()
    try:
        for cgroup in ours():
            _make(cgroup)
        yield
    finally:
        remove()
        for controllers, name in enabled:
            controllers.write_text(f"-{name}")


def enter() -> None:
    """Move this process to where the enclosure's view begins."""
    _join(ours())


def enter_leaf() -> None:
    """Move this process to where those of the enclosure are, as seen from outside."""
    _join([cgroup / _LEAF for cgroup in ours()])


def processes() -> list[int]:
    """Return the ids of the processes that the enclosure was started with and that are not of containers."""
    return [int(line) for line in (ours()[0] / _LEAF / "cgroup.procs").read_text().split()]


def remove() -> None:
    """Remove them with all below them. They hold no process any more, or another's, and then an error says so."""
    for top in ours():
        for directory, _, _ in os.walk(top, topdown=False):
            Path(directory).rmdir()


def _enable() -> list[tuple[Path, str]]:
    """Enable what is needed and is not enabled yet; return the files and what was added to them."""
    enabled = []
    for hierarchy in cgroup_hierarchies():
        controllers = hierarchy / "cgroup.subtree_control"
        if controllers.exists():  # version 2
            offered = set((hierarchy / "cgroup.controllers").read_text().split())
            for name in sorted(_NEEDED & offered - set(controllers.read_text().split())):
                controllers.write_text(f"+{name}")
                enabled.append((controllers, name))
    return enabled


def _make(cgroup: Path) -> None:
    for path in (cgroup, cgroup / _LEAF):
        path.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):  # In version 1 they begin empty, and no process may join.
            if (path / "cgroup.clone_children").exists() and (path / name).exists():
                (path / name).write_text((path.parent / name).read_text())


def _join(cgroups: list[Path]) -> None:
    for cgroup in cgroups:
        (cgroup / "cgroup.procs").write_text("0")
