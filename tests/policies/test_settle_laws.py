"""Laws of settling, on random clusters with random interleavings of leader, agents, scheduler and pods that end."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.annotations import Placement
from policies.catalogue import by_product
from policies.decision import Decision
from policies.placement import arrange
from policies.settle import settle
from tests.builders import A30, A100
from tests.policies.cluster import (
    agent_step,
    begin,
    bind,
    bound,
    cluster,
    end,
    free,
    gated,
    land_all,
    node,
    places,
    play,
    who_could_be_stuck,
    write,
)

KINDS = {
    (A30, names.MIG): ("1g.6gb", "1g.6gb", "2g.12gb", "4g.24gb"),
    (A100, names.MIG): ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"),
    (A30, names.MPS): ("8gb", "8gb", "12gb", "24gb"),
}
FINAL = {names.NO_ROOM, names.NO_BOARD, names.NODES_FULL, names.NODES_AWAY}


def random_cluster(chance):
    """Return a few nodes of one kind, cut at random and partly in use, and pods that compete for them."""
    product, mode = chance.choice(list(KINDS))
    profiles = KINDS[product, mode]
    nodes, pods = [], []
    for number in range(chance.randint(1, 4)):
        placements = {}
        for board in range(chance.choice((1, 1, 2))):
            there = ()
            for _ in range(chance.randint(0, 4)):
                found = arrange(by_product(product), mode, there, (chance.choice(profiles),))
                there += found.placed if found else ()
            placements[str(board)] = [free(item.profile, item.start) for item in there]
            pods += [
                bound(f"run/{number}-{board}-{place}", f"n{number}", item.profile)
                for place, item in enumerate(there)
                if chance.random() < 0.25
            ]
        room = {"cpu": chance.choice(("4", "6", "64", "64")), "pods": chance.choice(("7", "110"))}
        zone = {"zone": chance.choice("ab")}
        nodes.append(
            node(
                f"n{number}",
                product,
                count=len(placements),
                mode=mode,
                placements=placements,
                labels=zone,
                resources=room,
            )
        )
    for number in range(chance.randint(1, 9)):
        pods.append(
            gated(
                f"wait/{number}",
                chance.choice(profiles),
                count=chance.choice((1, 1, 1, 2, 3)),
                cpu=chance.choice((None, None, "1", "2", "4")),
                created=f"2026-03-02T09:00:{chance.randint(0, 9):02}Z",
                priority=chance.choice((0, 0, 5)),
                **({"nodeSelector": {"zone": chance.choice("ab")}} if chance.random() < 0.3 else {}),
            )
        )
    return begin(cluster(nodes, pods))


@given(st.randoms(use_true_random=True))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_in_between_released_pods_land_and_used_slices_stay(chance):
    """P16, P14 and the promise of section 5: at every instant, all released pods could land, on any of their nodes."""
    view = random_cluster(chance)
    for turn in range(30):
        match chance.choice(("settle", "settle", "agent", "land", "end")):
            case "settle":
                view = write(view, settle(view), str(turn + 1))
            case "agent":
                view = agent_step(view, chance.choice(view.nodes).name)  # asserts that no slice in use is destroyed
            case "land":
                for pod in [pod for pod in view.pods if pod.released][:1]:
                    view = bind(view, pod.key, chance.choice(places(view, pod)))
            case "end":
                for pod in [pod for pod in view.pods if pod.holds][: chance.randint(0, 1)]:
                    view = end(view, pod.key)
        if sum(pod.released for pod in view.pods) <= 5:  # all orders and nodes; else one of them
            assert who_could_be_stuck(view) is None
        else:
            assert not land_all(view, chance)[1]


@given(st.randoms(use_true_random=True))
@settings(max_examples=60, deadline=None)
def test_settling_comes_to_an_end_with_nobody_waiting_for_what_is_free(chance):
    view, decision = play(random_cluster(chance), chance)
    assert {waiting.reason for waiting in decision.waiting} <= FINAL
    assert settle(view) == decision
    assert decision == Decision(waiting=decision.waiting)
    gated_pods = [pod.key for pod in view.pods if pod.gated]
    assert sorted(waiting.pod for waiting in decision.waiting) == sorted(gated_pods)


@given(st.randoms(use_true_random=True))
@settings(max_examples=40, deadline=None)
def test_the_order_of_the_view_does_not_matter(chance):
    view = random_cluster(chance)
    nodes, pods = list(view.nodes), list(view.pods)
    chance.shuffle(nodes)
    chance.shuffle(pods)
    assert settle(replace(view, nodes=tuple(nodes), pods=tuple(pods))) == settle(view)


@given(st.randoms(use_true_random=True))
@settings(max_examples=40, deadline=None)
def test_layouts_that_are_ordered_are_legal_and_keep_what_is_used(chance):
    view = random_cluster(chance)
    by_name = {one.name: one for one in view.nodes}
    for layout in settle(view).layouts:
        for index, target in layout.target.items():
            board = next(board for board in by_name[layout.node].boards if board.index == index)
            held = tuple(item.placement for item in board.slices if item.used)
            rest = list(target)
            for item in held:
                rest.remove(item)
            profiles = tuple(item.profile for item in rest)
            assert arrange(board.model, board.mode, held, profiles) is not None
            if board.mode == names.MIG:
                taken = [unit for item in target for unit in _units(board.model, item)]
                assert len(taken) == len(set(taken))
                assert all(item.start in board.model.profile(item.profile).starts for item in target)


def _units(model, item: Placement):
    return range(item.start, item.start + model.profile(item.profile).memory_units)
