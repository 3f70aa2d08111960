"""A real node for tests: a sandbox's control plane with our webhook and reconciler, a kubelet and containerd.

Where this machine has no means for it the tests are skipped as `not run`, and the reason stands in the summary.
"""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.sandbox.build import cache_directory, ensure_binaries
from console.sandbox.lifecycle import Sandbox
from console.sandbox.progress import Progress
from console.sandbox.services import AGENT, RECONCILER, WEBHOOK
from policies import names
from tests.node.enclosure import Impossible, enclosed
from tests.node.image import IMAGE, PROGRAM
from tests.node.programs import NODE_PROGRAMS
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
def lock(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Path:
    """A directory that all runs on this machine have in common, once it is known that a node can be had here."""
    directory = cache_directory(os.environ) / "node-test"
    directory.mkdir(parents=True, exist_ok=True)
    lacking = ""
    if shutil.which("gcc") is None:
        lacking = "gcc is not installed, with which runc, the image and the mock NVML are built"
    else:
        try:
            with enclosed(tmp_path_factory.mktemp("trial"), directory):
                pass
        except Impossible as reason:
            lacking = str(reason)
    if lacking:
        tell(f"node test: not run: {lacking}")
        pytest.skip(f"not run: {lacking}")
    return directory


@pytest.fixture(scope="session")
def programs(lock: Path, request: pytest.FixtureRequest) -> dict[str, Path]:
    """The programs of a node, by name; the first run on a machine builds them, and shows that past pytest's capturing."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        return ensure_binaries(Progress(), NODE_PROGRAMS)


@pytest.fixture(scope="session")
def cluster(programs: dict[str, Path]) -> Iterator[Sandbox]:
    """A control plane without nodes, with our webhook and reconciler as in production.

    They run as processes of the sandbox, so their Deployments want no pods; those of the DaemonSet hold what the agent
    is given on a node, its rights and directories, while it runs as a process of the node.
    """
    agent = {"name": "agent", "image": IMAGE, "imagePullPolicy": "Never", "command": [PROGRAM]}
    template = {"spec": {"containers": [{**agent, "livenessProbe": None, "readinessProbe": None}]}}
    with Sandbox.start({}, services=(WEBHOOK, RECONCILER)) as sandbox:
        system = f"--namespace={names.SYSTEM_NAMESPACE}"
        sandbox.kubectl("scale", system, "--replicas=0", f"deployment/{WEBHOOK}", f"deployment/{RECONCILER}")
        sandbox.kubectl("patch", system, f"daemonset/{AGENT}", "--patch", json.dumps({"spec": {"template": template}}))
        yield sandbox


@pytest.fixture
def pods(cluster: Sandbox) -> Iterator[Pods]:
    """The pods of a namespace of the test's own; they are gone afterwards."""
    namespace = f"team-{next(_numbers)}"
    create_namespace(cluster, namespace)
    with Pods(cluster, namespace) as watched:
        yield watched
        cluster.kubectl("delete", "pods", "--all", f"--namespace={namespace}", "--timeout=60s")
