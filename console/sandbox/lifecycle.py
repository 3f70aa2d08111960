"""A sandbox as a value: `with Sandbox.start(nodes={"a100-40": 2}) as sandbox:` for tests, benchmarks and `up` alike."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from console.sandbox import marks, rooms
from console.sandbox.apiclient import ApiClient
from console.sandbox.build import ensure_binaries
from console.sandbox.errors import SandboxError
from console.sandbox.kubectl import find_kubectl, run_kubectl
from console.sandbox.nodes import NodeGroup, parse_nodes
from console.sandbox.notices import follow
from console.sandbox.progress import Progress
from console.sandbox.rooms import Config, Room, State
from console.sandbox.services import ALL

# Ending services takes up to 5 s and the control plane 3 s more; a supervisor that needs longer is stuck.
STOP_TIMEOUT_S: Final = 30.0


class Sandbox:
    """A running control plane of this machine.

    Attributes:
        name: by which `apportion sandbox down --name` and others find it.
        kubeconfig: path of the administrator's kubeconfig.
        server_url: address of the API server, `https://127.0.0.1:<port>`.
        directory: where its files lie; logs of all processes in `logs/`.
    """

    def __init__(self, name: str, server_url: str) -> None:
        self.name = name
        self.server_url = server_url
        self.directory = rooms.root() / name
        self.kubeconfig = self.directory / "kubeconfig"

    @classmethod
    @contextmanager
    def start(
        cls,
        nodes: Mapping[str, int] | None = None,
        *,
        name: str | None = None,
        services: tuple[str, ...] = ALL,
        progress: Progress | None = None,
    ) -> Iterator["Sandbox"]:
        """Run a sandbox during the block; it ends with the block, and also if this process ends in any way.

        `nodes` maps what `--nodes` takes before the equals sign to a count: `{"a100-40x8": 2, "t4:mps": 1}`. Without a
        name it gets one of its own, so that any number run side by side. `services` are those of our processes that
        run on it; none is a bare control plane. Raises SandboxError if it cannot start, and NodesFault if the nodes
        cannot be understood.
        """
        groups = parse_nodes(",".join(f"{kind}={count}" for kind, count in (nodes or {}).items()))
        with hold(name or f"tmp-{secrets.token_hex(4)}", groups, progress or Progress(), services) as sandbox:
            yield sandbox

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl against this sandbox and return what it prints. Raises KubectlError if it fails."""
        return run_kubectl(self.directory, *arguments, stdin=stdin).stdout

    def client(self) -> ApiClient:
        """Return a connection to the API server as its administrator, for a few calls; others use `kube/`."""
        port = int(self.server_url.rpartition(":")[2])
        return ApiClient(port, self.directory / "ca.crt", (self.directory / "admin.token").read_text())


