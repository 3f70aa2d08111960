"""Processes, their pods, and what these use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.agent.mps.overuse import Overuse, Use
from reconciler.agent.mps.usage import Process, memory_by_pod, pod_of

UID, UNDERSCORED = "1b2c3d4e-0a1b-4c2d-8e3f-0123456789ab", "1b2c3d4e_0a1b_4c2d_8e3f_0123456789ab"
CONTAINER = "cri-containerd-6f1ed002ab5595859014ebf0951522d9b7f1f8e4c1c6a4c0b0d1c2e3f4a5b6c7.scope"
STATIC = "8c1b3a5f9e7d2c4b6a8f0e1d3c5b7a99"


@pytest.mark.parametrize(
    ("cgroups", "pod"),
    [
        pytest.param(
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/{CONTAINER}\n", UID,
            id="v2-systemd-burstable",
        ),
        pytest.param(f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/{CONTAINER}\n", UID, id="v2-systemd-guaranteed"),
        pytest.param(
            f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/crio-4711.scope/container\n",
            UID, id="v2-crio-with-a-cgroup-inside",
        ),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/4711\n", UID, id="v2-cgroupfs"),
        pytest.param(f"0::/kubepods/pod{UID}/4711\n", UID, id="v2-cgroupfs-guaranteed"),
        pytest.param(
            f"0::/../../kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/{CONTAINER}\n", UID,
            id="v2-seen-from-a-cgroup-namespace",
        ),
        pytest.param(
            f"12:pids:/kubepods/burstable/pod{UID}/4711\n4:memory:/kubepods/burstable/pod{UID}/4711\n1:name=systemd:/x\n0::/\n", UID,
            id="v1-cgroupfs",
        ),
        pytest.param(
            "0::/\n1:name=systemd:/kubepods.slice/kubepods-burstable.slice/"
            f"kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:4711\n",
            UID, id="v1-systemd-old-containerd",
        ),
        pytest.param(f"0::/kubepods/burstable/pod{STATIC}/4711\n", STATIC, id="static-pod"),
        pytest.param(f"0::/docker/08ab/kubelet/kubepods/burstable/pod{UID}/4711\n", UID, id="node-in-a-container"),
        pytest.param(
            f"0::/kubepods/pod{UID}/4711/kubelet/kubepods/burstable/pod99999999-0a1b-4c2d-8e3f-0123456789ab/4712\n", UID,
            id="kubelet-in-a-pod",
        ),
        pytest.param("0::/system.slice/sshd.service\n", None, id="service-of-the-node"),
        pytest.param("0::/apportion-mps\n", None, id="mps-daemon"),
        pytest.param(f"0::/user.slice/pod{UID}/4711\n", None, id="no-kubelets-cgroup"),
        pytest.param("0::/kubepods.slice/kubepods-burstable.slice\n", None, id="no-pod"),
        pytest.param("0::/kubepods/burstable/podcast/4711\n", None, id="no-uid"),
        pytest.param("", None, id="gone"),
        pytest.param("nonsense", None, id="unreadable"),
    ],
)  # fmt: skip
def test_a_process_is_of_the_pod_whose_cgroup_it_is_in(cgroups, pod):
    assert pod_of(cgroups) == pod


def test_memory_of_all_processes_of_a_pod_is_summed():
    """A02: two processes in one container, each below the limit."""
    processes = [Process(11, 9000), Process(12, 9000), Process(21, 4000), Process(99, 300)]
    assert memory_by_pod(processes, {11: "a", 12: "a", 21: "b"}) == {"a": 18000, "b": 4000}


def uses(*mib):
    """Return the uses of pods a, b, ... of one board, each with a slice of 100 MiB."""
    return {("GPU", pod): Use("GPU", pod, amount, 100) for pod, amount in zip("abc", mib, strict=False)}


def test_who_is_above_its_slice_for_half_a_minute_is_named_once():
    """A02."""
    overuse = Overuse()
    assert overuse.look(uses(101, 100), 0.0) == ()
    assert overuse.look(uses(101, 101), 29.9) == ()
    assert overuse.look(uses(150, 101), 30.0) == (Use("GPU", "a", 150, 100),)
    assert overuse.look(uses(150, 101), 59.9) == (Use("GPU", "b", 101, 100),)
    assert overuse.look(uses(150, 101), 900.0) == ()


@pytest.mark.parametrize("pause", [uses(100), {}], ids=["below", "gone"])
def test_who_has_been_below_begins_anew(pause):
    overuse = Overuse()
    overuse.look(uses(101), 0.0)
    overuse.look(pause, 20.0)
    assert overuse.look(uses(101), 40.0) == ()
    assert overuse.look(uses(101), 70.0) == (Use("GPU", "a", 101, 100),)
    overuse.look(pause, 80.0)
    overuse.look(uses(101), 90.0)
    assert overuse.look(uses(101), 120.0) == (Use("GPU", "a", 101, 100),)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(90, 110)), max_size=30))
def test_nobody_is_named_who_was_not_above_all_the_time(steps):
    overuse, now, since = Overuse(), 0, None
    for passed, mib in steps:
        now += passed
        since = (now if since is None else since) if mib > 100 else None
        named = overuse.look(uses(mib), float(now))
        assert not named or (since is not None and now - since >= 30)
