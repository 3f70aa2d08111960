"""The wheel holds our packages, what they read at run time, and nothing else; and it works by itself."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"policies", "kube", "certs", "webhook", "reconciler", "console", "manifests"}
AT_RUN_TIME = {
    "console/sandbox/demo.yaml",
    "console/sandbox/lending.yaml",
    "console/sandbox/kwok.yaml",
    "console/sandbox/go/kubernetes/go.mod",
    "console/sandbox/go/kubernetes/go.sum",
    "console/sandbox/go/etcd/go.mod",
    "console/sandbox/go/kwok/go.mod",
    "manifests/base/kustomization.yaml",
    "manifests/base/admission/mutating.yaml",
    "manifests/crds/elasticquotas.yaml",
    *(f"{package}/py.typed" for package in PACKAGES - {"manifests"}),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = directory.glob("*.whl")
    return path


def test_the_wheel_holds_our_packages_and_their_data_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == PACKAGES
    assert names >= AT_RUN_TIME
    assert not [name for name in names if "test" in name or name.endswith((".key", ".pem", ".crt"))]


def test_the_unpacked_wheel_answers_on_its_own(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    files = ["-f", str(ROOT / "examples/cluster.yaml"), "-f", str(ROOT / "examples/pods.yaml")]
    code = "import console.cli, sys; assert console.cli.__file__.startswith(sys.argv.pop(1)), console.cli.__file__; console.cli.main()"
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path), "explain", *files, "-o", "json"],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert '"nvidia.com/mig-3g.20gb":"1"' in answer.stdout.replace('": "', '":"')
