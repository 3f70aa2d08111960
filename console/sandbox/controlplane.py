"""How the control plane's programs are started: files they read and arguments, tuned for few cores and low latency.

Nothing is kept beyond the life of a sandbox, so etcd need not wait for the disk. Clients of the API server are not
held to the request rates that protect a shared one: 20 a second would be what a test measures.
"""

import os
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
import yaml

from console.sandbox import binaries, credentials
from console.sandbox.apiclient import ApiClient
from console.sandbox.processes import Command

_RATE: Final = {"qps": 1000, "burst": 2000}

# What Deployments, StatefulSets, DaemonSets, Jobs, namespaces, service accounts, roles, eviction and budgets need. Left out:
# volumes, services and cloud, which cost start-up time and watches, and have nothing to act on here.
_CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)

# They are killed without grace: what they would save on the way out goes with the sandbox, and kube-apiserver takes a
# second, or a minute if somebody watches.
_GRACE_S: Final = 0.0

# Unix sockets, relative to the sandbox's directory: they need no port, and only its user can open them.
_ETCD_CLIENTS: Final = "unix://etcd.sock"
_ETCD_PEERS: Final = "unix://etcd-peers.sock"


class ControlPlane(msgspec.Struct, frozen=True, kw_only=True):
    """Everything fixed about a control plane before its first process starts.

    Attributes:
        directory: of the sandbox; all processes run in it.
        programs: path of each program by name.
        api_server_port, scheduler_port, controller_manager_port: what they serve on 127.0.0.1.
        credentials: files and tokens.
    """

    directory: Path
    programs: Mapping[str, str]
    api_server_port: int
    scheduler_port: int
    controller_manager_port: int
    credentials: credentials.Credentials

    @property
    def server(self) -> str:
        """Address of the API server."""
        return f"https://127.0.0.1:{self.api_server_port}"

    @property
    def admin_token(self) -> str:
        """Bearer token of the administrator."""
        return self.credentials.token_of[credentials.ADMINISTRATOR]

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"


def prepare(
    name: str, directory: Path, programs: Mapping[str, str], ports: list[int], *, now: datetime
) -> ControlPlane:
    """Write the files of a control plane into the directory and return what it consists of. `ports` are three."""
    api_server, scheduler, controller_manager = ports
    plane = ControlPlane(
        directory=directory,
        programs=programs,
        api_server_port=api_server,
        scheduler_port=scheduler,
        controller_manager_port=controller_manager,
        credentials=credentials.issue_credentials(directory, now=now),
    )
    _write_kubeconfig(plane, plane.kubeconfig, f"apportion-{name}", credentials.ADMINISTRATOR)
    for user, path in (
        (credentials.SCHEDULER, _scheduler_kubeconfig(plane)),
        (credentials.CONTROLLER_MANAGER, _controller_manager_kubeconfig(plane)),
        (credentials.KWOK, _kwok_kubeconfig(plane)),
    ):
        _write_kubeconfig(plane, path, "sandbox", user)
    (directory / "scheduler.yaml").write_text(yaml.safe_dump(_scheduler_configuration(plane)))
    (directory / "kwok.yaml").write_bytes(files("console.sandbox").joinpath("kwok.yaml").read_bytes())
    return plane


