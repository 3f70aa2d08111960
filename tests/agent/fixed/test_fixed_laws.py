"""What holds for every fixed layout, whatever was there, whoever holds what and however often the agent dies on the way."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies import names
from policies.annotations import Placement
from policies.catalogue import by_product
from reconciler.agent.rules import rejection
from tests.agent.fixed.node import FixedNode, mig_parted, sharing
from tests.builders import A30, A100, T4


@st.composite
def layouts(draw, model, mode):
    """Draw a legal layout."""
    if mode == names.MPS:
        candidates = [Placement(f"{size}gb") for size in (1, 4, 5, 8)]
    else:
        candidates = [Placement(profile.name, at) for profile in model.profiles for at in profile.starts]
    layout = []
    for item in draw(st.lists(st.sampled_from(candidates), max_size=6)):
        if rejection(model, layout, item) is None:
            layout.append(item)
    return layout


def file_of(mode, layout):
    """Return how a file is given to a node that asks for this layout."""
    counts = Counter(item.profile for item in layout)
    if mode == names.MIG:
        devices = ", ".join(f'"{profile}": {count}' for profile, count in counts.items())
        return {"mig_parted": mig_parted(f"devices: all, mig-enabled: true, mig-devices: {{{devices}}}")}
    entries = [
        f"name: gpu, rename: gpu-{profile}, memoryGB: {profile[:-2]}, replicas: {count}"
        for profile, count in counts.items()
    ]
    return {"plugin": sharing("mps", *entries)}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from([(A30, "mig"), (A100, "mig"), (T4, "mps")]), st.sets(st.integers(1, 60), max_size=4))
def test_a_fixed_layout_is_reached_and_no_used_slice_is_touched_on_the_way(data, kind, kills):
    """A03: what pods hold stays in its place until they end; then the board is what its file says, and nothing is left over."""
    product, mode = kind
    model = by_product(product)
    before, target = data.draw(layouts(model, mode)), data.draw(layouts(model, mode))
    spelt = [item.profile if item.start is None else (item.profile, item.start) for item in before]
    node = FixedNode({0: spelt}, product=product, mode=mode)
    held = [item.profile for item in before if data.draw(st.booleans())]
    prefix = names.MIG_RESOURCE if mode == "mig" else names.MPS_RESOURCE
    for number, profile in enumerate(held):
        node.bind(f"team-a/p{number}", prefix + profile.replace("+", "."))
    node.run()
    holders = dict(node._kubelet.allocated())
    assert len(holders) == len(held)
    used = Counter(item.placement for item in node.read().reported[0] if item.used)

    other = FixedNode(product=product, mode=mode, **file_of(mode, target))
    node.config_maps = other.config_maps
    node.node["metadata"]["labels"] |= other.node["metadata"]["labels"]
    node.calls, node.kills = 0, kills
    node.finish()
    assert node._kubelet.allocated() == holders
    assert used <= Counter(node.layout(0))
    assert node.condition()[1] in ("BoardsReady", "FixedLayoutPending")

    for key in [*node.pods]:
        node.end(key)
    node.finish()
    if mode == "mps" and not target:  # a file without entries fixes nothing: what there is stays
        return
    assert Counter(item.profile for item in node.layout(0)) == Counter(item.profile for item in target)
    assert sum(node.resources().values()) == len(target)
