import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from console.sandbox.kubectl import find_kubectl
from kube.errors import Forbidden
from kube.resource import NAMESPACES
from tests.manifests.matching import NAMESPACE, Cluster, Recorder, gpu, pod

ROOT = Path(__file__).parents[2] / "manifests"


def kustomize(directory: Path) -> str:
    command = [find_kubectl(), "kustomize", directory]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Rendered(list):
    """Rendered objects, to be picked by kind and by what their name contains."""

    def of(self, *kinds: str) -> list[dict]:
        return [one for one in self if one["kind"] in kinds]

    def one(self, kind: str, name: str = "") -> dict:
        (found,) = [one for one in self.of(kind) if name in one["metadata"]["name"]]
        return found

    def workloads(self) -> list[dict]:
        return self.of("Deployment", "DaemonSet")

    def webhooks(self) -> list[dict]:
        configurations = self.of("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        return [webhook for configuration in configurations for webhook in configuration["webhooks"]]


@pytest.fixture(scope="session")
def text() -> str:
    return kustomize(ROOT / "base")


@pytest.fixture(scope="session")
def base(text) -> Rendered:
    return Rendered(yaml.safe_load_all(text))


@pytest.fixture(scope="session")
def renamed(tmp_path_factory) -> Rendered:
    """The base as an overlay changes it: other names, another namespace."""
    overlay = tmp_path_factory.mktemp("overlay")
    resources = os.path.relpath(ROOT / "base", overlay.resolve())
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump({"namePrefix": "x-", "namespace": "gpus", "resources": [resources]})
    )
    return Rendered(yaml.safe_load_all(kustomize(overlay)))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session", name="kustomize")
def kustomize_() -> Callable[[Path], str]:
    return kustomize


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


@pytest.fixture(scope="session")
def cluster(sandbox, base, recorder) -> Iterator[Cluster]:
    cluster = Cluster(sandbox, base, NAMESPACE)
    cluster.client.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    cluster.direct_to(recorder.url, recorder.bundle)

    def is_called() -> bool:
        try:
            cluster.create(pod("first", resources=gpu()), dry_run=True)
        except Forbidden:  # the namespace's service account comes a moment after it
            return False
        return bool(recorder.about("first"))

    cluster.reaches(is_called)
    yield cluster
    cluster.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
    cluster.undirect()
