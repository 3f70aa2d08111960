"""`apportion sandbox status`: what runs, where, with which nodes and versions."""

import resource
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from console.output import TABLE, output_option, show
from console.sandbox import lifecycle, marks, rooms
from console.sandbox.apiclient import Refused
from console.sandbox.readiness import list_nodes
from console.sandbox.rooms import State
from policies import names
from policies.model import Node


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the API server has it now."""

    name: str
    ready: bool
    product: str
    boards: str
    mode: str


class ProcessLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A process as the kernel has it now; `pid` is null while it has ended and waits to be started again."""

    name: str
    pid: int | None
    port: int | None
    memory_mib: int = msgspec.field(name="memoryMiB")
    restarts: int


class SandboxLine(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox.

    `state` is `running`; `starting`; `degraded` if its API server does not answer or a process is missing; `crashed`
    if nobody looks after it any longer.
    """

    name: str
    state: str
    directory: str
    kubeconfig: str = ""
    server: str = ""
    version: str = ""
    nodes: tuple[NodeLine, ...] = ()
    processes: tuple[ProcessLine, ...] = ()


@click.command()
@click.option("--name", help="Only this one.")
@output_option
def status(name: str | None, output: str) -> None:
    """Show the sandboxes of this machine. Exit status 1 if none runs or one is not well.

    \b
    Example:
      apportion sandbox status -o json
    """
    lines = [_look(found) for found in rooms.names() if name in (None, found)]
    if output == TABLE:
        click.echo("\n\n".join(_table(line) for line in lines) or "no sandbox; `apportion sandbox up` starts one")
    else:
        show({"sandboxes": lines}, output)
    if not lines or any(line.state != "running" for line in lines):
        sys.exit(1)


def _look(name: str) -> SandboxLine:
    directory = rooms.root() / name
    state = lifecycle.running(name)
    if state is None:
        return SandboxLine(name=name, state="starting" if rooms.is_held(name) else "crashed", directory=str(directory))
    processes = _processes(name, state)
    nodes = _nodes(name) if state.ready else None
    well = nodes is not None and all(process.pid for process in processes)
    return SandboxLine(
        name=name,
        state="running" if well else "degraded" if state.ready else "starting",
        directory=str(directory),
        kubeconfig=str(directory / "kubeconfig"),
        server=state.server,
        version=state.version,
        nodes=nodes or (),
        processes=processes,
    )


def _nodes(name: str) -> tuple[NodeLine, ...] | None:
    """Return the nodes as the API server has them; None if it does not answer."""
    with lifecycle.attach(name).client() as client:
        try:
            return tuple(map(_node, list_nodes(client)))
        except (OSError, Refused):
            return None


def _node(node: Node) -> NodeLine:
    labels = node.metadata.labels or {}
    conditions = (node.status.conditions if node.status else None) or ()
    return NodeLine(
        name=node.metadata.name or "",
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in conditions),
        product=labels.get(names.PRODUCT_LABEL, ""),
        boards=labels.get(names.COUNT_LABEL, ""),
        mode=labels.get(names.PARTITIONING_LABEL, ""),
    )


def _processes(name: str, state: State) -> tuple[ProcessLine, ...]:
    config = rooms.read_config(name)
    lines = []
    for process in state.processes:
        pid = process.pid if process.pid and config and marks.bears(process.pid, config.id) else None
        lines.append(
            ProcessLine(
                name=process.name,
                pid=pid,
                port=process.port,
                memory_mib=_memory_mib(pid) if pid else 0,
                restarts=process.restarts,
            )
        )
    return tuple(lines)


def _memory_mib(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has just ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize() // 2**20


def _table(line: SandboxLine) -> str:
    if line.state == "crashed":
        return f"{line.name}  crashed; `apportion sandbox down --name {line.name}` removes what it left"
    rows = [
        (line.name, f"{line.state}  Kubernetes {line.version}  {line.server}"),
        ("", f"KUBECONFIG={line.kubeconfig}"),
    ]
    for kind, alike in _alike(line.nodes).items():
        more = f" and {len(alike) - 1} alike" if len(alike) > 1 else ""
        rows.append((f"  {alike[0]}{more}", kind))
    for process in line.processes:
        port = f"  127.0.0.1:{process.port}" if process.port else ""
        restarts = f"  restarted {process.restarts} times" if process.restarts else ""
        runs = f"{process.memory_mib:4d} MiB  pid {process.pid}" if process.pid else "ended, starts again"
        rows.append((f"  {process.name}", f"{runs}{port}{restarts}"))
    width = max(len(left) for left, _ in rows) + 2
    return "\n".join(f"{left:{width}}{right}" for left, right in rows)


def _alike(nodes: Iterable[NodeLine]) -> dict[str, list[str]]:
    """Return the names of nodes by what is to be said of each: of 1,000 nodes most are alike."""
    kinds: dict[str, list[str]] = {}
    for node in nodes:
        ready = "" if node.ready else "  not ready"
        kinds.setdefault(f"{node.boards} x {node.product}  {node.mode}{ready}", []).append(node.name)
    return kinds
