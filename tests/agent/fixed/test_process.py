"""The agent's process on a whole machine whose layout is fixed by files in ConfigMaps."""

import pytest

from policies import names
from tests.agent.fixed.node import PLUGIN, mig, mig_parted, sharing
from tests.agent.kubelet import Rejected
from tests.agent.process import AgentProcess, condition
from tests.builders import A100, T4
from tests.nvml.library import needs_gcc

pytestmark = needs_gcc

GPU = "nvidia.com/gpu"
READY = ("True", "BoardsReady", "")


class FixedProcess(AgentProcess):
    """The agent of a node whose labels name these ConfigMaps."""

    def __init__(self, *products, config_maps, **fields):
        super().__init__(*products, **fields)
        self._config_maps = config_maps

    def start(self):
        for name, data in self._config_maps.items():
            path = f"/api/v1/namespaces/apportion-system/configmaps/{name}"
            self.api.route("GET", path, lambda _, wire, data=data: wire.json(200, {"data": data}))
        super().start()


def test_boards_are_shared_in_turns():
    """The row "time-slicing by NVIDIA's plugin", and its words for a request of two."""
    text = sharing("timeSlicing", "name: nvidia.com/gpu, replicas: 4", failRequestsGreaterThanOne="true")
    node = {"product": T4, "count": 2, "mode": "timeslicing", "labels": PLUGIN}
    with FixedProcess(T4, T4, config_maps={"plugins": {"default": text}}, node=node, mig=[False, False]) as agent:
        agent.wait(lambda node: node["status"]["allocatable"].get(GPU) == "8")
        assert condition(agent.node) == READY
        assert agent.kubelet.counts() == {GPU: (8, 8)}
        answer = agent.kubelet.admit("team-a/notebook", GPU)
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] in agent.machine.uuids
        with pytest.raises(
            Rejected, match=r"request for 'nvidia\.com/gpu: 2' too large: maximum request size for shared"
        ):
            agent.kubelet.admit("team-a/two", GPU, 2)


def test_equal_slices_are_gpus_by_strategy_single_and_each_is_its_own_device():
    parted = mig_parted('devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 2}')
    maps = {
        "plugins": {"default": "version: v1\nflags: {migStrategy: single}"},
        "default-mig-parted-config": {"config.yaml": parted},
    }
    with FixedProcess(A100, config_maps=maps, node={"labels": {**PLUGIN, **mig()}}) as agent:
        agent.wait(lambda node: node["status"]["allocatable"].get(GPU) == "2")
        seen = {agent.kubelet.admit(f"team-a/{name}", GPU).envs["NVIDIA_VISIBLE_DEVICES"] for name in ("a", "b")}
        assert len(seen) == 2
        assert all(uuid.startswith("MIG-") for uuid in seen)
        assert len(agent.machine_numbers()) == 2


def test_a_file_with_faults_is_told_on_the_node():
    maps = {"plugins": {"default": "version: v1\nsharing: {mps: {resources: [{name: gpu}]}}"}}
    with FixedProcess(
        T4, config_maps=maps, node={"product": T4, "mode": "timeslicing", "labels": PLUGIN}, mig=[False]
    ) as agent:
        agent.wait(condition)
        assert condition(agent.node) == (
            "False",
            "FixedLayoutInvalid",
            "ConfigMap apportion-system/plugins, default: sharing.mps.resources[0].replicas: missing: a whole number is needed",
        )
        assert '"fixed":true' in agent.node["metadata"]["annotations"][names.INVENTORY]
