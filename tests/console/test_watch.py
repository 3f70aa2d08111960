"""`apportion status --watch`, as a process of its own, against a scripted API server whose watches the test feeds."""

import json
import signal
import subprocess
import sys
import threading

import pytest
import yaml

from tests.apiserver.server import PATIENCE_S
from tests.apiserver.steps import Live, listing, refusal
from tests.builders import raw_node
from tests.console.test_status_why import LENT, NODE, PATHS, RUNNING

COMMAND = [sys.executable, "-c", "from console.cli import main; main()", "status", "--watch", "--kubeconfig"]
ENDED = {**RUNNING[2], "metadata": {**RUNNING[2]["metadata"], "resourceVersion": "9"}, "status": {"phase": "Succeeded"}}


@pytest.fixture
def watches(server):
    """The watches of a cluster in which borrower/q borrows two GPUs of lender/q."""
    objects = {"nodes": [NODE], "elastic": LENT, "pods": RUNNING}
    watches = {name: Live() for name in PATHS}
    for name, path in PATHS.items():
        server.route("GET", path, listing(objects.get(name, []), 5))
        server.route("GET", path, watches[name], watch=True)
    yield watches
    for watch in watches.values():
        watch.end()


@pytest.fixture
def start(server, tmp_path):
    running = []

    def start(*arguments):
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*COMMAND, server.kubeconfig(tmp_path), *arguments], stdout=pipe, stderr=pipe, text=True
        )
        watchdog = threading.Timer(3 * PATIENCE_S, process.kill)  # so that no reader waits for ever
        watchdog.start()
        running.append((process, watchdog))
        return process

    yield start
    for process, watchdog in running:
        watchdog.cancel()
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def ended(process):
    """Press Ctrl-C, and return (status, what else was printed, messages)."""
    process.send_signal(signal.SIGINT)
    rest, messages = process.communicate(timeout=PATIENCE_S)
    return process.returncode, rest, messages


def until(process, text):
    """Read up to the first line with this text. Without one this waits for the end of the process."""
    return next(line for line in process.stdout if text in line)


def test_what_changes_is_shown_again_until_ctrl_c_which_is_no_failure(start, watches):
    process = start()
    assert until(process, "borrows") == "borrower/q borrows 2 nvidia.com/gpu from lender/q\n"
    watches["pods"].send("MODIFIED", ENDED)
    assert until(process, "borrows") == "borrower/q borrows 1 nvidia.com/gpu from lender/q\n"
    status, rest, messages = ended(process)
    assert (status, messages) == (0, "")
    assert "borrows" not in rest


@pytest.mark.parametrize(
    ("output", "read"),
    [
        pytest.param("json", json.loads, id="json"),
        pytest.param("yaml", yaml.safe_load, id="yaml"),
    ],
)
def test_programs_read_one_state_after_another(start, watches, output, read):
    process = start("-o", output)
    if output == "json":
        first = process.stdout.readline()
    else:
        assert process.stdout.readline() == "---\n"
        first = "".join(iter(process.stdout.readline, "problems: []\n"))
    assert read(first)["loans"][0]["amount"] == "2"
    watches["pods"].send("MODIFIED", ENDED)
    until(process, "loans")
    assert ended(process)[0] == 0


def test_a_cluster_without_the_kinds_of_quotas_is_followed_without_them(server, start):
    watches = {name: Live() for name in ("pods", "nodes", "budgets")}
    for name, watch in watches.items():
        server.route("GET", PATHS[name], listing([], 5))
        server.route("GET", PATHS[name], watch, watch=True)
    process = start()
    assert until(process, "no ") == "no quotas, no boards of ours, and nobody waits\n"
    watches["nodes"].send("ADDED", raw_node("gpu-1", placements={"0": []}))
    until(process, "gpu-1")
    assert ended(process)[0] == 0
    for watch in watches.values():
        watch.end()


def test_a_watch_that_breaks_is_told_of_beside_what_is_shown(server, start, watches):
    server.route("GET", PATHS["budgets"], refusal(403, "Forbidden"), watch=True)
    process = start()
    until(process, "borrows")
    server.wait_for(2, "GET", PATHS["budgets"], watch=True)  # the second time it has told of the first
    status, rest, messages = ended(process)
    assert status == 0
    assert "watch_refused" in messages
    assert "watch_refused" not in rest


def test_a_cluster_that_is_away_ends_it_at_once(server, start):
    server.down()
    try:
        process = start()
        printed, messages = process.communicate(timeout=PATIENCE_S)
    finally:
        server.up()
    assert (process.returncode, printed) == (2, "")
    assert messages.startswith("Error: https://127.0.0.1")
