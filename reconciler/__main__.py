"""Run the reconciler: `python -m reconciler`. Stands for election and, while it leads, decides for the whole cluster."""

import gc
import math
import secrets
import socket
import time
from typing import Final

import click
import structlog

from kube import logs
from kube.client import Client
from kube.errors import ConfigError
from kube.lease import Elector, Leadership
from kube.stopping import stop_on_signals
from policies import __version__, names
from reconciler.controller import Controller
from reconciler.health import Pulse, serve

LEASE = "apportion-reconciler"

# Between collections: a plan makes many that all live until it ends, and hardly any cycle. For 1,000 nodes it takes
# 620 ms of the processor so, 720 with 10,000, and 760 with the 700 of Python.
OBJECTS: Final = 50_000


@click.command(context_settings={"auto_envvar_prefix": "APPORTION", "show_default": True})
@click.option("--kubeconfig", help="Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--namespace", default=names.SYSTEM_NAMESPACE, help="Where the Lease lives.")
@click.option("--identity", help="Unique among replicas. Default: host name and a random part.")
@click.option("--lease-seconds", default=15, type=click.IntRange(min=3), help="After which another may lead.")
@click.option("--port", default=8080, type=click.IntRange(0, 65535), help="Of /healthz, /readyz and /metrics; 0: any.")
@click.option("--dry-run", is_flag=True, help="Decide once, have the API server judge the writes, log them, and end.")
def main(
    kubeconfig: str | None, namespace: str, identity: str | None, lease_seconds: int, port: int, *, dry_run: bool
) -> None:
    """Release pods when their slices are there, and have boards cut for those that wait.

    Every option may be given as a variable too, such as APPORTION_LEASE_SECONDS. A dry run changes nothing and takes no
    lease, so it may run beside the leader.
    """
    logs.configure(**({"dry_run": True} if dry_run else {}))
    stop = stop_on_signals()
    try:
        client = Client.load(kubeconfig, user_agent=f"apportion-reconciler/{__version__}", dry_run=dry_run)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    gc.set_threshold(OBJECTS)
    pulse, renew_s = Pulse(), lease_seconds * 2 / 3

    def term(leadership: Leadership) -> Controller:
        return Controller(client, leadership, stop, pulse, write_timeout_s=lease_seconds - renew_s)

    if dry_run:
        term(Leadership(math.inf, time.monotonic)).rehearse()
    else:
        elector = Elector(
            client,
            namespace,
            LEASE,
            identity or f"{socket.gethostname()}_{secrets.token_hex(4)}",
            lease_s=lease_seconds,
            renew_s=renew_s,
            retry_s=lease_seconds / 8,
        )
        with serve(port, pulse.alive) as bound:
            structlog.get_logger().info("started", server=client.server, port=bound)
            elector.run(lambda leadership: term(leadership).run(), stop)
    client.close()


if __name__ == "__main__":
    main()
