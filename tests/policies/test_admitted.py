"""Whom a plan admits, runs: whatever the scheduler, the kubelets and the agents do meanwhile, while nothing else comes.

Released pods may land on any free slice, so what others are planned on has to be cut, or kept, before (docs/adr/0029).
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.annotations import Placement
from policies.catalogue import by_product
from policies.decision import Layout
from policies.geometry import geometry_of
from policies.placement import arrange
from policies.settle import settle
from tests.builders import A30
from tests.policies.adversary import Adversary, admitted
from tests.policies.cluster import (
    begin,
    bound,
    carry_out,
    cluster,
    free,
    gated,
    node,
    released,
    used,
)
from tests.policies.test_settle_laws import KINDS, random_cluster

SEVEN = [free("1g.5gb", start) for start in range(7)]


def at(second):
    return f"2026-03-02T09:00:{second:02}Z"


def board(*slices, **fields):
    return node("n1", placements={"0": list(slices)}, **fields)


def released_keys(decision):
    return [release.pod for release in decision.ungate]


def messages(decision):
    return {waiting.pod: waiting.message for waiting in decision.waiting}


# A pod for which a slice is free, and another for which a board has to be cut ------------------------------------------


@pytest.mark.parametrize(
    ("slices", "wants", "target"),
    [
        pytest.param(
            SEVEN,
            ("1g.5gb", "4g.20gb"),
            ("4g.20gb@0", "1g.5gb@4", "1g.5gb@5", "1g.5gb@6"),
            id="seven-1g-are-free-for-a-1g-and-a-4g",
        ),
        pytest.param([free("3g.20gb", 0)], ("3g.20gb", "4g.20gb"), ("4g.20gb@0", "3g.20gb@4"), id="the-3g-lies-at-0"),
        pytest.param(
            [free("1g.5gb", 4), free("1g.5gb", 5), free("1g.10gb", 6), used("4g.20gb", 0)],
            ("1g.5gb", "2g.10gb"),
            ("4g.20gb@0", "2g.10gb@4", "1g.5gb@6"),
            id="a-1g-at-4-would-block-a-2g",
        ),
    ],
)
def test_the_board_is_cut_before_an_older_pod_is_released_that_could_land_on_what_must_go(slices, wants, target):
    pods = [gated(f"ml/{number}", profile, created=at(number)) for number, profile in enumerate(wants)]
    running = [bound("x/busy", "n1", item["profile"]) for item in slices if item["used"]]
    view = begin(cluster([board(*slices)], [*running, *pods]))
    decision = settle(view)
    (layout,) = decision.layouts
    assert (released_keys(decision), layout.destroys) == ([], True)
    assert tuple(f"{item.profile}@{item.start}" for item in layout.target[0]) == target
    assert messages(decision) == {
        "ml/0": f"needs {wants[0]}; node n1 has that, and is cut for others first",
        "ml/1": f"needs {wants[1]}; node n1 is being cut for it",
    }
    assert released_keys(settle(carry_out(view, decision))) == ["ml/0", "ml/1"]


def test_where_the_older_one_can_land_elsewhere_it_is_kept_off_and_does_not_wait():
    nodes = [board(*SEVEN), node("n2", placements={"0": [used("4g.20gb", 0), used("2g.10gb", 4), free("1g.5gb", 6)]})]
    pods = [
        bound("x/busy", "n2", "4g.20gb"),
        bound("x/small", "n2", "2g.10gb"),
        gated("ml/one", "1g.5gb", created=at(1)),
        gated("ml/four", "4g.20gb", created=at(2)),
    ]
    decision = settle(begin(cluster(nodes, pods)))
    assert [(release.pod, release.avoid) for release in decision.ungate] == [("ml/one", ("n1",))]
    assert [layout.node for layout in decision.layouts] == ["n1"]


def ordered(spec, *, at_s):
    """Return annotations of a node whose agent was told something at that time, and has not done it yet."""
    return {names.SPEC_PLACEMENTS: spec, names.SPEC_PLAN: str(at_s * 1000)}


@pytest.mark.parametrize(
    ("now", "released"),
    [
        pytest.param(1005, [], id="five-seconds-are-waited"),
        pytest.param(1006, ["ml/one"], id="no-longer"),
    ],
)
def test_nobody_waits_for_long_for_an_agent_that_does_not_answer(now, released):
    """Board 1 is ordered; board 0 would be cut for the 4g when that is done."""
    order = ordered('{"1": [{"profile": "7g.40gb", "start": 0}]}', at_s=1000)
    one = node("n1", count=2, placements={"0": [free("1g.5gb", 0), free("1g.5gb", 4)]}, annotations=order)
    pods = [
        gated("ml/seven", "7g.40gb", created=at(0)),
        gated("ml/one", "1g.5gb", created=at(1)),
        gated("ml/four", "4g.20gb", created=at(2)),
    ]
    decision = settle(cluster([one], pods, now=float(now)))
    assert (released_keys(decision), decision.layouts) == (released, ())


def leaving(view, key, claimant):
    """Return the view with a pod on its way out for another."""
    pods = tuple(replace(pod, terminating=True, evicted_for=claimant) if pod.key == key else pod for pod in view.pods)
    return replace(view, pods=pods)


def test_what_must_go_goes_at_once_if_somebody_waits_for_that_though_room_for_others_comes_when_a_victim_has_ended():
    """The 4g takes the place of the victim's 2g and of the 1g at 0; ml/one has the other 1g when that has gone."""
    slices = [free("1g.5gb", 0), used("2g.10gb", 2), free("1g.5gb", 6)]
    pods = [
        bound("x/goes", "n1", "2g.10gb"),
        gated("ml/one", "1g.5gb", created=at(1)),
        gated("ml/four", "4g.20gb", created=at(2)),
    ]
    view = leaving(begin(cluster([board(*slices)], pods)), "x/goes", "ml/four")
    decision = settle(view)
    kept = (Placement("2g.10gb", 2), Placement("1g.5gb", 6))
    basis = (Placement("1g.5gb", 0), *kept)
    assert (released_keys(decision), decision.layouts) == (
        [],
        (Layout(node="n1", target={0: kept}, basis={0: basis}, destroys=True),),
    )
    after = settle(carry_out(view, decision))
    assert (released_keys(after), after.layouts) == (["ml/one"], ())


