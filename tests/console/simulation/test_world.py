"""What the simulated cluster does with decisions that no story on files can bring about."""

import msgspec

from console.simulation.world import SimulatedPod, World
from policies.model import Pod
from policies.view import view_node, view_pod
from tests.builders import make_node, raw_pod


def lost(**fields):
    raw = raw_pod("ml/lost", limits={"nvidia.com/mig-1g.5gb": "1"}, owner=True, **fields)
    return SimulatedPod(key="ml/lost", raw=raw, view=view_pod(msgspec.convert(raw, Pod)))


def test_a_pod_whose_place_is_gone_goes_back_to_the_gate_after_half_a_minute():
    """Its owner makes it again at once, since it ran nowhere; there it stays."""
    node = make_node("n1", product="", mode="", resources={"cpu": "8", "memory": "64Gi", "pods": "110"})
    world = World(1000.0, lambda _key, _at: lost(gates=["nos.nebuly.com/admission"]))
    world.at(0.0, lambda: world.arrive([view_node(node)], []))
    world.at(0.0, lambda: world.submit(lost(annotations={"nos.nebuly.com/released-at": "1970-01-01T00:16:40Z"})))
    world.run()
    assert [(event.at, event.what) for event in world.events] == [(30.0, "evicted"), (30.0, "created")]
    pod = world.pods["ml/lost"]
    assert (pod.outcome, pod.view.gated, pod.evicted_for) == ("waiting", True, None)
