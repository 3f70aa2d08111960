"""Makes the agents of simulated nodes: each with a driver and a kubelet that go on where the node's report left off."""

from typing import Final

import msgspec

from policies.boards import inventory_model
from reconciler.agent.agent import NodeAgent
from reconciler.agent.fixed.files import ConfigMaps, no_config_maps
from reconciler.agent.fixed.layouts import FixedLayouts
from reconciler.agent.node import NodeState
from reconciler.agent.pods import Pods, Tell
from reconciler.agent.simulated.driver import SimulatedDriver
from reconciler.agent.simulated.kubelet import SimulatedKubelet
from reconciler.agent.simulated.memory import recall


class Latency(msgspec.Struct, frozen=True):
    """What simulated hardware takes, in seconds.

    Attributes:
        call_s: creating or destroying a GPU instance or an MPS slice, or switching MIG mode on.
        kubelet_s: until the kubelet has taken over an announcement.
    """

    call_s: float
    kubelet_s: float


# A GPU instance takes a driver some 100 to 200 ms. The kubelet takes an announcement over within milliseconds; a second
# is what it takes when it is busy, and shows whether anything counts on it to be quick.
LATENCIES: Final = {"none": Latency(0.0, 0.0), "real": Latency(0.15, 1.0)}


def simulated_agent(
    node: NodeState,
    pods: Pods,
    tell: Tell,
    latency: Latency,
    config_maps: ConfigMaps = no_config_maps,
) -> NodeAgent:
    """Return the agent of a node that is simulated."""
    memory = recall(node)
    kubelet = SimulatedKubelet(
        pods,
        announced=memory.announced,
        allocated=memory.allocated,
        tell=tell,
        delay_s=latency.kubelet_s,
        models={board.uuid: inventory_model(board) for board in memory.boards},
    )
    driver = SimulatedDriver(
        memory.boards,
        present=memory.slices,
        unavailable=memory.fault,
        in_use=kubelet.holds,
        call_s=latency.call_s,
    )
    return NodeAgent(driver, kubelet, fixed=FixedLayouts(config_maps), pods=pods)
