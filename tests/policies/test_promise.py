"""Who is released together: nobody is left without a place, whichever way all land, and as few wait as need to."""

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.crowding import Stock
from policies.promise import Claim, Role, release

RELEASED, CANDIDATE, COMING, LATER = Role
ONE = (("1g.5gb", 1),)


def claim(key, home, nodes, *, role=CANDIDATE, room=(), **need):
    """Return a claim on slices: `claim("a", 0, "01", x=2)` may land on nodes 0 and 1."""
    return Claim(key, role, tuple(sorted(need.items())), tuple(room), sum(1 << int(node) for node in nodes), home)


def stock(slices, room=None):
    """Return what nodes have, of which everything is free."""
    room = room or [{} for _ in slices]
    return Stock(now=slices, later=slices, room=room, ever=slices, whole=room)


def can_be_stuck(pods, there):
    """Return whether one of some pods, (takes, nodes) each, finds no place in some order of landing; brute force."""

    @cache
    def stuck(left, remaining):
        for pod in remaining:
            takes, nodes = pods[pod]
            fits = [node for node in nodes if all(dict(left[node]).get(what, 0) >= n for what, n in takes)]
            if not fits:
                return True
            for node in fits:
                after = dict(left[node])
                for what, amount in takes:
                    after[what] -= amount
                now = (*left[:node], tuple(sorted(after.items())), *left[node + 1 :])
                if stuck(now, remaining - {pod}):
                    return True
        return False

    return stuck(tuple(tuple(sorted(node.items())) for node in there), frozenset(range(len(pods))))


def landing(claims, nodes_of):
    """Return pods as brute force wants them."""
    return [
        ((*one.need, *one.room), tuple(node for node in range(nodes_of[one.key].bit_length()) if nodes_of[one.key] >> node & 1))
        for one in claims
    ]  # fmt: skip


def small_case(chance, *, profiles="xy", most=2, room=True):
    """Return claims and what nodes have for them, together with what the others have taken; the plan fits."""
    count = chance.randint(1, 3)
    slices, rooms, claims = [], [], []
    for _ in range(count):
        slices.append(dict.fromkeys(profiles, 0))
        rooms.append({"cpu": chance.randint(0, 3)} if room else {})
    for number in range(chance.randint(1, 6)):
        home = chance.randrange(count)
        need = {chance.choice(profiles): chance.randint(1, most)}
        cpu = chance.choice((0, 0, 1, 2)) if room else 0
        for profile, amount in need.items():
            slices[home][profile] += amount
        if cpu:
            rooms[home]["cpu"] += cpu
        nodes = {home, *(node for node in range(count) if chance.random() < 0.6)}
        role = chance.choice((RELEASED, CANDIDATE, CANDIDATE, CANDIDATE))
        claims.append(claim(str(number), home, nodes, role=role, room=(("cpu", cpu),) if cpu else (), **need))
    for node in slices:
        for profile in profiles:
            node[profile] += chance.choice((0, 0, 1, 2))
    return claims, stock(slices, rooms)


@given(st.randoms(use_true_random=True))
@settings(max_examples=1000, deadline=None)
def test_whichever_way_they_land_everybody_who_is_released_finds_a_place(chance):
    """The promise of section 5, held against all orders and all nodes. Who was in danger before does not count."""
    claims, there = small_case(chance)
    before = [one for one in claims if one.role is RELEASED]
    at = [{**now, **room} for now, room in zip(there.now, there.room, strict=True)]
    if can_be_stuck(landing(before, {one.key: one.nodes for one in before}), at):
        return
    released = release(claims, there).nodes
    nodes = {one.key: one.nodes for one in before} | released
    out = [one for one in claims if one.key in nodes]
    assert all(nodes[one.key] & ~one.nodes == 0 and nodes[one.key] >> one.home & 1 for one in out)
    assert not can_be_stuck(landing(out, nodes), at)


def subsets(one):
    """Yield the sets of nodes that a pod could be left with, its home always among them."""
    others = [node for node in range(one.nodes.bit_length()) if one.nodes >> node & 1 and node != one.home]
    for kept in product((0, 1), repeat=len(others)):
        yield 1 << one.home | sum(1 << node for node, stays in zip(others, kept, strict=True) if stays)


