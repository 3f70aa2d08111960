"""Fixtures of the sandbox's tests: a machine of one's own, and a Go that only pretends to build."""

import os
import tempfile
from pathlib import Path

import pytest

# A stand-in for `go` that answers what the sandbox asks. It notes its calls; FAKE_GO_FAILS makes building fail half-way.
_FAKE_GO = """#!/bin/sh
case "$1" in
  version) echo "go version go{version} linux/amd64" ;;
  list) echo "go: downloading example.org/x v1.0.0" >&2; printf 'fmt\\nexample.org/x\\n' ;;
  build)
    echo "$@ GOFLAGS=$GOFLAGS GOOS=$GOOS" >> "{calls}"
    while [ "$1" != -o ]; do shift; done
    echo program > "$2"; chmod +x "$2"
    if [ -n "$FAKE_GO_FAILS" ]; then echo "example.org/x: no such host" >&2; exit 1; fi
    echo "example.org/x" >&2 ;;
esac
"""


class FakeGo:
    """A directory for PATH with a `go`, and what that was called for."""

    def __init__(self, directory: Path, version: str) -> None:
        self.directory = directory
        self._calls = directory / "calls"
        directory.mkdir()
        go = directory / "go"
        go.write_text(_FAKE_GO.format(version=version, calls=self._calls))
        go.chmod(0o755)

    @property
    def builds(self) -> list[str]:
        """One line per build: its arguments and the settings that matter."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def fake_go(tmp_path: Path) -> FakeGo:
    return FakeGo(tmp_path / "fake-go", "1.26.6")


@pytest.fixture
def old_go(tmp_path: Path) -> FakeGo:
    return FakeGo(tmp_path / "old-go", "1.21.3")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without sandboxes: returns the directory that stands for the system's temporary one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(os.environ, "TMPDIR", str(tmp_path))
    return tmp_path
