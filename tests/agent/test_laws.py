"""What holds for every legal order, whoever holds what and however often the agent dies on the way."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies import names
from policies.annotations import Placement
from policies.catalogue import by_product
from reconciler.agent.rules import layout_fault, rejection
from tests.agent.world import World
from tests.builders import A30, A100, H100, T4
from tests.policies.facts import media_suffice

RTX = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


@st.composite
def grown(draw, model, mode, start=(), most=5):
    """Draw a legal layout that contains `start`."""
    if mode == names.MPS:
        candidates = [Placement(f"{size}gb") for size in (1, 4, 5, 8)]
    else:
        candidates = [Placement(profile.name, at) for profile in model.profiles for at in profile.starts]
    layout = list(start)
    for item in draw(st.lists(st.sampled_from(candidates), max_size=most)):
        if rejection(model, layout, item) is None:
            layout.append(item)
    return tuple(layout)


@st.composite
def stories(draw):
    """Draw a node, what its boards have, how many pods hold slices, and an order that touches none of these."""
    product, mode = draw(st.sampled_from([(A30, "mig"), (A100, "mig"), (H100, "mig"), (RTX, "mig"), (T4, "mps")]))
    model = by_product(product)
    boards = draw(st.integers(1, 3))
    before = {index: draw(grown(model, mode)) for index in range(boards)}
    world_of = {"product": product, "mode": mode, "count": boards}
    world = World({index: _spelt(layout) for index, layout in before.items()}, **world_of)
    wanted = [item.profile for layout in before.values() for item in layout if draw(st.booleans())]
    for number, profile in enumerate(wanted):
        prefix = names.MIG_RESOURCE if mode == "mig" else names.MPS_RESOURCE
        world.bind(f"team-a/p{number}", prefix + profile.replace("+", "."))
    world.run()
    ordered = draw(st.sets(st.sampled_from(range(boards)), min_size=1))
    target = {index: draw(st.permutations(draw(grown(model, mode, start=_used(world, index))))) for index in ordered}
    return world, target


def _spelt(layout):
    return [item.profile if item.start is None else (item.profile, item.start) for item in layout]


def _used(world, index):
    return [item.placement for item in world.read().reported[index] if item.used]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    stories(), st.sets(st.integers(1, 40), max_size=4), st.booleans(), st.sampled_from([World.restart, World.reboot])
)
def test_a_legal_order_is_carried_out_and_no_used_slice_is_touched(story, kills, forgetful, after):
    """P18: whatever the order of the layout; and A03: however often the agent is killed, or the node loses power."""
    world, target = story
    world.forgetful = forgetful
    holders, others = (
        world._kubelet.allocated(),
        {i: world.layout(i) for i in range(len(world.uuids)) if i not in target},
    )
    world.order(target)
    world.calls, world.kills = 0, kills
    world.finish(after=after)
    for index, wanted in target.items():
        assert sorted(map(str, world.layout(index))) == sorted(map(str, wanted))
    assert {index: world.layout(index) for index in others} == others
    assert world._kubelet.allocated() == holders
    assert world.rejected == []
    assert not any(world.driver.orphans(uuid) for uuid in world.uuids)
    assert sum(world.allocatable().values()) == sum(len(world.layout(index)) for index in range(len(world.uuids)))
    assert world.dealt_with


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_layout_is_legal_exactly_if_no_memory_unit_is_taken_twice_and_nothing_is_exceeded(data):
    """P10, P18: by the table of NVIDIA's possible placements, in any order of creation."""
    model = by_product(data.draw(st.sampled_from([A30, A100, H100, RTX])))
    places = [Placement(profile.name, at) for profile in model.profiles for at in profile.starts]
    layout = data.draw(st.lists(st.sampled_from(places), max_size=5))
    profiles = [(model.profile(item.profile), item.start) for item in layout]
    units = [unit for profile, at in profiles for unit in range(at, at + profile.memory_units)]
    legal = (
        len(units) == len(set(units))
        and sum(profile.compute for profile, _ in profiles) <= model.compute
        and all([p for p, _ in profiles].count(profile) <= (profile.max or 99) for profile, _ in profiles)
        and media_suffice([item.profile for item in layout])
    )
    assert (layout_fault(model, layout) is None) is legal
    assert (layout_fault(model, data.draw(st.permutations(layout))) is None) is legal
