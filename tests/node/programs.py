"""The programs of a real node, built from pinned Go modules: the kubelet of the sandbox's Kubernetes, containerd 2, runc.

Nothing of the machine's own containerd or runc is used: what is tested is the same everywhere.
"""

from pathlib import Path
from typing import Final

from console.sandbox.binaries import KUBELET, Binary

_MODULES: Final = Path(__file__).parent / "go"


def _containerd(name: str) -> Binary:
    return Binary(
        name=name,
        module="containerd",
        package=f"github.com/containerd/containerd/v2/cmd/{name}",
        requirement="github.com/containerd/containerd/v2",
        modules=_MODULES,
    )


# Started by runc's creator in the namespaces of a container, where no Go can run yet: that part is in C.
RUNC: Final = Binary(
    name="runc",
    module="runc",
    package="github.com/opencontainers/runc",
    requirement="github.com/opencontainers/runc",
    modules=_MODULES,
    cgo=True,
)
CONTAINERD: Final = _containerd("containerd")
# The shim is looked for on PATH by containerd; ctr imports images.
NODE_PROGRAMS: Final = (KUBELET, CONTAINERD, _containerd("containerd-shim-runc-v2"), _containerd("ctr"), RUNC)
