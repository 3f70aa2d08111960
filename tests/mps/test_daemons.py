"""Control daemons as processes: started, found by the next agent, looked after, ended; by way of the stand-in's real commands."""

import os
import re
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reconciler.agent.driver import DriverError
from reconciler.agent.mps import site as sites
from reconciler.agent.mps.control import Control
from reconciler.agent.mps.daemon import Daemon
from reconciler.agent.mps.logs import Logs
from tests.mps.standin import UID, WAIT_S, await_end
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc

GPU, OTHER = "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def test_a_daemon_serves_its_board_with_the_limit_that_it_was_given(node):
    daemons = node.supervisor()
    daemons.start(GPU, 20268)
    assert daemons.fault(GPU) is None
    assert daemons.kept(GPU)
    assert not daemons.kept(OTHER)
    server = node.ask(GPU, "get_server_list")
    assert Path("/proc", server).stat().st_uid == UID
    assert node.ask(GPU, "limits") == "20268M 20268M"
    assert f"using socket {node.site.root}/{GPU}/pipe/control on {GPU}" in node.output(GPU)


def test_a_daemon_of_a_board_that_limits_nothing_is_given_no_limit(node):
    """Before Volta: clients were seen to fail where one is set."""
    daemons = node.supervisor()
    daemons.start(GPU, None)
    daemons.limit(GPU, None)
    assert daemons.fault(GPU) is None
    assert node.ask(GPU, "limits") == ""


def test_the_clients_user_reaches_the_socket_and_only_the_daemon_makes_files_beside_it(node):
    node.supervisor().start(GPU, 1000)
    modes = {
        path.name: (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid)
        for path in (node.site.root, node.site.pipes(GPU), node.site.logs(GPU))
    }
    assert modes == {"mps": (0o755, os.geteuid()), "pipe": (0o755, os.geteuid()), "log": (0o755, UID)}


def test_a_larger_slice_raises_the_limit_of_the_server_that_runs_and_of_those_to_come(node):
    daemons = node.supervisor()
    daemons.start(GPU, 5000)
    daemons.limit(GPU, 10000)
    assert node.ask(GPU, "limits") == "10000M 10000M"
    before = node.kill(GPU)
    node.until(lambda: node.pid(GPU) not in (before, None) and daemons.fault(GPU) is None)
    assert node.ask(GPU, "limits") == "10000M 10000M"
    with pytest.raises(DriverError, match="no MPS control daemon is kept for"):
        daemons.limit(OTHER, 1000)


def test_a_daemon_that_dies_is_started_again_and_those_of_other_boards_go_on(node):
    daemons = node.supervisor()
    for board in (GPU, OTHER):
        daemons.start(board, 1000)
    other, program = node.pid(OTHER), node.attach(OTHER)
    assert program.recv(99) == b"ACTIVE\n"
    node.break_by("dies")
    node.kill(GPU)
    node.until(lambda: "ends as soon as it is started: Failed to start: invalid argument" in (daemons.fault(GPU) or ""))
    assert daemons.fault(OTHER) is None
    assert node.pid(OTHER) == other
    node.break_by()
    node.until(lambda: daemons.fault(GPU) is None)
    assert node.pid(GPU)
    program.close()


def test_a_daemon_that_dies_is_a_fault_at_once(node):
    """A19, A21: nothing is offered that cannot serve."""
    daemons = node.supervisor(check_s=WAIT_S)
    daemons.start(GPU, 1000)
    node.break_by("dies")
    node.kill(GPU)
    assert node.until(lambda: daemons.fault(GPU)).startswith("its MPS control daemon ")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param("mute", "MPS control daemon: get_server_list: no answer within 1 s", id="does-not-answer"),
        pytest.param(
            "faulty", "its MPS server has failed, by a program's fault: it recovers when .*", id="server-failed"
        ),
        pytest.param("slow", f"no MPS server for uid {UID} has become active: .*", id="server-does-not-start"),
    ],
)
def test_a_daemon_that_runs_and_does_not_serve_is_a_fault_and_is_left_to_recover(node, fault, said):
    daemons = node.supervisor(answer_s=1.0, start_s=1.0)
    daemons.start(GPU, 1000)
    node.until(lambda: daemons.fault(GPU) is None)
    pid = node.pid(GPU)
    node.break_by(fault)
    node.until(lambda: re.fullmatch(said, daemons.fault(GPU) or ""))
    node.break_by()
    node.until(lambda: daemons.fault(GPU) is None)
    assert node.pid(GPU) == pid


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param("dies", "ends as soon as it is started: Failed to start: invalid argument", id="dies-at-once"),
        pytest.param("mute", "get_server_list: no answer within 1 s", id="does-not-answer"),
        pytest.param(
            "stillborn", r"its MPS servers fail: Server \d+ exited with status 1", id="A19-server-does-not-start"
        ),
        pytest.param("deaf", f"get_server_list as uid {UID}: Cannot find MPS", id="socket-is-closed", marks=needs_root),
    ],
)
def test_a_daemon_that_cannot_serve_from_the_start_is_told_of_and_tried_again(node, fault, said):
    node.break_by(fault)
    daemons = node.supervisor(answer_s=1.0, start_s=1.0)
    daemons.start(GPU, 1000)
    node.until(lambda: re.search(said, daemons.fault(GPU) or ""))
    node.break_by()
    node.until(lambda: daemons.fault(GPU) is None)


