"""The webhook as in production, but for how it is reached: its own process, account and rights, a real API server."""

import base64
import json
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import manifests
from console.sandbox.ports import free_ports
from kube.client import Client
from kube.errors import ApiError
from kube.resource import MUTATING_WEBHOOKS, NAMESPACES, PODS, SECRETS
from tests.apiserver.server import PATIENCE_S

pytestmark = pytest.mark.sandbox

SYSTEM = "apportion-system"
NAMESPACE = "test-webhook"
BASE = Path(manifests.__file__).parent / "base"
CONFIGURATION = MUTATING_WEBHOOKS.path(name="apportion")
POD = {
    "metadata": {"name": "half", "annotations": {"nos.nebuly.com/gpu-fraction": "0.5"}},
    "spec": {"containers": [{"name": "main", "image": "registry.example/image:1"}]},
}


class Webhook:
    """A replica on this machine and the administrator who installed it."""

    def __init__(self, sandbox, admin: Client, directory: Path) -> None:
        self.admin, self.log = admin, directory / "log"
        token = sandbox.kubectl(f"--namespace={SYSTEM}", "create", "token", "apportion-webhook").strip()
        kubeconfig = yaml.safe_load(sandbox.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {"token": token}
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(kubeconfig))
        (self.port,) = free_ports(1, set(), random.Random())
        self.start()

    def start(self) -> None:
        arguments = ["-m", "webhook", f"--kubeconfig={self.kubeconfig}", f"--listen=127.0.0.1:{self.port}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-P", *arguments, "--url-host=127.0.0.1"], stderr=log)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(PATIENCE_S) == 0
        finally:
            self.process.kill()

    def install(self) -> None:
        """Apply the configuration as it is rendered, reached by URL, for one namespace."""
        configuration = yaml.safe_load((BASE / "admission" / "mutating.yaml").read_text())
        webhook = configuration["webhooks"][0]
        assert webhook["name"] == "slices.nos.nebuly.com"
        configuration["webhooks"] = [webhook]
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{self.port}/mutate"}
        only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE]}
        webhook["namespaceSelector"] = {"matchExpressions": [only]}
        self.admin.create(MUTATING_WEBHOOKS.path(), configuration)

    def admit(self) -> dict:
        """Create a pod that asks for half a board, without keeping it, and return it as it would be stored."""
        body = json.dumps(POD).encode()
        return json.loads(self.admin.request("POST", PODS.path(NAMESPACE), query={"dryRun": "All"}, body=body))

    def wait_until_it_admits(self, timeout_s: float = PATIENCE_S) -> dict:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                pod = self.admit()
                if "schedulingGates" in pod["spec"]:
                    return pod
            except ApiError:
                pass
            assert time.monotonic() < deadline, self.log.read_text()
            threading.Event().wait(0.1)


@pytest.fixture(scope="module")
def webhook(sandbox, tmp_path_factory) -> Iterator[Webhook]:
    sandbox.kubectl("apply", "--server-side", "-f", str(BASE / "namespace.yaml"))
    for part in (BASE.parent / "crds", BASE / "access"):
        sandbox.kubectl("apply", "--server-side", "-k", str(part))
    admin = Client.load(str(sandbox.kubeconfig))
    admin.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    webhook = Webhook(sandbox, admin, tmp_path_factory.mktemp("webhook"))
    webhook.install()
    yield webhook
    admin.delete(CONFIGURATION)
    webhook.stop()
    admin.delete(SECRETS.path(SYSTEM, "apportion-webhook-tls"))
    admin.close()


def test_a_pod_that_asks_for_a_share_gets_a_slice_and_a_gate(webhook):
    """Whether configuration, certificates, rights and server fit together shows in this and nothing less."""
    pod = webhook.wait_until_it_admits()
    assert pod["spec"]["schedulingGates"] == [{"name": "nos.nebuly.com/admission"}]
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-2g.12gb": "1"}
    assert "nos.nebuly.com/gpu-request" in pod["metadata"]["annotations"]


def bundle(webhook) -> bytes:
    (configured,) = json.loads(webhook.admin.get(CONFIGURATION))["webhooks"]
    return base64.b64decode(configured["clientConfig"]["caBundle"])


def test_the_server_proves_itself_with_the_published_authority(webhook):
    """C10: what the API server is told to trust is what the replica shows."""
    webhook.wait_until_it_admits()
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusted.load_verify_locations(cadata=bundle(webhook).decode())
    with (
        socket.create_connection(("127.0.0.1", webhook.port), timeout=PATIENCE_S) as raw,
        trusted.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
    ):
        names = [value for _, value in tls.getpeercert()["subjectAltName"]]
    assert sorted(names) == ["127.0.0.1", "apportion-webhook.apportion-system.svc"]


def test_a_restarted_replica_takes_up_the_certificates_that_are_there(webhook):
    """C03, C12: nothing is issued or published anew."""
    webhook.wait_until_it_admits()
    before = bundle(webhook), webhook.admin.get(SECRETS.path(SYSTEM, "apportion-webhook-tls"))
    webhook.stop()
    webhook.start()
    webhook.wait_until_it_admits()
    assert (bundle(webhook), webhook.admin.get(SECRETS.path(SYSTEM, "apportion-webhook-tls"))) == before


def test_a_configuration_that_is_made_anew_gets_its_bundle_back(webhook):
    """C12: an uninstall and install while the replicas stay, with the Secret of the earlier one."""
    webhook.wait_until_it_admits()
    before = bundle(webhook)
    webhook.admin.delete(CONFIGURATION)
    webhook.install()
    webhook.wait_until_it_admits()
    assert bundle(webhook) == before