def etcd(plane: ControlPlane) -> Command:
    """Return the command of etcd: one member, in memory as far as it can be."""
    return _command(
        plane,
        binaries.ETCD,
        "--data-dir=etcd",
        f"--listen-client-urls={_ETCD_CLIENTS}",
        f"--advertise-client-urls={_ETCD_CLIENTS}",
        f"--listen-peer-urls={_ETCD_PEERS}",
        f"--initial-advertise-peer-urls={_ETCD_PEERS}",
        f"--initial-cluster=default={_ETCD_PEERS}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def api_server(plane: ControlPlane) -> Command:
    """Return the command of kube-apiserver, with the admission plugins that a cluster has by default."""
    files = plane.credentials
    return _command(
        plane,
        binaries.API_SERVER,
        f"--etcd-servers={_ETCD_CLIENTS}",
        # The address of this machine alone is no endpoint that the service `kubernetes` could have.
        "--endpoint-reconciler-type=none",
        f"--token-auth-file={files.tokens}",
        "--authorization-mode=RBAC",
        f"--service-account-key-file={files.service_account_key}",
        f"--service-account-signing-key-file={files.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged",
        port=plane.api_server_port,
    )


def scheduler(plane: ControlPlane) -> Command:
    """Return the command of kube-scheduler with its default profile."""
    return _command(
        plane,
        binaries.SCHEDULER,
        "--config=scheduler.yaml",
        *_delegating(_scheduler_kubeconfig(plane)),
        port=plane.scheduler_port,
    )


def controller_manager(plane: ControlPlane) -> Command:
    """Return the command of kube-controller-manager with the controllers that a sandbox needs."""
    kubeconfig = _controller_manager_kubeconfig(plane)
    return _command(
        plane,
        binaries.CONTROLLER_MANAGER,
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        f"--controllers={','.join(_CONTROLLERS)}",
        f"--root-ca-file={plane.credentials.ca}",
        f"--kube-api-qps={_RATE['qps']}",
        f"--kube-api-burst={_RATE['burst']}",
        *_delegating(kubeconfig),
        port=plane.controller_manager_port,
        health="/healthz",
    )


def kwok(plane: ControlPlane) -> Command:
    """Return the command of kwok, which stands for the kubelets of simulated nodes."""
    return _command(plane, binaries.KWOK, f"--kubeconfig={_kwok_kubeconfig(plane)}", "--config=kwok.yaml")


def base_environment(directory: Path) -> dict[str, str]:
    """Return the environment of every process: nothing of the caller's shell but where programs are.

    Proxies and KUBECONFIG of the shell would lead elsewhere; what a program keeps at home goes with the sandbox.
    """
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(directory), "TMPDIR": str(directory)}


def _command(
    plane: ControlPlane, binary: binaries.Binary, *arguments: str, port: int | None = None, health: str = "/readyz"
) -> Command:
    """Return the command of a program; one with a port serves TLS there, and is ready once `health` answers."""
    program = plane.programs[binary.name]
    if port is None:
        return Command(name=binary.name, grace_s=_GRACE_S, arguments=(program, *arguments))

    def ready() -> bool:
        with ApiClient(port, plane.credentials.ca, plane.admin_token) as client:
            return client.answers(health)

    serving = (
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={plane.credentials.serving_certificate}",
        f"--tls-private-key-file={plane.credentials.serving_key}",
        "--profiling=false",
    )
    return Command(
        name=binary.name, grace_s=_GRACE_S, port=port, ready=ready, arguments=(program, *arguments, *serving)
    )


def _delegating(kubeconfig: Path) -> tuple[str, str]:
    """Return the arguments by which a component asks the API server who may call it."""
    return f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"


def _scheduler_configuration(plane: ControlPlane) -> dict[str, object]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(_scheduler_kubeconfig(plane)), **_RATE},
        "leaderElection": {"leaderElect": False},
    }


def _scheduler_kubeconfig(plane: ControlPlane) -> Path:
    return plane.directory / "scheduler.kubeconfig"


def _controller_manager_kubeconfig(plane: ControlPlane) -> Path:
    return plane.directory / "controller-manager.kubeconfig"


def _kwok_kubeconfig(plane: ControlPlane) -> Path:
    return plane.directory / "kwok.kubeconfig"


def _write_kubeconfig(plane: ControlPlane, path: Path, name: str, user: str) -> None:
    credentials.write_kubeconfig(
        path,
        name=name,
        server=plane.server,
        ca=plane.credentials.ca,
        user=user,
        token=plane.credentials.token_of[user],
    )
