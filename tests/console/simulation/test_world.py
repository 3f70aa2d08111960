"""What the simulated cluster does with decisions that no story on files can bring about."""

import json

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


def board(*slices):
    return json.dumps({"0": [{"profile": profile, "start": start, "used": False} for profile, start in slices]})


def run(node, *pods):
    """Let pods arrive in 2026 on one A100, and return who runs in the end."""
    world = World(1_796_077_200.0, lambda _key, _at: None)
    world.at(0.0, lambda: world.arrive([view_node(node)], []))
    for name, profile, priority in pods:
        fields = {"gates": ["nos.nebuly.com/admission"], "priority": priority}
        raw = raw_pod(f"a/{name}", limits={f"nvidia.com/mig-{profile}": "1"}, created="2026-11-30T22:18:30Z", **fields)
        pod = SimulatedPod(key=f"a/{name}", raw=raw, view=view_pod(msgspec.convert(raw, Pod)))
        world.at(0.0, lambda pod=pod: world.submit(pod))
    world.run()
    return {key for key, pod in world.pods.items() if pod.outcome == "running"}


def test_an_order_is_as_young_as_the_clock_of_the_story_says():
    """Room for one pod: the slice that is cut for the older one is not given up, and the younger one waits."""
    notes = {"nos.nebuly.com/status-placements": board(("1g.5gb", 0), ("1g.5gb", 2), ("3g.20gb", 4))}
    node = make_node("n1", annotations=notes, resources={"pods": "1"})
    assert run(node, ("old", "2g.10gb", 5), ("young", "1g.5gb", 0)) == {"a/old"}


def test_an_order_that_is_on_its_way_when_the_story_begins_is_carried_out():
    notes = {
        "nos.nebuly.com/status-placements": board(("1g.5gb", 0)),
        "nos.nebuly.com/spec-placements": board(("7g.40gb", 0)).replace(', "used": false', ""),
        "nos.nebuly.com/spec-partitioning-plan": "1796077118925",
    }
    assert run(make_node("n1", annotations=notes), ("waits", "7g.40gb", 0)) == {"a/waits"}