@contextmanager
def hold(
    name: str, nodes: tuple[NodeGroup, ...], progress: Progress, services: tuple[str, ...] = ALL
) -> Iterator[Sandbox]:
    """Run a sandbox during the block; see `Sandbox.start`."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as lifeline:
        with os.fdopen(read_end, "rb"):
            supervisor = launch(name, nodes, progress, services, lifeline=read_end)
        try:
            yield attach(name)
        finally:
            lifeline.close()
            _wait(supervisor, name)


def launch(
    name: str,
    nodes: tuple[NodeGroup, ...],
    progress: Progress,
    services: tuple[str, ...] = ALL,
    *,
    lifeline: int | None,
) -> subprocess.Popen[bytes]:
    """Start a sandbox, wait until it is ready and return its supervisor.

    With a lifeline (the read end of a pipe) it ends when the other end closes; without, when it is told to. Removes
    first what crashed ones left. Raises SandboxError, in words for people, if it cannot start.
    """
    if sys.platform != "linux":
        raise SandboxError(
            f"the sandbox needs Linux (this is {sys.platform}): it relies on the kernel to end processes"
        )
    rooms.check_name(name)
    find_kubectl()
    paths = ensure_binaries(progress)
    for left_behind in rooms.names():
        if rooms.clean(left_behind):
            progress.line(f"removed what a crashed sandbox left: {left_behind}")
    room = rooms.claim(name)
    if room is None:
        raise SandboxError(
            f"sandbox {name} is already running; end it by `apportion sandbox down --name {name}`, "
            "or start this one with another --name"
        )
    config = Config(
        name=name,
        id=secrets.token_hex(16),
        binaries={binary: str(path) for binary, path in paths.items()},
        nodes=nodes,
        services=services,
    )
    room.write_config(config)
    return _supervise(room, config, progress, lifeline)


def attach(name: str) -> Sandbox:
    """Return a running sandbox by name. Raises SandboxError if there is none that is ready."""
    found = running(name)
    if found is None or not found.ready:
        raise SandboxError(f"no sandbox {name} is running; `apportion sandbox up --name {name}` starts one")
    return Sandbox(name, found.server)


def running(name: str) -> State | None:
    """Return the state of a sandbox whose supervisor lives, ready or not; None if there is none."""
    config, state = rooms.read_config(name), rooms.read_state(name)
    if config is None or state is None or not marks.bears(state.supervisor, config.id):
        return None
    return state


def wait_for_end(name: str) -> None:
    """Return once a running sandbox is being ended by somebody else, or at once if there is none."""
    config, state = rooms.read_config(name), running(name)
    if config is not None and state is not None:
        marks.wait_for_end(state.supervisor, config.id)


def stop(name: str) -> bool:
    """End a running sandbox and remove its files, or those that a crashed one left; return whether there were any.

    Raises SandboxError if it is just being started: it has no process yet that could be told.
    """
    config, state = rooms.read_config(name), running(name)
    if config is not None and state is not None:
        marks.signal_process(state.supervisor, config.id, signal.SIGTERM, timeout_s=STOP_TIMEOUT_S)
    elif name not in rooms.names():
        return False
    # The supervisor has removed everything, unless it was stuck or had been killed.
    if name in rooms.names() and not rooms.clean(name):
        if config is None or state is None:
            raise SandboxError(f"sandbox {name} is just being started; try again in a second")
        marks.kill_marked(config.id)
        rooms.clean(name)
    return True


def _supervise(room: Room, config: Config, progress: Progress, lifeline: int | None) -> subprocess.Popen[bytes]:
    """Start the supervisor, which inherits the room's lock, and wait until it says that the sandbox is ready."""
    read_end, write_end = os.pipe()
    inherited = [room.lock, write_end, *([] if lifeline is None else [lifeline])]
    with os.fdopen(read_end, "rb") as notices, (room.directory / "supervisor.log").open("a+b") as log:
        supervisor = subprocess.Popen(
            # -P: a directory `console` or `kube` where the user happens to be is not ours.
            [sys.executable, "-P", "-m", "console.sandbox.supervisor", config.name, *map(str, inherited)],
            env={**os.environ, marks.VARIABLE: config.id},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=inherited,
            start_new_session=True,  # A Ctrl-C in the terminal is for the caller, which then ends the sandbox in order.
        )
        os.close(write_end)
        room.leave()
        try:
            follow(notices, progress.line)
        except BaseException as error:
            supervisor.terminate()
            _wait(supervisor, config.name)
            if isinstance(error, EOFError):
                log.seek(0)
                said = log.read().decode(errors="replace").strip()
                raise SandboxError(
                    f"the sandbox's supervisor ended with status {supervisor.returncode}:\n{said}"
                ) from error
            raise
    return supervisor


def _wait(supervisor: subprocess.Popen[bytes], name: str) -> None:
    """Wait until a supervisor that has been told to end has ended; end it and what it leaves if it does not."""
    try:
        supervisor.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()
    if name in rooms.names():
        rooms.clean(name)
