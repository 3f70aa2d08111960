"""Run the admission webhook: `python -m webhook`. Every replica serves; there is no leader among them."""

import functools
from pathlib import Path

import click
from msgspec import Struct

from certs.keeper import Keeper
from certs.mounted import Mounted
from certs.store import CONFIGURATION, CertificateStore
from kube import logs
from kube.client import Client
from kube.errors import ConfigError
from policies import __version__, names
from webhook.app import create_app
from webhook.metrics import Metrics
from webhook.review import mutate, validate
from webhook.server import Server, Serving
from webhook.view import ClusterView
from webhook.worker import THREADS, Worker

_USER_AGENT = f"apportion-webhook/{__version__}"


class Options(Struct, frozen=True, kw_only=True):
    """What a replica needs to know beside the cluster."""

    kubeconfig: str | None
    namespace: str
    names: tuple[str, ...]  # DNS names and addresses by which the API server calls
    configuration: str
    tls_dir: Path | None


@click.command(context_settings={"auto_envvar_prefix": "APPORTION", "show_default": True})
@click.option("--kubeconfig", help="Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--listen", default="0.0.0.0:8443", help="Address and port.")
@click.option("--namespace", default=names.SYSTEM_NAMESPACE, help="Of the Service and of the certificates' Secret.")
@click.option("--service", default="apportion-webhook", help="The Service by which the API server calls.")
@click.option("--url-host", multiple=True, help="A name or address by which it calls without a Service; repeatable.")
@click.option("--configuration", default=CONFIGURATION, help="Name of both webhook configurations: gets the caBundle.")
@click.option(
    "--tls-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Serve tls.crt and tls.key from here, and leave Secret and caBundle to others (cert-manager).",
)
@click.option("--drain-seconds", default=0.0, type=click.FloatRange(0, 300), help="How long to answer after SIGTERM.")
def main(  # noqa: PLR0917 - click passes by name
    kubeconfig: str | None,
    listen: str,
    namespace: str,
    service: str,
    url_host: tuple[str, ...],
    configuration: str,
    tls_dir: Path | None,
    drain_seconds: float,
) -> None:
    """Answer admission reviews over HTTPS, from memory.

    Every option may be given as a variable too, such as APPORTION_LISTEN.
    """
    logs.configure()
    try:
        Client.load(kubeconfig, user_agent=_USER_AGENT).close()  # a fault in it should end us here, not in a worker
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    options = Options(
        kubeconfig=kubeconfig,
        namespace=namespace,
        names=(f"{service}.{namespace}.svc", *url_host),
        configuration=configuration,
        tls_dir=tls_dir,
    )
    Server(functools.partial(serve, options), listen=listen, drain_s=drain_seconds).run()


def serve(options: Options, worker: Worker) -> Serving:
    """Start what a worker needs, and return what it serves. Nothing here waits for the API server."""
    client = Client.load(options.kubeconfig, user_agent=_USER_AGENT)
    view = ClusterView(client)
    view.start()
    certificates = _certificates(client, options)
    certificates.start()
    metrics = Metrics()
    metrics.watch_load(lambda: worker.busy, THREADS)
    metrics.watch_certificate(certificates.context.expires_at)

    def unready() -> list[str]:
        return [reason for reason in (certificates.fault, "shutting down" if worker.draining else None) if reason]

    def close() -> None:
        view.stop()
        certificates.stop()
        client.close()

    app = create_app(
        mutate=lambda body: mutate(body, view),
        validate=lambda body: validate(body, view),
        synced=view.synced,
        unready=unready,
        metrics=metrics,
    )
    return Serving(app=app, context=certificates.context.current, close=close)


def _certificates(client: Client, options: Options) -> Keeper | Mounted:
    if options.tls_dir:
        return Mounted(options.tls_dir)
    store = CertificateStore(client, namespace=options.namespace, configuration=options.configuration)
    return Keeper(store, options.names)


if __name__ == "__main__":
    main()
