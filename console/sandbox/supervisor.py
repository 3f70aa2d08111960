"""The process that looks after a sandbox: it boots it, keeps its processes running, and ends and removes all of it.

It ends on SIGTERM, SIGINT or SIGHUP, or when its lifeline closes: a pipe whose other end is held by whoever started
the sandbox for as long as they need it. If it is itself killed, the kernel ends its processes (see `processes`) and
frees its lock, and the next start removes its files (see `rooms`).

Run as `python -P -m console.sandbox.supervisor NAME LOCK NOTIFY [LIFELINE]`; the latter three are descriptors.
"""

import os
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import structlog

from console.sandbox import binaries, controlplane, marks, rooms, services
from console.sandbox.apiclient import ApiClient, Refused
from console.sandbox.controlplane import ControlPlane
from console.sandbox.crew import Crew, Stopped
from console.sandbox.errors import SandboxError
from console.sandbox.interrupts import Interrupts
from console.sandbox.locks import exclusive
from console.sandbox.nodes import node_names, node_objects
from console.sandbox.notices import Notice, notifier
from console.sandbox.ports import free_ports
from console.sandbox.processes import Command
from console.sandbox.readiness import cluster_ready, server_version
from console.sandbox.rooms import Config, Room, State
from kube import logs

_log = structlog.get_logger()


class Supervisor:
    """Runs one sandbox, from an empty room to a removed one. Everything happens in the thread that calls `run`."""

    def __init__(
        self,
        room: Room,
        config: Config,
        *,
        pause: Callable[[float | None], bool],
        notify: Callable[[Notice], None],
    ) -> None:
        """Take a claimed, empty room. `pause` is that of `Crew`; `notify` is called as the start goes on."""
        self._room = room
        self._config = config
        self._notify = notify
        self._state = State(supervisor=os.getpid())
        environment = controlplane.base_environment(room.directory) | {marks.VARIABLE: config.id}
        self._crew = Crew(room.directory, environment, pause=pause, on_change=self._record)

    def run(self) -> bool:
        """Boot, look after the processes until the sandbox is to end, then end and remove all of it.

        Returns whether it went well; what did not has been notified.
        """
        try:
            self._boot()
            self._notify(Notice(ready=True))
            self._crew.look_after()
        except Stopped:
            _log.info("stopped_while_starting")
        except SandboxError as error:
            _log.error("sandbox_failed", reason=str(error))
            self._notify(Notice(failed=str(error)))
            return False
        finally:
            # Our processes end in order while the API server still takes their last words, such as a released Lease.
            self._crew.end(last=(binaries.API_SERVER.name, binaries.ETCD.name))
            self._room.remove()
        return True

    def _boot(self) -> None:
        began = time.monotonic()
        plane, service_ports = self._prepare()
        self._step(controlplane.etcd(plane), controlplane.api_server(plane))
        with ApiClient(plane.api_server_port, plane.credentials.ca, plane.admin_token) as client:
            version = self._create_nodes(client)
            self._step(controlplane.scheduler(plane), controlplane.controller_manager(plane), controlplane.kwok(plane))
            nodes = node_names(self._config.nodes)
            self._crew.wait_until(lambda: cluster_ready(client, nodes), "nodes and the service account of pods")
        if self._config.services:
            self._step(*services.install(plane, service_ports))
        self._change(ready=True, version=version, boot_s=round(time.monotonic() - began, 2))

    def _create_nodes(self, client: ApiClient) -> str:
        """Create the simulated nodes and return the version of Kubernetes, which is also that of their kubelets."""
        try:
            version = server_version(client)
            for node in node_objects(self._config.nodes, version):
                client.create("/api/v1/nodes", node)
        except (OSError, Refused) as error:
            raise SandboxError(f"the API server does not take the nodes: {error}") from error
        return version

    def _prepare(self) -> tuple[ControlPlane, dict[str, int]]:
        """Take free ports, so that no other sandbox does, and write the files of the control plane."""
        with exclusive(rooms.root()):
            ports = free_ports(3 + len(self._config.services), rooms.taken_ports(), random.SystemRandom())
            self._change(ports=tuple(ports))
        plane = controlplane.prepare(
            self._config.name,
            self._room.directory,
            self._config.binaries,
            ports[:3],
            now=datetime.now(UTC),
        )
        self._change(server=plane.server)
        return plane, dict(zip(self._config.services, ports[3:], strict=True))

    def _step(self, *commands: Command) -> None:
        began = time.monotonic()
        names = ", ".join(command.name for command in commands)
        self._crew.start(commands)
        self._crew.wait_until(lambda: all(command.ready() for command in commands), names)
        self._notify(Notice(step=f"{names}: ready after {time.monotonic() - began:.1f} s"))

    def _change(self, **changes: object) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        self._record()

    def _record(self) -> None:
        self._room.write_state(msgspec.structs.replace(self._state, processes=self._crew.states()))


def main(arguments: list[str]) -> int:
    """Run the supervisor with the arguments of the command line and return its exit status."""
    logs.configure()
    name, lock, notify, *lifeline = arguments
    interrupts = Interrupts(int(lifeline[0]) if lifeline else None)
    room = Room(rooms.root() / name, int(lock))
    config = rooms.read_config(name)
    if config is None:
        raise SystemExit(f"{room.directory}: no config.json")
    with os.fdopen(int(notify), "wb", buffering=0) as pipe:
        supervisor = Supervisor(room, config, pause=interrupts.pause, notify=notifier(pipe))
        return 0 if supervisor.run() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
