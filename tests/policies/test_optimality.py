"""The planner against an integer program: who is refused could not have been served, and no more goes than must.

Seeded numbers of random clusters; `make bench ONLY=optimality` looks at many more.
"""

import random

import pytest

from tests.policies.demands import Ask, Board, Node, key, random_case, single_board, walk
from tests.policies.ilp import can_be_served, fewest_destroyed, wrongly_refused

SINGLE_BOARDS = 250
SMALL, LARGE = 40, 12  # clusters


def destroyed(found):
    """Return how many free slices a plan destroys."""
    return sum(
        state.layout.destroyed for states in found.seating.states for state in states if state.layout and state.target
    )


@pytest.mark.parametrize(
    ("board", "profiles", "fewest"),
    [
        # By hand: a 3g beside a used 3g at 0 takes the upper half; the 2g at 4 and the 1g at 6 lie there.
        (Board("NVIDIA-A100-SXM4-40GB", "mig", (("3g.20gb", 0),), (("2g.10gb", 4), ("1g.5gb", 6))), ["3g.20gb"], 2),
        (Board("NVIDIA-A100-SXM4-40GB", "mig", (("3g.20gb", 0),), (("1g.5gb", 6),)), ["2g.10gb", "1g.5gb"], 0),
        (Board("NVIDIA-A100-SXM4-40GB", "mig", (("1g.5gb", 3), ("1g.5gb", 6))), ["3g.20gb"], None),
        (Board("NVIDIA-A30", "mig", (), (("4g.24gb", 0),)), ["1g.6gb+me", "2g.12gb+me"], None),
    ],
)
def test_the_oracle_knows_what_can_be_counted_by_hand(board, profiles, fewest):
    nodes, asked = (Node("n00", "a", (board,)),), [Ask(((profile, 1),)) for profile in profiles]
    assert can_be_served(nodes, asked) == (fewest is not None)
    assert fewest_destroyed(nodes, asked) == fewest


def test_the_oracle_minds_zones_cpus_and_that_a_pod_sits_on_one_node():
    board = Board("NVIDIA-A30", "mig")
    nodes = (Node("n00", "a", (board, board), cpu=4), Node("n01", "b", (board,), cpu=4, pods=1))
    assert can_be_served(nodes, [Ask((("4g.24gb", 2),)), Ask((("4g.24gb", 1),))])
    assert not can_be_served(nodes, [Ask((("4g.24gb", 3),))])
    assert not can_be_served(nodes, [Ask((("4g.24gb", 2),), zone="b")])
    assert not can_be_served(nodes, [Ask((("1g.6gb", 1),), cpu=3)] * 3)
    assert not can_be_served(nodes, [Ask((("1g.6gb", 1),), zone="b")] * 2)


def test_on_a_single_board_nobody_is_refused_who_could_be_served_and_the_fewest_slices_go():
    """P10, P18: of every model, cut and used at random."""
    refusals = 0
    for seed in range(SINGLE_BOARDS):
        nodes, asked = single_board(random.Random(seed))
        found = walk(nodes, asked)
        refused, wrong = wrongly_refused(nodes, asked, found)
        assert not wrong, (seed, nodes, asked)
        served = [ask for number, ask in enumerate(asked) if key(number) in found.guests]
        assert destroyed(found) == fewest_destroyed(nodes, served), (seed, nodes, served)
        refusals += refused
    assert refusals > SINGLE_BOARDS  # else these cases show nothing


@pytest.mark.parametrize(
    ("clusters", "nodes", "boards"),
    [
        pytest.param(SMALL, 3, 3, id="few-boards"),
        pytest.param(LARGE, 10, 5, id="more-than-are-searched-to-the-end"),
    ],
)
def test_of_the_pods_that_are_refused_at_most_one_in_a_hundred_could_have_been_served(clusters, nodes, boards):
    refused, wrong = 0, []
    for seed in range(clusters):
        chance = random.Random(seed)
        case = random_case(chance, chance.randint(1, nodes), boards)
        more, servable = wrongly_refused(*case, walk(*case))
        refused += more
        wrong += [(seed, number) for number in servable]
    assert refused > 2 * clusters
    assert len(wrong) <= refused / 100, wrong
