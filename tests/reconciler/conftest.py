"""A scripted API server and a client of it, per test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.client import Client
from tests.apiserver.server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer, tmp_path: Path) -> Iterator[Client]:
    connected = Client.load(server.kubeconfig(tmp_path))
    yield connected
    connected.close()