@pytest.mark.parametrize(
    ("boards", "asked"),
    [
        # The fullest board comes first, but what is free there is still the victim's.
        pytest.param(
            {"n1": [used("2g.12gb", 0), used("1g.6gb", 2)], "n2": [free("1g.6gb", 0)]}, 1, id="on-another-node"
        ),
        pytest.param(
            {name: [used("1g.6gb", 0), free("1g.6gb", 1)] for name in ("n1", "n2")}, 2, id="on-nodes-that-victims-leave"
        ),
    ],
)
def test_nobody_waits_for_a_victim_who_finds_his_slice_elsewhere_at_once(boards, asked):
    nodes = [node(name, A30, placements={"0": slices}) for name, slices in boards.items()]
    pods = [
        bound(f"x/{name}-{item['start']}", name, item["profile"])
        for name, slices in boards.items()
        for item in slices
        if item["used"]
    ]
    wait = [f"ml/{number}" for number in range(asked)]
    view = begin(cluster(nodes, [*pods, *(gated(key, "1g.6gb", created=at(0)) for key in wait)]))
    for pod in view.pods:
        if pod.node and "nvidia.com/mig-1g.6gb" in pod.request:
            view = leaving(view, pod.key, "ml/that-comes-no-more")
    assert released_keys(settle(view)) == wait


@pytest.mark.parametrize(
    ("created", "goes"),
    [
        pytest.param(30, [], id="half-a-minute-later"),
        pytest.param(31, ["ml/waits"], id="much-later"),
    ],
)
def test_nobody_who_could_take_a_place_that_is_being_cut_is_released_but_before_much_younger_pods(created, goes):
    """ml/promised may take the home of ml/waits, which is safe only as long as it may go to n2 too, where ml/two is to come."""
    half = {"0": [free("2g.12gb", 0)]}
    nodes = [
        node("n1", A30, placements=half, labels={"promised": "here", "waits": "here"}),
        node("n2", A30, placements=half, labels={"waits": "here", "two": "here"}),
        node("n3", A30, placements=half, labels={"promised": "here"}),
    ]
    pods = [
        released("ml/promised", "2g.12gb", nodeSelector={"promised": "here"}),
        gated("ml/waits", "2g.12gb", created=at(0), nodeSelector={"waits": "here"}),
        gated("ml/two", "2g.12gb", count=2, created=at(created), nodeSelector={"two": "here"}),
    ]
    decision = settle(cluster(nodes, pods))
    assert (released_keys(decision), [layout.node for layout in decision.layouts]) == (goes, ["n2"])


# A node that has an order to carry out ---------------------------------------------------------------------------------


def test_what_an_older_pod_is_due_on_a_nodes_other_boards_is_kept_while_the_node_is_being_cut():
    """Board 0 becomes a 7g; the second 7g gets board 1 after that, so that its 1g is given to nobody."""
    order = ordered('{"0": [{"profile": "7g.40gb", "start": 0}]}', at_s=1000)
    slices = {"0": [free("2g.10gb", 4)], "1": [free("1g.5gb", 6)]}
    pods = [gated(f"ml/{number}", "7g.40gb", created=at(number)) for number in range(2)]
    pods.append(gated("ml/small", "1g.5gb", created=at(2)))
    one = node("n1", count=2, placements=slices, annotations=order)
    decision = settle(cluster([one], pods, now=1000.5))
    assert (decision.ungate, decision.layouts, decision.planned.keys()) == ((), (), {"ml/0", "ml/1"})
    assert messages(decision) == {
        "ml/0": "needs 7g.40gb; node n1 is being cut for it",
        "ml/1": "needs 7g.40gb; node n1 is cut for it when it has carried out an order",
        "ml/small": "needs 1g.5gb; when the pods before it are served, no board has 5 GB free (the freest of 2 has 0 GB)",
    }


