"""The certificates' Secret and bundles on a real API server: what the imitation only supposes of it."""

import json
import threading
from collections.abc import Iterator

import pytest

from certs.keeper import Keeper
from certs.store import SECRET, CertificateStore
from kube.client import Client
from kube.resource import MUTATING_WEBHOOKS, NAMESPACES, SECRETS

pytestmark = pytest.mark.sandbox

NAMESPACE = CONFIGURATION = "test-certificates"
HOST = f"apportion-webhook.{NAMESPACE}.svc"
THEIRS = {"labels": {"theirs": "kept"}, "name": CONFIGURATION}
# Matches nothing: only its caBundle is of interest.
WEBHOOK = {
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "namespaceSelector": {"matchLabels": {"no-namespace": "bears-this"}},
    "clientConfig": {"service": {"name": "apportion-webhook", "namespace": NAMESPACE}},
}


@pytest.fixture(scope="module")
def client(sandbox) -> Iterator[Client]:
    client = Client.load(str(sandbox.kubeconfig))
    client.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    webhooks = [{**WEBHOOK, "name": f"{name}.nos.nebuly.com"} for name in ("one", "two")]
    client.create(MUTATING_WEBHOOKS.path(), {"metadata": THEIRS, "webhooks": webhooks})
    yield client
    client.delete(MUTATING_WEBHOOKS.path(name=CONFIGURATION))
    client.close()


@pytest.fixture
def make(client):
    return lambda: Keeper(CertificateStore(client, namespace=NAMESPACE, configuration=CONFIGURATION), (HOST,))


def read(client, path):
    return json.loads(client.get(path))


def stored(client):
    secret = read(client, SECRETS.path(NAMESPACE, SECRET))
    configuration = read(client, MUTATING_WEBHOOKS.path(name=CONFIGURATION))
    return secret, configuration


def in_threads(*actions):
    errors: list[BaseException] = []

    def run(action):
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []


def test_four_replicas_that_start_together_agree_on_one_certificate(client, make):
    keepers = [make() for _ in range(4)]
    in_threads(*(keeper.settle for keeper in keepers))
    assert len({keeper.leaf() for keeper in keepers}) == 1
    assert [keeper.fault for keeper in keepers] == [None] * 4
    secret, configuration = stored(client)
    assert secret["type"] == "kubernetes.io/tls"
    assert [one["clientConfig"]["caBundle"] for one in configuration["webhooks"]] == [secret["data"]["ca.crt"]] * 2
    assert configuration["metadata"]["labels"] == THEIRS["labels"]


def test_settling_again_changes_nothing(client, make):
    """C11: not even a resourceVersion."""
    make().settle()
    before = stored(client)
    for _ in range(3):
        make().settle()
    assert stored(client) == before


def test_an_emptied_secret_is_refilled_by_whoever_sees_it_first(client, make):
    """C10: as `kubectl apply` of a manifest with an empty Secret would leave it."""
    make().settle()
    empty = dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), "")
    client.merge_patch(SECRETS.path(NAMESPACE, SECRET), {"data": empty})
    keepers = [make() for _ in range(3)]
    in_threads(*(keeper.settle for keeper in keepers))
    for keeper in keepers:
        keeper.settle()
    assert len({keeper.leaf() for keeper in keepers}) == 1
    secret, configuration = stored(client)
    assert [one["clientConfig"]["caBundle"] for one in configuration["webhooks"]] == [secret["data"]["ca.crt"]] * 2