def test_a_server_that_fails_with_each_program_is_a_fault_for_a_minute(node):
    """A19: the daemon answers, and starts a new server each time; the daemon's log tells."""
    now = [0.0]
    daemon = Daemon(node.site, GPU, 1000, pace=node.pace(), changed=node._changed, clock=lambda: now[0])
    daemon.start()
    node.break_by("failing")
    with node.attach(GPU) as program:
        assert program.recv(99) == b""
    node.until(lambda: re.fullmatch(r"its MPS servers fail: Server \d+ exited with status 1", daemon.fault() or ""))
    now[0] = 60.0
    node.until(lambda: daemon.fault() is None)
    daemon.stop()


@needs_root
def test_a_server_of_another_user_is_a_fault_as_long_as_somebody_uses_it(node):
    """W32: clients of the right uid wait until it has none; then it is replaced when the next one comes."""
    node.break_by("rooted")
    daemons = node.supervisor()
    daemons.start(GPU, 1000)
    assert daemons.fault(GPU) is None
    with node.attach(GPU) as program:
        assert program.recv(99) == b"ACTIVE\n"
        said = node.until(lambda: daemons.fault(GPU))
        assert said == f"its MPS server runs as uid 0: programs of uid {UID} wait until its own have ended"
    node.until(lambda: daemons.fault(GPU) is None)


@needs_root
def test_a_directory_that_is_closed_above_the_pipes_is_a_fault_until_it_is_opened(node):
    """A21: the daemon and what asks it are root's, and see nothing of it; the clients are not."""
    daemons = node.supervisor(check_s=0.02)
    daemons.start(GPU, 1000)
    node.site.root.chmod(0o700)
    said = node.until(lambda: daemons.fault(GPU))
    assert said.startswith(f"{node.site.root} is closed to uid {UID} (mode 0700), so that no MPS client reaches ")
    node.site.root.chmod(0o755)
    node.until(lambda: daemons.fault(GPU) is None)


def test_a_missing_program_is_one_clear_reason(make):
    """A21."""
    node = make(program="nvidia-cuda-mps-control-of-nobody")
    daemons = node.supervisor()
    daemons.start(GPU, 1000)
    assert daemons.fault(GPU) == (
        "there is no nvidia-cuda-mps-control-of-nobody here: nvidia-cuda-mps-control comes with NVIDIA's driver, and into "
        "containers with NVIDIA_DRIVER_CAPABILITIES=compute,utility; or label the node nos.nebuly.com/gpu-partitioning=mig"
    )


def test_selinux_that_refuses_labels_is_one_clear_reason(node, monkeypatch, tmp_path):
    """A21: lsetxattr is denied."""

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(sites, "SELINUX", tmp_path)
    monkeypatch.setattr(os, "setxattr", refuse)
    daemons = node.supervisor()
    daemons.start(GPU, 1000)
    assert daemons.fault(GPU) == (
        f"SELinux keeps the agent from labelling {node.site.root}/{GPU} system_u:object_r:container_file_t:s0: Permission denied; "
        "run the agent privileged (seLinuxOptions: {type: spc_t}), or label the node nos.nebuly.com/gpu-partitioning=mig"
    )


