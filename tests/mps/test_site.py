"""Where MPS daemons live: directories that their clients reach, and how their program is run."""

import os
from pathlib import Path

import pytest

from policies.settings import DEFAULTS
from reconciler.agent.__main__ import main
from reconciler.agent.driver import DriverError
from reconciler.agent.mps import site as sites
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc

GPU = "GPU-00000000-0000-0000-0000-000000000001"


def test_a_directory_that_shuts_the_clients_user_out_is_named(node):
    """A20: the pipe directory is open, one above it is not."""
    closed = node.directory / "run" / "nvidia"
    closed.mkdir(parents=True)
    closed.chmod(0o700)
    site = sites.MpsSite(root=closed / "mps", uid=4711)
    with pytest.raises(DriverError) as raised:
        site.prepare(GPU)
    assert str(raised.value) == (
        f"{closed} is closed to uid 4711 (mode 0700), so that no MPS client reaches {closed}/mps/{GPU}/pipe: run chmod o+x "
        f"{closed}, or move the root of MPS"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can pass a directory that is closed")
def test_a_directory_that_is_closed_later_is_named_as_well(node):
    """A20: with uid 1000 of the clients; else it would read `Cannot find MPS control daemon process`."""
    daemons = node.supervisor()
    daemons.start(GPU, 1000)
    assert daemons.fault(GPU) is None
    node.site.root.chmod(0o700)
    root, pipes = node.site.root, node.site.pipes(GPU)
    assert node.until(lambda: daemons.fault(GPU)) == (
        f"{root} is closed to uid 1000 (mode 0700), so that no MPS client reaches {pipes}: run chmod o+x {root}, or move the root "
        "of MPS"
    )
    root.chmod(0o755)
    node.until(lambda: daemons.fault(GPU) is None)


@pytest.mark.parametrize(
    ("mode", "owned", "closed"),
    [
        pytest.param(0o755, False, False, id="open"),
        pytest.param(0o711, False, False, id="passable"),
        pytest.param(0o700, True, False, id="its-own"),
        pytest.param(0o750, False, True, id="by-group-only"),
        pytest.param(0o744, False, True, id="to-be-listed-only"),
        pytest.param(0o055, True, True, id="closed-to-its-owner"),
    ],
)
def test_a_directory_is_passed_by_its_owner_or_by_all(make, mode, owned, closed):
    directory = make().directory / "in-between"
    below = directory / "pipe"
    below.mkdir(parents=True)
    directory.chmod(mode)
    uid = os.geteuid() if owned else 4711
    try:
        assert sites.first_closed(below, uid) == ((directory, mode) if closed else None)
        seen_from_within = Path("/", *directory.parts[-1:])
        assert sites.first_closed(seen_from_within / "pipe", uid, root=directory.parent) == (
            (seen_from_within, mode) if closed else None
        )
    finally:
        directory.chmod(0o755)


@pytest.mark.parametrize(
    ("on_host", "uid", "command"),
    [
        pytest.param(False, None, ["nvidia-cuda-mps-control", "-f"], id="here"),
        pytest.param(False, 1000, ["nvidia-cuda-mps-control", "-f"], id="here-as-the-child-that-changes-its-user"),
        pytest.param(
            True, None, ["nsenter", "--target", "1", "--mount", "--", "nvidia-cuda-mps-control", "-f"], id="there"
        ),
        pytest.param(
            True,
            1000,
            [
                "nsenter",
                "--target",
                "1",
                "--mount",
                "--setuid",
                "1000",
                "--setgid",
                "1000",
                "--",
                "nvidia-cuda-mps-control",
                "-f",
            ],
            id="there-as-the-user-that-nsenter-becomes",
        ),
    ],
)
def test_the_program_is_run_here_or_among_the_files_of_the_node(on_host, uid, command):
    assert sites.MpsSite(on_host=on_host).command("-f", uid=uid) == command


def test_among_the_files_of_the_node_our_own_variables_mean_nothing(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/ours")
    assert sites.MpsSite(on_host=True).environment(GPU) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "CUDA_VISIBLE_DEVICES": GPU,
        "CUDA_MPS_PIPE_DIRECTORY": f"/run/apportion/mps/{GPU}/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"/run/apportion/mps/{GPU}/log",
    }
    assert sites.MpsSite().environment(GPU)["LD_LIBRARY_PATH"] == "/ours"


def test_with_selinux_containers_may_use_what_is_there(node, monkeypatch, tmp_path):
    labelled = {}
    monkeypatch.setattr(sites, "SELINUX", tmp_path)
    monkeypatch.setattr(os, "setxattr", lambda path, name, value: labelled.update({path: (name, value)}))
    node.site.prepare(GPU)
    label = "security.selinux", b"system_u:object_r:container_file_t:s0"
    assert labelled == dict.fromkeys((node.site.root / GPU, node.site.pipes(GPU), node.site.logs(GPU)), label)


def test_servers_run_as_the_user_as_whom_the_webhook_lets_pods_run():
    """A20: clients of another user wait for ever, so there is one place that says which."""
    assert sites.MpsSite().uid == DEFAULTS.mps.user_id == 1000
    assert "mps_user_id" not in {option.name for option in main.params}