def most_by_brute_force(claims, there, at_least):
    """Return how many candidates could be released at most, whichever these are and whatever nodes each is kept off."""
    before = {one.key: one.nodes for one in claims if one.role is RELEASED}
    candidates = [one for one in claims if one.role is CANDIDATE]
    at = [{**now, **room} for now, room in zip(there.now, there.room, strict=True)]
    for count in range(len(candidates), at_least, -1):
        for some in combinations(candidates, count):
            for nodes in product(*map(subsets, some)):
                where = before | {one.key: kept for one, kept in zip(some, nodes, strict=True)}
                if not can_be_stuck(landing([one for one in claims if one.key in where], where), at):
                    return count
    return at_least


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        pytest.param({"profiles": "x", "most": 1, "room": False}, 0.01, id="one slice each, one profile"),
        pytest.param({"profiles": "x", "most": 3, "room": False}, 0.03, id="up to three slices each, one profile"),
        pytest.param({}, 0.04, id="two profiles, and CPU that may run short"),
    ],
)
def test_of_the_pods_that_could_be_released_hardly_any_waits(kind, share):
    """Against the best of all choices; there, whom to release is a puzzle, and the last few per cent are bound first."""
    could = waits = 0
    for seed in range(150):
        claims, there = small_case(random.Random(seed), **kind)
        before = [one for one in claims if one.role is RELEASED]
        at = [{**now, **room} for now, room in zip(there.now, there.room, strict=True)]
        safe = not can_be_stuck(landing(before, {one.key: one.nodes for one in before}), at)
        if safe and sum(one.role is CANDIDATE for one in claims) <= 4:
            released = len(release(claims, there).nodes)
            best = most_by_brute_force(claims, there, released)
            could, waits = could + best, waits + best - released
    assert could > 200
    assert waits <= share * could


def everywhere(nodes):
    return range(nodes)


def burst(nodes, free, singles, multiples, *, size):
    """Return the claims of a burst: pods of one slice and of several, seated node after node, on nodes of so many slices."""
    claims, left = [], [free] * nodes
    for number, need in enumerate([size] * multiples + [1] * singles):
        home = next(node for node, slices in enumerate(left) if slices >= need)
        left[home] -= need
        claims.append(claim(f"{number:04}", home, everywhere(nodes), x=need))
    return claims, stock([{"x": free}] * nodes)


@pytest.mark.parametrize(
    ("nodes", "free", "singles", "multiples", "size", "expected"),
    [
        # 1,000 nodes of 2: a single leaves no place for a pair there, and so does a pair; the last of 140 needs one.
        pytest.param(1000, 2, 860, 140, 2, (860, 140), id="pairs, as many as there is room for"),
        pytest.param(1000, 2, 1700, 140, 2, (860, 140), id="more singles: they wait for the pairs"),
        # One node is kept free for the pair, which may yet take another one: two singles are then to use the free one.
        pytest.param(1000, 2, 1996, 1, 2, (1996, 1), id="one pair: it keeps one node free"),
        pytest.param(1000, 2, 1998, 1, 2, (1996, 1), id="one pair, exactly as many as slices"),
        # 50 nodes of 40: 39 slices must go before none is left for a pair: 1,950 - 1,674 - 2 * 125 = 26.
        pytest.param(50, 40, 1674, 126, 2, (1674, 126), id="one in fourteen takes two slices"),
        pytest.param(50, 40, 2000, 0, 1, (2000, 0), id="equal pods, exactly as many as slices"),
        pytest.param(1000, 2, 0, 1000, 2, (0, 1000), id="equal pairs, exactly as many as slices"),
        # 100 nodes of 4: ten large ones would leave a place to 90 singles only. Kept off five nodes, all singles have one.
        pytest.param(100, 4, 360, 10, 4, (360, 5), id="few large ones that would hold back most"),
    ],
)
def test_in_a_burst_pods_of_several_slices_hold_back_at_most_themselves(
    nodes, free, singles, multiples, size, expected
):
    claims, there = burst(nodes, free, singles, multiples, size=size)
    released = release(claims, there).nodes
    found = Counter(one.need[0][1] > 1 for one in claims if one.key in released)
    assert (found[False], found[True]) == expected


@given(st.randoms(use_true_random=True))
@settings(max_examples=300, deadline=None)
def test_who_was_safe_remains_so_whoever_lands_and_whoever_comes(chance):
    """Release, let some land, release again: nobody is lost on the way, though the second time knows of no reason."""
    claims, there = small_case(chance)
    claims = [replace(one, role=CANDIDATE) for one in claims]
    at = [{**now, **room} for now, room in zip(there.now, there.room, strict=True)]
    nodes = release(claims[: chance.randint(0, len(claims))], there).nodes
    for one in [one for one in claims if one.key in nodes]:
        one.role, one.nodes = RELEASED, nodes[one.key]
        takes = (*one.need, *one.room)
        open_to = [n for n, left in enumerate(at) if one.nodes >> n & 1 and all(left.get(k, 0) >= v for k, v in takes)]
        assert open_to, f"{one.key} has no place"
        if chance.random() < 0.4:
            where = chance.choice(open_to)
            for what, amount in takes:
                at[where][what] -= amount
            claims.remove(one)
    now = [{what: left.get(what, 0) for what in "xy"} for left in at]
    room = [{what: amount for what, amount in left.items() if what == "cpu"} for left in at]
    again = release(claims, Stock(now=now, later=now, room=room, ever=there.ever, whole=there.whole)).nodes
    out = [one for one in claims if one.role is RELEASED or one.key in again]
    assert not can_be_stuck(landing(out, {one.key: again.get(one.key, one.nodes) for one in out}), at)