def test_the_next_agent_finds_the_daemon_running_and_the_programs_that_use_it(node):
    first = node.supervisor()
    first.start(GPU, 5000)
    pid = node.pid(GPU)
    with node.attach(GPU) as program:
        assert program.recv(99) == b"ACTIVE\n"
        first.leave()
        second = node.supervisor()
        second.start(GPU, 10000)
        assert second.fault(GPU) is None
        assert node.pid(GPU) == pid
        assert node.ask(GPU, "limits") == "10000M 10000M"
        node.kill(GPU)
        assert program.recv(99) == b"", "it was this daemon that served the program"
    node.until(lambda: node.pid(GPU) not in (pid, None) and second.fault(GPU) is None)


AGENT = """
    import sys
    from pathlib import Path
    from reconciler.agent.mps.daemon import Pace
    from reconciler.agent.mps.site import MpsSite
    from reconciler.agent.mps.supervisor import Supervisor
    site = MpsSite(root=Path({root!r}), uid={uid}, program={program!r})
    daemons = Supervisor(site, pace=Pace(first_s=20.0))
    daemons.start({board!r}, 1000)
    print("fault:", daemons.fault({board!r}), flush=True)
    sys.stdin.read()
"""


def agent(node):
    """Return the process of an agent that has started a daemon."""
    code = AGENT.format(root=str(node.site.root), uid=UID, program=str(node.program), board=GPU)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert next(line for line in process.stdout if line.startswith("fault:")) == "fault: None\n"
    return process


@pytest.mark.parametrize("group", [False, True], ids=["the-process", "its-whole-group"])
def test_a_daemon_outlives_an_agent_that_is_killed(node, group):
    """kill -9 of the agent: programs that use the board go on, and the next agent takes the daemon over."""
    process = agent(node)
    pid = node.pid(GPU)
    with process, node.attach(GPU) as program:
        assert program.recv(99) == b"ACTIVE\n"
        (os.killpg if group else os.kill)(process.pid, 9)
        process.wait(WAIT_S)
        daemons = node.supervisor()
        daemons.start(GPU, 1000)
        assert daemons.fault(GPU) is None
        assert node.pid(GPU) == pid
        program.setblocking(False)  # noqa: FBT003
        with pytest.raises(BlockingIOError):
            program.recv(1)


def test_what_anybody_may_write_does_not_make_a_process_the_daemon(node):
    """The daemon's file with its PID is open to all (0666): another process that it names is left alone."""
    node.site.prepare(GPU)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            (node.site.pipes(GPU) / "nvidia-cuda-mps-control.pid").write_text(str(stranger.pid))
            daemons = node.supervisor()
            daemons.start(GPU, 1000)
            assert daemons.fault(GPU) is None
            assert node.pid(GPU) != stranger.pid
            daemons.stop(GPU)
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "99999999999999999999", "4194304"])
def test_a_file_that_names_no_process_means_that_there_is_no_daemon(node, text):
    node.site.prepare(GPU)
    (node.site.pipes(GPU) / "nvidia-cuda-mps-control.pid").write_text(text)
    daemons = node.supervisor()
    daemons.start(GPU, 1000)
    assert daemons.fault(GPU) is None


def test_a_daemon_that_is_stopped_goes_with_its_server(node):
    daemons = node.supervisor()
    daemons.start(GPU, 1000)
    server = os.pidfd_open(int(node.ask(GPU, "get_server_list")))
    daemons.stop(GPU)
    assert node.pid(GPU) is None
    await_end(server)
    assert (daemons.kept(GPU), daemons.fault(GPU)) == (False, None)


def test_a_daemon_that_does_not_answer_is_ended_all_the_same(node):
    daemons = node.supervisor(answer_s=1.0)
    daemons.start(GPU, 1000)
    node.until(lambda: daemons.fault(GPU) is None)
    pid = os.pidfd_open(node.pid(GPU))
    node.break_by("mute")
    daemons.stop(GPU)
    await_end(pid)


def test_daemons_that_do_not_answer_are_waited_for_together_when_the_agent_ends(node, monkeypatch):
    """A pod has 30 s to end, and an answer may take 5 s: eight boards, one after the other, would take more."""
    daemons, boards = node.supervisor(), [f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in range(8)]
    for board in boards:
        daemons.start(board, 1000)
    asked, answer = threading.Semaphore(0), threading.Event()
    hastened, hasten = [], Daemon.hasten

    def wait(_control):
        asked.release()
        assert answer.wait(WAIT_S)
        return ()

    def note(daemon):
        hastened.append(daemon)
        if len({*hastened}) == len(boards):
            answer.set()
        hasten(daemon)

    monkeypatch.setattr(Control, "servers", wait)
    monkeypatch.setattr(Daemon, "hasten", note)
    for _ in boards:
        assert asked.acquire(timeout=WAIT_S)
    daemons.leave()
    assert answer.is_set(), "all are told before any is waited for"
    assert all(map(node.pid, boards)), "and left running"


