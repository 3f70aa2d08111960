"""Run the reconciler: `python -m reconciler`. Stands for election and, while it leads, decides for the whole cluster."""

import secrets
import signal
import socket
import threading

import click
import structlog

from kube import logs
from kube.client import Client
from kube.errors import ConfigError
from kube.lease import Elector, Leadership
from policies import __version__, names
from reconciler.controller import Controller
from reconciler.health import Pulse, serve

LEASE = "apportion-reconciler"


@click.command(context_settings={"auto_envvar_prefix": "APPORTION", "show_default": True})
@click.option("--kubeconfig", help="Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--namespace", default=names.SYSTEM_NAMESPACE, help="Where the Lease lives.")
@click.option("--identity", help="Unique among replicas. Default: host name and a random part.")
@click.option("--lease-seconds", default=15, type=click.IntRange(min=3), help="After which another may lead.")
@click.option("--port", default=8080, type=click.IntRange(0, 65535), help="Of /healthz, /readyz and /metrics; 0: any.")
def main(kubeconfig: str | None, namespace: str, identity: str | None, lease_seconds: int, port: int) -> None:
    """Release pods when their slices are there, and have boards cut for those that wait.

    Every option may be given as a variable too, such as APPORTION_LEASE_SECONDS.
    """
    logs.configure()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        client = Client.load(kubeconfig, user_agent=f"apportion-reconciler/{__version__}")
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    renew_s = lease_seconds * 2 / 3
    elector = Elector(
        client,
        namespace,
        LEASE,
        identity or f"{socket.gethostname()}_{secrets.token_hex(4)}",
        lease_s=lease_seconds,
        renew_s=renew_s,
        retry_s=lease_seconds / 8,
    )

    pulse = Pulse()

    def work(leadership: Leadership) -> None:
        Controller(client, leadership, stop, pulse, write_timeout_s=lease_seconds - renew_s).run()

    with serve(port, pulse.alive) as bound:
        structlog.get_logger().info("started", server=client.server, port=bound)
        elector.run(work, stop)
    client.close()


if __name__ == "__main__":
    main()
