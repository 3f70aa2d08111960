"""Run node agents: `python -m reconciler.agent --simulated` serves all simulated nodes from one process."""

import signal
import threading

import click
import structlog

from kube import logs
from kube.client import Client
from kube.errors import ConfigError
from kube.events import EventRecorder, ObjectRef
from policies import __version__, names
from policies.view import PodView
from reconciler.agent.service import RESYNC_S, Service
from reconciler.agent.simulated.nodes import LATENCIES, simulated_agent
from reconciler.health import serve


@click.command(context_settings={"auto_envvar_prefix": "APPORTION", "show_default": True})
@click.option("--simulated", is_flag=True, help="Boards and kubelets in memory, for nodes without hardware.")
@click.option("--latency", default="none", type=click.Choice([*LATENCIES]), help="What simulated hardware takes.")
@click.option("--selector", default=f"{names.SIMULATED_LABEL}=true", help="Label selector of the nodes to serve.")
@click.option("--workers", default=4, type=click.IntRange(1, 64), help="Nodes worked on at a time.")
@click.option("--kubeconfig", help="Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--port", default=8081, type=click.IntRange(0, 65535), help="Of /healthz, /readyz and /metrics; 0: any.")
def main(*, simulated: bool, latency: str, selector: str, workers: int, kubeconfig: str | None, port: int) -> None:
    """Cut boards as the reconciler orders, and announce their slices.

    Every option may be given as a variable too, such as APPORTION_WORKERS.
    """
    logs.configure()
    if not simulated:
        raise click.UsageError("this version has no driver for real boards: give --simulated")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        client = Client.load(kubeconfig, user_agent=f"apportion-agent/{__version__}")
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    recorder = EventRecorder(client, "apportion-agent")

    def reject(pod: PodView, message: str) -> None:
        ref = ObjectRef(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
        recorder.record(ref, "Warning", names.ADMISSION_ERROR, message)

    service = Service(
        client,
        lambda node, pods: simulated_agent(node, pods, reject, LATENCIES[latency]),
        labels=selector,
        workers=workers,
    )
    service.start()
    with serve(port, service.alive, service.ready) as bound:
        structlog.get_logger().info("started", server=client.server, port=bound, selector=selector, latency=latency)
        while not stop.wait(RESYNC_S):
            service.resync()
        service.stop()
    recorder.close()
    client.close()
    structlog.get_logger().info("stopped")


if __name__ == "__main__":
    main()