@pytest.mark.parametrize("place", ["no-cgroup", "nowhere/at-all"])
def test_where_there_are_no_such_cgroups_a_daemon_serves_in_the_agents(make, tmp_path, place):
    """As on a node with the first version of cgroups. It is logged: this daemon ends with the agent's container."""
    with capture_logs() as logs:
        daemons = make(cgroup=tmp_path / place).supervisor()
        daemons.start(GPU, 1000)
    assert daemons.fault(GPU) is None
    assert [log["cgroup"] for log in logs if log["event"] == "mps_daemon_will_end_with_its_agent"] == [
        str(tmp_path / place)
    ]


@needs_root
def test_a_daemon_is_in_its_own_cgroup_with_its_server(make):
    """What ends all that is in the agent's cgroup, as a container runtime does, does not end it."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    cgroup = next((Path(place) / "apportion-mps-test" for _, place, kind, *_ in mounts if kind == "cgroup2"), None)
    try:
        node = make(cgroup=cgroup)
        cgroup.mkdir()
    except (OSError, AttributeError):
        pytest.skip("cgroups cannot be made here")
    try:
        daemons = node.supervisor()
        daemons.start(GPU, 1000)
        assert daemons.fault(GPU) is None
        server = int(node.ask(GPU, "get_server_list"))
        for pid in (node.pid(GPU), server):
            assert "0::/apportion-mps-test" in Path(f"/proc/{pid}/cgroup").read_text()
        ending = os.pidfd_open(server)
        daemons.stop(GPU)
        await_end(ending)
    finally:
        cgroup.rmdir()


@needs_root
@pytest.mark.skipif(shutil.which("nsenter") is None, reason="nsenter is not installed")
def test_a_daemon_may_run_among_the_files_of_the_node(make):
    node = make(on_host=True)
    if subprocess.run(
        ["nsenter", "--target", "1", "--mount", "--", "test", "-e", node.program], check=False
    ).returncode:
        pytest.skip("the files of process 1 cannot be entered here")
    daemons = node.supervisor()
    daemons.start(GPU, 1000)
    assert daemons.fault(GPU) is None
    assert node.pid(GPU)


def test_a_check_holds_for_a_minute(node):
    now = [0.0]
    daemon = Daemon(node.site, GPU, 1000, pace=node.pace(check_s=600.0), changed=lambda: None, clock=lambda: now[0])
    daemon.start()
    now[0] = 60.0
    assert daemon.fault() is None
    now[0] = 61.0
    assert daemon.fault() == "its MPS control daemon has not been checked for 61 s"
    daemon.stop()


def test_what_cannot_be_read_is_a_fault_and_no_end_of_the_checks(node, monkeypatch):
    daemons = node.supervisor()
    daemons.start(GPU, 1000)

    def refuse(_logs):
        raise PermissionError(13, "Permission denied", "control.log")

    with monkeypatch.context() as patched:
        patched.setattr(Logs, "failed_server", refuse)
        assert node.until(lambda: daemons.fault(GPU)) == "[Errno 13] Permission denied: 'control.log'"
    node.until(lambda: daemons.fault(GPU) is None)


def test_directories_that_cannot_be_made_are_a_fault(make, tmp_path):
    (tmp_path / "file").write_text("")
    daemons = make(root=tmp_path / "file" / "mps").supervisor()
    daemons.start(GPU, 1000)
    assert daemons.fault(GPU).startswith("the directories of MPS cannot be made: [Errno 20] Not a directory: ")


def test_the_failure_of_a_server_is_not_held_against_the_next_daemon(node):
    node.break_by("stillborn")
    daemons = node.supervisor(fresh_s=600.0)
    daemons.start(GPU, 1000)
    assert "its MPS servers fail" in daemons.fault(GPU)
    node.break_by()
    node.until(lambda: daemons.fault(GPU) is None)


def test_nobody_who_answers_is_not_a_daemon(node):
    node.site.prepare(GPU)
    with pytest.raises(DriverError, match="get_server_list: Cannot find MPS control daemon process"):
        Control(node.site, GPU, 5.0).servers()
