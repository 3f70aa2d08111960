"""Fixtures that tests of several packages share."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from console.sandbox.lifecycle import Sandbox
from kube.client import Client
from tests.apiserver.server import ApiServer

# A machine that is busy with other things makes no law false.
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")

# A shell without job control starts what it runs by `&` with Ctrl-C ignored, and children inherit that: the programs
# that tests start and end by Ctrl-C would never see it. Children of one that handles it get the default.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A bare control plane with two simulated MIG nodes and an MPS node, for the whole session.

    It is shared: use a namespace of your own. The first one on a machine builds its programs, which takes minutes, so
    its progress is shown past pytest's capturing.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")
    starting = Sandbox.start({"a100-40": 1, "a30": 1, "t4": 1}, services=())
    with capture.global_and_fixture_disabled():
        sandbox = starting.__enter__()
    try:
        yield sandbox
    finally:
        starting.__exit__(None, None, None)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A scripted API server; see tests/apiserver."""
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer, tmp_path: Path) -> Iterator[Client]:
    """A client of the scripted API server."""
    connected = Client.load(server.kubeconfig(tmp_path))
    yield connected
    connected.close()
