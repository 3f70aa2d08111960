"""To which pod a process of the node belongs."""

import pytest

from reconciler.agent.processes import pod_of

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