def test_who_waits_has_its_home_kept_free_so_that_singles_do_not_go_before_it_for_ever():
    """Three released ones may leave too little of either node; the large one waits for them, not for who comes after."""
    before = [claim(f"before-{number}", number // 2, "01", x=1, role=RELEASED) for number in range(3)]
    large, single = claim("large", 1, "01", x=3), claim("single", 2, "012", x=1)
    assert release([*before, large, single], stock([{"x": 3}, {"x": 4}, {"x": 1}])).nodes == {"single": 0b101}


@pytest.mark.parametrize(
    ("released", "slices", "expected"),
    [
        pytest.param(1, [{"x": 0}, {"x": 1}], {"wide": 0b11, "other": 0b10}, id="nothing is left for it: it does not count"),
        pytest.param(2, [{"x": 1}, {"x": 1}], {"other": 0b10}, id="one of two may yet be served: nobody comes between"),
    ],
)  # fmt: skip
def test_pods_released_before_that_are_in_danger_hold_up_only_who_could_take_what_they_may_get(
    released, slices, expected
):
    before = [claim(f"before-{number}", 0, "0", x=1, role=RELEASED) for number in range(released)]
    wide, other = claim("wide", 1, "01", x=1), claim("other", 1, "1", y=1)
    there = stock([{**node, "y": 1} for node in slices])
    there.ever = [{"x": 1, "y": 1}] * 2
    assert release([*before, wide, other], there).nodes == expected


def test_slices_that_are_on_their_way_are_left_to_those_for_whom_they_are_made():
    coming = claim("coming", 1, "1", x=1, role=LATER)
    there = Stock(
        now=[{"x": 1}, {}], later=[{"x": 1}, {"x": 1}], room=[{}, {}], ever=[{"x": 1}, {"x": 1}], whole=[{}, {}]
    )
    assert release([coming, claim("now", 0, "01", x=1)], there).nodes == {"now": 0b01}


# Who is coming ---------------------------------------------------------------------------------------------------------

COMES = [{"x": 2}, {"x": 1}], [{"x": 3}, {"x": 1}]
"""What two nodes have now and when node 0 has been cut."""


@pytest.mark.parametrize(
    ("claims", "role", "let_in"),
    [
        pytest.param(
            [claim("promised", 1, "01", role=RELEASED, x=1), claim("neighbour", 0, "0", x=1)],
            COMING,
            {},
            id="a-neighbour-waits-if-a-promised-pod-could-take-the-place-of-one-of-them",
        ),
        pytest.param(
            [claim("promised", 1, "01", role=RELEASED, x=1), claim("neighbour", 0, "0", x=1)],
            LATER,
            {"neighbour": 0b01},
            id="not-for-who-waits-for-others-to-end",
        ),
        pytest.param(
            [claim("neighbour", 0, "0", x=1)], COMING, {"neighbour": 0b01}, id="all-neighbours-have-their-places"
        ),
        pytest.param(
            [claim("stray", 1, "01", x=1), claim("neighbour", 0, "0", x=1)],
            COMING,
            {"stray": 0b10, "neighbour": 0b01},
            id="who-can-is-kept-off",
        ),
    ],
)
def test_nobody_takes_the_place_of_a_pod_for_which_a_board_is_being_cut(claims, role, let_in):
    now, later = COMES
    nodes = replace(stock(later), now=now)
    assert release([*claims, claim("coming", 0, "0", role=role, x=2)], nodes).nodes == let_in


def test_who_has_come_long_before_a_pod_does_not_wait_until_a_board_is_cut_for_it():
    """Only node 0 makes the stray safe from the promised pod; there is its place, or that of the pod that comes."""
    now, later = [{"x": 1}, {"x": 1}, {"x": 1}], [{"x": 2}, {"x": 1}, {"x": 1}]
    promised, stray = claim("promised", 2, "12", role=RELEASED, x=1), claim("stray", 1, "01", x=1)
    for created, let_in in ((30, {}), (31, {"stray": 0b11})):
        coming = replace(claim("coming", 0, "0", role=COMING, x=2), created=created)
        assert release([promised, stray, coming], replace(stock(later), now=now)).nodes == let_in


def test_room_is_counted_with_those_who_are_let_in():
    """Node 0 has CPU for one of both: who may go elsewhere is kept off it, and is not let wait until its board is cut."""
    slices, room = [{"x": 1}, {"x": 1}], [{"cpu": 4}, {"cpu": 5}]
    bare = claim("bare", 1, "01", room=[("cpu", 3)])
    coming = claim("coming", 0, "0", role=COMING, room=[("cpu", 2)], x=1)
    assert release([bare, coming], stock(slices, room)) == ({"bare": 0b10}, {})