def test_others_are_cut_meanwhile():
    """What can be had at once on another node is not put off, even if a free slice has to go for it."""
    order = ordered('{"0": [{"profile": "7g.40gb", "start": 0}]}', at_s=1000)
    nodes = [
        node("n1", count=2, placements={"0": [], "1": []}, annotations=order),
        node("n2", placements={"0": [free("1g.5gb", 0)]}),
    ]
    pods = [gated(f"ml/{number}", "7g.40gb", created=at(number)) for number in range(2)]
    decision = settle(cluster(nodes, pods, now=1000.5))
    assert [layout.node for layout in decision.layouts] == ["n2"]


def test_a_claimant_gets_what_a_victim_leaves_though_its_node_is_being_cut_just_then():
    """The 2g is being cut beside the victim's 4g when that ends: its place is for the 3g, not for a younger 4g."""
    order = ordered('{"0": [{"profile": "4g.20gb", "start": 0}, {"profile": "2g.10gb", "start": 4}]}', at_s=1000)
    pods = [
        gated("ml/two", "2g.10gb", created=at(0)),
        gated("ml/three", "3g.20gb", created=at(1)),
        gated("ml/four", "4g.20gb", created=at(2)),
    ]
    one = node("n1", placements={"0": [free("4g.20gb", 0)]}, annotations=order)
    decision = settle(cluster([one], pods, now=1000.5))
    assert (decision.ungate, decision.planned.keys()) == ((), {"ml/two", "ml/three"})


@pytest.mark.parametrize("told", [True, False], ids=["told", "not-told-yet"])
def test_a_slice_that_is_being_made_counts_once_though_its_board_does_not_show_yet_who_holds_the_others(told):
    """The pair needs n1's free 3g and the one that is coming, so who finds its own elsewhere is kept off n1."""
    ones = [free("1g.5gb", 4), free("1g.5gb", 5)]
    order = ordered('{"1": [{"profile": "3g.20gb", "start": 0}, {"profile": "1g.5gb", "start": 4}, {"profile": "1g.5gb", "start": 5}]}', at_s=0)  # fmt: skip
    nodes = [
        node("n0", placements={"0": [free("3g.20gb", 4)]}),
        node("n1", count=2, placements={"0": [free("3g.20gb", 0)], "1": ones}, annotations=order),
    ]
    pods = [
        bound("x/one", "n1", "1g.5gb"),
        bound("x/other", "n1", "1g.5gb"),
        gated("ml/pair", "3g.20gb", count=2, created=at(0)),
        gated("ml/single", "3g.20gb", created=at(1)),
    ]
    view = cluster(nodes, pods)
    decision = settle(begin(view) if told else view)
    assert [(release.pod, release.avoid) for release in decision.ungate] == [("ml/single", ("n1",))]
    assert decision.planned.keys() == {"ml/pair"}


# The law --------------------------------------------------------------------------------------------------------------


def one_board(chance):
    """Return one board with free slices at random places, and a few pods."""
    (product, mode), profiles = chance.choice(list(KINDS.items()))
    model, there = by_product(product), ()
    for _ in range(chance.randint(1, 7)):
        profile = chance.choice(profiles)
        if mode == names.MPS:
            found = arrange(model, mode, there, (profile,))
            there += found.placed if found else ()
        else:
            geometry = geometry_of(model)
            ways = list(geometry.layouts(geometry.occupied(there), (profile,)))
            there += chance.choice(ways)[0] if ways else ()
    pods = [
        gated(f"wait/{number}", chance.choice(profiles), count=chance.choice((1, 1, 1, 2)), created=at(number))
        for number in range(chance.randint(2, 4))
    ]
    placements = {"0": [free(item.profile, item.start) for item in there]}
    return begin(cluster([node("n1", product, mode=mode, placements=placements)], pods))


def roomy(view):
    """Return the view with room for everybody, so that slices alone decide."""
    room = {"cpu": 64_000, "pods": 110_000}
    return replace(view, nodes=tuple(replace(one, allocatable={**one.allocatable, **room}) for one in view.nodes))


@given(st.randoms(use_true_random=True))
@settings(max_examples=60, deadline=None)
def test_whom_a_plan_of_one_board_admits_runs(chance):
    view = one_board(chance)
    promised = admitted(settle(view))
    assert promised <= Adversary(view, chance).play()


@given(st.randoms(use_true_random=True))
@settings(max_examples=40, deadline=None)
def test_whom_a_plan_of_a_few_nodes_admits_runs(chance):
    view = roomy(random_cluster(chance))
    promised = admitted(settle(view))
    assert promised <= Adversary(view, chance).play()
