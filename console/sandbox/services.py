"""Our own processes on a sandbox: what is applied before they start, and how each is started.

They run as in production, each with the rights of its service account, as processes of this machine instead of pods.
To add one, name it in `ALL` and make its command in `install`. The supervisor starts it, waits until it is
ready, starts it again if it ends, and ends it before the control plane.

The manifests are those of production. Only how the API server reaches the webhook differs: by `clientConfig.url`. The
Deployments and the DaemonSet are applied too; their pods are shown as running by kwok, which runs no programs.
"""

import sys
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
import yaml

from console.sandbox import credentials
from console.sandbox.apiclient import ApiClient, Refused, loopback_answers
from console.sandbox.controlplane import ControlPlane
from console.sandbox.kubectl import run_kubectl
from console.sandbox.processes import Command
from policies import names

WEBHOOK: Final = "apportion-webhook"
RECONCILER: Final = "apportion-reconciler"
AGENT: Final = "apportion-agent"

ALL: Final = (WEBHOOK, RECONCILER, AGENT)

# The agent's account may change the node of its own pod only, and this one process stands for the agents of all nodes.
_AGENTS: Final = "simulated-agents"
_AGENTS_ACCOUNT: Final = (
    {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": _AGENTS, "namespace": names.SYSTEM_NAMESPACE},
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _AGENTS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AGENT},
        "subjects": [{"kind": "ServiceAccount", "name": _AGENTS, "namespace": names.SYSTEM_NAMESPACE}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": _AGENTS, "namespace": names.SYSTEM_NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": AGENT},
        "subjects": [{"kind": "ServiceAccount", "name": _AGENTS, "namespace": names.SYSTEM_NAMESPACE}],
    },
)

_TOKEN_S: Final = 90 * 24 * 3600  # as long as the other credentials of a sandbox


class _Token(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    status: _Token


def install(plane: ControlPlane, ports: Mapping[str, int]) -> tuple[Command, ...]:
    """Apply what our processes need to a ready control plane and return the commands of those that have a port.

    Without a webhook nothing is applied that would call it. Raises SandboxError if the manifests cannot be applied.
    """
    rendered = run_kubectl(plane.directory, "kustomize", str(files("manifests").joinpath("base"))).stdout
    manifests = [_reached_by_url(manifest, ports) for manifest in yaml.safe_load_all(rendered)]
    applied = yaml.safe_dump_all([*manifests, *_AGENTS_ACCOUNT])
    run_kubectl(plane.directory, "apply", "--server-side", "-f", "-", stdin=applied)
    client = ApiClient(plane.api_server_port, plane.credentials.ca, plane.admin_token)
    make = {WEBHOOK: _webhook, RECONCILER: _reconciler, AGENT: _agent}
    return tuple(make[name](plane, client, port) for name, port in ports.items())


def _webhook(plane: ControlPlane, client: ApiClient, port: int) -> Command:
    return Command(
        name=WEBHOOK,
        port=port,
        arguments=(
            *_module("webhook", _kubeconfig(plane, client, WEBHOOK)),
            f"--listen=127.0.0.1:{port}",
            "--url-host=127.0.0.1",
        ),
        ready=partial(_answers_reviews, client),
    )


def _reconciler(plane: ControlPlane, client: ApiClient, port: int) -> Command:
    return Command(
        name=RECONCILER,
        port=port,
        arguments=(*_module("reconciler", _kubeconfig(plane, client, RECONCILER)), f"--port={port}"),
        ready=partial(loopback_answers, port, "/readyz"),
    )


def _agent(plane: ControlPlane, client: ApiClient, port: int) -> Command:
    return Command(
        name=AGENT,
        port=port,
        arguments=(*_module("reconciler.agent", _kubeconfig(plane, client, _AGENTS)), "--simulated", f"--port={port}"),
        ready=partial(loopback_answers, port, "/readyz"),
        grace_s=6.0,
    )


def _module(name: str, kubeconfig: Path) -> tuple[str, ...]:
    # -P: a directory `webhook` where the sandbox's files lie would not be ours.
    return sys.executable, "-P", "-m", name, f"--kubeconfig={kubeconfig}"


def _reached_by_url(manifest: dict[str, object], ports: Mapping[str, int]) -> dict[str, object]:
    """Return a manifest; where it is a webhook configuration, with the address on this machine for the Service."""
    if manifest["kind"] not in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        return manifest
    if WEBHOOK not in ports:
        return {**manifest, "webhooks": []}
    webhooks = msgspec.convert(manifest["webhooks"], list[dict[str, object]])
    for webhook in webhooks:
        config = msgspec.convert(webhook["clientConfig"], dict[str, dict[str, str | int]])
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{ports[WEBHOOK]}{config['service']['path']}"}
    return {**manifest, "webhooks": webhooks}


def _kubeconfig(plane: ControlPlane, client: ApiClient, account: str) -> Path:
    """Write a kubeconfig with a token of a service account and return its path."""
    answer = client.create(
        f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/serviceaccounts/{account}/token",
        {"spec": {"expirationSeconds": _TOKEN_S}},
    )
    return credentials.write_kubeconfig(
        plane.directory / f"{account}.kubeconfig",
        name="sandbox",
        server=plane.server,
        ca=plane.credentials.ca,
        user=account,
        token=msgspec.json.decode(answer, type=_TokenRequest).status.token,
    )


def _answers_reviews(client: ApiClient) -> bool:
    """Return whether a pod that is created now passes our webhook: it alone knows what became of nos's scheduler."""
    pod = {
        "metadata": {"generateName": "probe-", "annotations": {"sandbox.apportion/probe": "true"}},
        "spec": {
            "schedulerName": names.NOS_SCHEDULER,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        },
    }
    try:
        made = client.create("/api/v1/namespaces/default/pods?dryRun=All", pod)
    except (OSError, Refused):
        return False
    return f'"schedulerName":"{names.DEFAULT_SCHEDULER}"'.encode() in made
