"""The node itself, without ours on it: it runs pods, and nothing is left of it."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.node import cgroups
from tests.node.containers import container_of
from tests.node.enclosure import Impossible, enclosed
from tests.node.image import IMAGE
from tests.node.inside import TUNABLES
from tests.node.node import running_node


@pytest.fixture
def node(cluster, programs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("plain")
    with running_node("plain", {}, sandbox=cluster, programs=programs, directory=directory) as node:
        yield node


def test_a_plain_pod_runs(cluster, node, pods):
    pods.create(
        {
            "metadata": {"name": "plain"},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": IMAGE,
                        "imagePullPolicy": "Never",
                        "env": [{"name": "GREETING", "value": "hello"}],
                        "securityContext": {"runAsUser": 1000},
                    }
                ]
            },
        }
    )
    pods.wait("plain", lambda pod: pod is not None and pod.running, 30)
    container = container_of(cluster, pods.namespace, "plain")
    assert container.environment["GREETING"] == "hello"
    assert container.uid == 1000


def test_what_a_node_changes_on_a_machine_it_changes_on_copies(programs, tmp_path):
    paths = [Path("/var/lib/kubelet/x"), Path("/run/x"), Path("/var/log/x")]
    settings = {name: Path(f"/proc/sys/{name}").read_text() for name in TUNABLES}
    script = "".join(f"mkdir -p {path.parent}; echo > {path}; " for path in paths)
    with enclosed(tmp_path) as enclosure:
        enclosure.run("/bin/sh", "-c", script, environment={"PATH": os.defpath})
        assert all(enclosure.path(str(path)).exists() for path in paths)
        assert enclosure.run("/bin/cat", "/proc/sys/vm/overcommit_memory", environment={}) == "1\n"
    assert not any(path.exists() for path in paths)
    assert {name: Path(f"/proc/sys/{name}").read_text() for name in TUNABLES} == settings
    assert not any(cgroup.exists() for cgroup in cgroups.ours())


def test_all_that_was_started_in_it_ends_with_it_even_what_has_left_its_parent(programs, tmp_path):
    with enclosed(tmp_path) as enclosure:
        enclosure.run("/bin/sh", "-c", "setsid sleep 1000 & echo", environment={"PATH": os.defpath})
        kept = enclosure.start("sleep", "/bin/sleep", "1000", environment={})
        inside = cgroups.processes()
        assert len(inside) == 3, "the first process, and two that sleep"
    assert kept.has_ended()
    assert not any(Path(f"/proc/{pid}").exists() for pid in inside)


def test_it_ends_with_whoever_opened_it_and_the_next_one_clears_up(programs, tmp_path):
    script = """
        import sys
        from pathlib import Path
        from tests.node.enclosure import enclosed
        with enclosed(Path(sys.argv[1])) as enclosure:
            print(enclosure.start("sleep", "/bin/sleep", "1000", environment={}).pid, flush=True)
            sys.stdin.read()
    """
    (tmp_path / "killed").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), tmp_path / "killed"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        sleeping = os.pidfd_open(int(holder.stdout.readline()))
        holder.send_signal(signal.SIGKILL)
    assert select.select([sleeping], [], [], 10)[0], "it has ended"
    os.close(sleeping)
    assert any(cgroup.exists() for cgroup in cgroups.ours())
    (tmp_path / "next").mkdir()
    with enclosed(tmp_path / "next"):
        pass
    assert not any(cgroup.exists() for cgroup in cgroups.ours())


def test_who_is_not_root_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Impossible, match="only root can run a kubelet and containers"), enclosed(tmp_path):
        pass
