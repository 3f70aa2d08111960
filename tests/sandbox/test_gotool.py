"""Which Go builds the programs, and in which surroundings it runs."""

import sys

import pytest

from console.sandbox.errors import SandboxError
from console.sandbox.gotool import find_go, run_go


@pytest.fixture(autouse=True)
def _no_go_beside_python(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))


def test_the_go_on_path_is_taken_if_it_is_new_enough(fake_go) -> None:
    go = find_go((1, 26, 0), search_path=str(fake_go.directory))
    assert (go.path, go.version) == (fake_go.directory / "go", (1, 26, 6))


def test_a_go_that_is_too_old_is_passed_over_for_a_later_one_on_path(fake_go, old_go) -> None:
    go = find_go((1, 26, 0), search_path=f"{old_go.directory}:{fake_go.directory}")
    assert go.path == fake_go.directory / "go"


def test_the_go_of_the_wheel_lies_beside_python(fake_go, old_go, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_go.directory / "python"))
    assert find_go((1, 26, 0), search_path=str(old_go.directory)).path == fake_go.directory / "go"


def test_without_go_the_message_says_which_version_is_needed(tmp_path) -> None:
    with pytest.raises(SandboxError, match=r"^no Go 1\.26\.0 or newer on this machine$"):
        find_go((1, 26, 0), search_path=str(tmp_path))


def test_a_go_that_is_too_old_is_named(old_go) -> None:
    with pytest.raises(SandboxError) as raised:
        find_go((1, 26, 0), search_path=str(old_go.directory))
    assert str(raised.value) == f"no Go 1.26.0 or newer on this machine ({old_go.directory}/go is 1.21.3)"


def test_a_broken_go_is_as_good_as_none(tmp_path) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "go").chmod(0o755)
    with pytest.raises(SandboxError, match="no Go"):
        find_go((1, 26, 0), search_path=str(tmp_path))


def test_what_is_downloaded_and_compiled_is_told_as_it_happens(fake_go, tmp_path) -> None:
    go = find_go((1, 26, 0), search_path=str(fake_go.directory))
    told: list[str] = []
    packages = run_go(go, ("list",), directory=tmp_path, environment={}, on_line=told.append)
    assert packages == ["fmt", "example.org/x"]
    assert told == ["downloading example.org/x v1.0.0", "fmt", "example.org/x"]


def test_settings_of_the_shell_do_not_change_what_is_built(fake_go, tmp_path) -> None:
    go = find_go((1, 26, 0), search_path=str(fake_go.directory))
    shell = {"GOOS": "windows", "GOFLAGS": "-mod=vendor"}
    run_go(go, ("build", "-o", str(tmp_path / "x")), directory=tmp_path, environment=shell, on_line=lambda _: None)
    assert fake_go.builds == [f"build -o {tmp_path / 'x'} GOFLAGS=-mod=readonly GOOS="]


def test_the_last_words_of_go_are_the_error(fake_go, tmp_path) -> None:
    go = find_go((1, 26, 0), search_path=str(fake_go.directory))
    with pytest.raises(SandboxError, match=r"^example\.org/x: no such host$"):
        run_go(
            go,
            ("build", "-o", str(tmp_path / "x")),
            directory=tmp_path,
            environment={"FAKE_GO_FAILS": "1"},
            on_line=lambda _: None,
        )
