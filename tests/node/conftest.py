"""A real node for tests. Where this machine has no means for it they are skipped, and the summary says why."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from console.sandbox.lifecycle import Sandbox
from console.sandbox.progress import Progress
from tests.node.cluster import empty_cluster, find_programs
from tests.node.enclosure import Impossible
from tests.node.timeline import Pods
from tests.sandbox.waiting import create_namespace

_numbers = itertools.count()
_LINES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LINES] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash[_LINES]
    if lines:
        terminalreporter.section("node test")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that adds a line to the summary of the run."""
    return request.config.stash[_LINES].append


@pytest.fixture(scope="session")
def programs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]
) -> Mapping[str, Path]:
    """The programs of a node. The progress of building, which takes minutes once, is shown past pytest's capturing."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            return find_programs(tmp_path_factory.mktemp("trial"), Progress())
    except Impossible as reason:
        tell(f"node test: not run: {reason}")
        pytest.skip(f"not run: {reason}")


@pytest.fixture(scope="session")
def cluster(programs: Mapping[str, Path]) -> Iterator[Sandbox]:
    """A control plane without nodes, with our webhook and reconciler."""
    with empty_cluster() as sandbox:
        yield sandbox


@pytest.fixture
def pods(cluster: Sandbox) -> Iterator[Pods]:
    """The pods of a namespace of the test's own; they are gone afterwards."""
    namespace = f"team-{next(_numbers)}"
    create_namespace(cluster, namespace)
    with Pods(cluster, namespace) as watched:
        yield watched
        cluster.kubectl("delete", "pods", "--all", f"--namespace={namespace}", "--timeout=60s")
