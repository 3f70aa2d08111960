"""Run a node agent: `python -m reconciler.agent --node-name n1` serves this machine; `--simulated` all simulated nodes."""

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import click
import structlog

from kube import logs
from kube.client import Client
from kube.errors import ConfigError
from kube.events import EventRecorder, ObjectRef
from kube.stopping import stop_on_signals
from policies import __version__, names
from policies.view import PodView
from reconciler.agent.fixed.configmaps import KubeConfigMaps
from reconciler.agent.pods import Tell
from reconciler.agent.service import RESYNC_S, Service
from reconciler.agent.simulated.nodes import LATENCIES, simulated_agent
from reconciler.health import serve

_REMOVED: Final = "this agent ends, so that the next one makes it anew; containers that were told of MIG devices go on"

_Command = TypeVar("_Command", bound=Callable[..., object])


def _directory(name: str, default: str | None, text: str) -> Callable[[_Command], _Command]:
    return click.option(name, default=default, type=click.Path(path_type=Path), help=text)


@click.command(context_settings={"auto_envvar_prefix": "APPORTION", "show_default": True})
@click.option("--node-name", default="", help="Of the node that this machine is; in a pod by the downward API.")
@_directory("--kubelet-directory", "/var/lib/kubelet", "With device-plugins and pod-resources in it.")
@_directory("--state-directory", "/var/lib/apportion", "Of what must outlive the agent, on the node.")
@click.option(
    "--device-ids",
    default="env",
    type=click.Choice(["env", "cdi"]),
    help="How containers are told their devices: by a variable, or by CDI, whose names a reboot does not change.",
)
@_directory("--cdi-directory", "/var/run/cdi", "Where the container runtime looks for CDI devices.")
@_directory("--mps-directory", "/run/apportion/mps", "Of MPS daemons: the same path on the node and here.")
@click.option("--mps-on-host", is_flag=True, help="Run MPS daemons among the files of the node, not among ours.")
@_directory(
    "--mps-cgroup", None, "Of a cgroup to move MPS daemons to, so that they outlive our container.  [default: ours]"
)
@click.option("--simulated", is_flag=True, help="Boards and kubelets in memory, for nodes without hardware.")
@click.option("--latency", default="none", type=click.Choice([*LATENCIES]), help="What simulated hardware takes.")
@click.option("--selector", default=f"{names.SIMULATED_LABEL}=true", help="Label selector of simulated nodes.")
@click.option("--workers", default=4, type=click.IntRange(1, 64), help="Simulated nodes worked on at a time.")
@click.option("--kubeconfig", help="Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--port", default=8081, type=click.IntRange(0, 65535), help="Of /healthz, /readyz and /metrics; 0: any.")
def main(
    *,
    node_name: str,
    kubelet_directory: Path,
    state_directory: Path,
    device_ids: str,
    cdi_directory: Path,
    mps_directory: Path,
    mps_on_host: bool,
    mps_cgroup: Path | None,
    simulated: bool,
    latency: str,
    selector: str,
    workers: int,
    kubeconfig: str | None,
    port: int,
) -> None:
    """Cut boards as the reconciler orders, and announce their slices.

    Every option may be given as a variable too, such as APPORTION_NODE_NAME.
    """
    logs.configure()
    if simulated is bool(node_name):
        raise click.UsageError("give --node-name (or APPORTION_NODE_NAME) to serve this machine, or else --simulated")
    stop = stop_on_signals()
    try:
        client = Client.load(kubeconfig, user_agent=f"apportion-agent/{__version__}")
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    recorder = EventRecorder(client, "apportion-agent")

    def tell(pod: PodView, reason: str, message: str) -> None:
        ref = ObjectRef(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
        recorder.record(ref, "Warning", reason, message)

    if simulated:
        _serve_simulated(client, tell, stop, port, latency=latency, selector=selector, workers=workers)
    else:
        from reconciler.agent.machine import Machine
        from reconciler.agent.mps.site import MpsSite
        from reconciler.agent.sole import sole

        service = Service(client, lambda _node, _pods: machine.agent(), node=node_name, workers=1)
        machine = Machine(
            kubelet=kubelet_directory,
            state=_made(state_directory),
            mps=MpsSite(root=mps_directory, on_host=mps_on_host, cgroup=mps_cgroup),
            tell=tell,
            config_maps=KubeConfigMaps(client),
            cdi=cdi_directory if device_ids == "cdi" else None,
            pods=partial(service.pods, node_name),
            changed=service.resync,
        )
        begun = threading.Event()
        with contextlib.ExitStack() as stack:
            bound = _answering(
                stack,
                port,
                lambda: not begun.is_set() or (service.alive() and machine.alive()),
                lambda: begun.is_set() and service.ready(),
            )
            if hold := stack.enter_context(sole(state_directory, stop)):
                service.start()
                machine.start()
                begun.set()
                structlog.get_logger().info("started", server=client.server, port=bound, node=node_name)
                # Beside the passes, so that it is also said of one that hangs.
                if not _run(service, stop, lambda: service.say_if_hung(machine.silent) or hold.lasts()):
                    structlog.get_logger().error(
                        "state_directory_removed", directory=str(state_directory), hint=_REMOVED
                    )
                if not service.say_if_hung(machine.silent):
                    service.say(machine.conclude)
                machine.close()
    recorder.close()
    client.close()
    structlog.get_logger().info("stopped")


def _serve_simulated(
    client: Client, tell: Tell, stop: threading.Event, port: int, *, latency: str, selector: str, workers: int
) -> None:
    config_maps = KubeConfigMaps(client)
    service = Service(
        client,
        lambda node, pods: simulated_agent(node, pods, tell, LATENCIES[latency], config_maps),
        labels=selector,
        workers=workers,
    )
    with contextlib.ExitStack() as stack:
        bound = _answering(stack, port, service.alive, service.ready)
        service.start()
        structlog.get_logger().info("started", server=client.server, port=bound, selector=selector, latency=latency)
        _run(service, stop)


def _answering(stack: contextlib.ExitStack, port: int, alive: Callable[[], bool], ready: Callable[[], bool]) -> int:
    """Answer probes until the stack is left; return the port."""
    try:
        return stack.enter_context(serve(port, alive, ready))
    except OSError as error:
        raise click.ClickException(f"--port {port}: {error.strerror}") from error


def _made(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"--state-directory: {error}") from error
    return directory


def _run(service: Service, stop: threading.Event, may_go_on: Callable[[], bool] = lambda: True) -> bool:
    """Serve until this is to stop, or may not go on; return whether it may."""
    while (may := may_go_on()) and not stop.wait(RESYNC_S):
        service.resync()
    service.stop()
    return may


if __name__ == "__main__":
    main()
