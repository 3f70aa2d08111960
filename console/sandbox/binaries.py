"""The five programs of the control plane, and the kubelet: where each comes from and how it is linked.

Versions are pinned by the go.mod and go.sum files in `go/<module>/`, which travel with the package.
"""

import hashlib
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

MODULES: Final = Path(__file__).parent / "go"

# Without these `/version` answers v0.0.0-master+$Format:%H$, and clients that parse it fail.
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"


class Binary(msgspec.Struct, frozen=True, kw_only=True):
    """A program built from one of our pinned Go modules.

    Attributes:
        name: of the executable.
        module: directory under `go/` whose go.mod pins it.
        package: what `go build` is asked for.
        requirement: the module path in that go.mod whose version is the program's.
        modules: where that directory is.
        cgo: whether it has parts in C, so that a C compiler is needed.
    """

    name: str
    module: str
    package: str
    requirement: str
    modules: Path = MODULES
    cgo: bool = False

    @property
    def directory(self) -> Path:
        """Directory of its go.mod."""
        return self.modules / self.module

    @property
    def version(self) -> str:
        """Its version as pinned, such as `v1.36.3`."""
        return _pinned_version(self.directory, self.requirement)

    @property
    def linker_flags(self) -> str:
        """Flags for the linker: no symbol tables (a third of the size), and Kubernetes' version stamps."""
        flags = "-s -w"
        if self.module == "kubernetes":
            major, minor, _ = self.version.removeprefix("v").split(".")
            for variable, value in (("gitVersion", self.version), ("gitMajor", major), ("gitMinor", minor)):
                flags += f" -X {_VERSION_PACKAGE}.{variable}={value}"
        return flags

    @property
    def key(self) -> str:
        """Digest of everything that decides its content: a change of pins or flags makes another file in the cache."""
        digest = hashlib.sha256()
        for name in ("go.mod", "go.sum"):
            digest.update((self.directory / name).read_bytes())
        digest.update(f"{self.package} {self.linker_flags} {platform.system()} {platform.machine()}".encode())
        digest.update(b"cgo" if self.cgo else b"")
        return digest.hexdigest()[:16]


def _kubernetes(name: str) -> Binary:
    return Binary(
        name=name,
        module="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        requirement="k8s.io/kubernetes",
    )


ETCD: Final = Binary(
    name="etcd", module="etcd", package="go.etcd.io/etcd/server/v3", requirement="go.etcd.io/etcd/server/v3"
)
API_SERVER: Final = _kubernetes("kube-apiserver")
SCHEDULER: Final = _kubernetes("kube-scheduler")
CONTROLLER_MANAGER: Final = _kubernetes("kube-controller-manager")
# Not of the control plane: a real node of this cluster needs one of its version.
KUBELET: Final = _kubernetes("kubelet")
KWOK: Final = Binary(name="kwok", module="kwok", package="sigs.k8s.io/kwok/cmd/kwok", requirement="sigs.k8s.io/kwok")

# The three of Kubernetes share most of their packages, so the first takes the time of all.
BINARIES: Final = (ETCD, API_SERVER, SCHEDULER, CONTROLLER_MANAGER, KWOK)


def required_go(wanted: Iterable[Binary]) -> tuple[int, ...]:
    """Return the oldest Go that the modules of all these programs accept, such as (1, 26, 0)."""
    return max(_go_directive(binary.directory) for binary in wanted)


def _go_directive(module: Path) -> tuple[int, ...]:
    found = re.search(r"^go (\d+(?:\.\d+)*)$", (module / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise ValueError(f"{module / 'go.mod'}: no go directive")
    return tuple(int(part) for part in found[1].split("."))


def _pinned_version(module: Path, requirement: str) -> str:
    pattern = rf"^(?:require )?\s*{re.escape(requirement)} (v\S+)"
    found = re.search(pattern, (module / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise ValueError(f"{module / 'go.mod'}: does not require {requirement}")
    return found[1]
