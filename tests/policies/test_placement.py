"""Layouts of one board, against the published tables and an oracle that tries every start."""

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.annotations import PlacedSlice, Placement, listed
from policies.catalogue import by_product
from policies.geometry import geometry_of
from policies.placement import arrange, capacity_for, fits, lay_out, profile_of, resource_of, to_hold
from tests.builders import A30, A100, A100_80, H100, T4
from tests.policies.facts import media_suffice

MIG, MPS = names.MIG, names.MPS
RTX = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


def at(*slices):
    """Return placements from texts such as `3g.20gb@4` or, for MPS, `10gb`."""
    pairs = (text.partition("@") for text in slices)
    return tuple(Placement(profile, int(start) if start else None) for profile, _, start in pairs)


def lies_legally(model, layout):
    """Return whether a MIG layout is legal, from the rules of the user guide and nothing of ours."""
    profiles = [model.profile(item.profile) for item in layout]
    if any(item.start not in profile.starts for item, profile in zip(layout, profiles, strict=True)):
        return False
    units = [
        unit
        for item, profile in zip(layout, profiles, strict=True)
        for unit in range(item.start, item.start + profile.memory_units)
    ]
    counts = Counter(profile.name for profile in profiles)
    return (
        len(units) == len(set(units))
        and max(units, default=0) < model.memory_units
        and sum(profile.compute for profile in profiles) <= model.compute
        and all(not profile.max or counts[profile.name] <= profile.max for profile in profiles)
        and media_suffice([profile.name for profile in profiles])
    )


def fits_by_trying(model, fixed, wanted):
    options = [[Placement(name, start) for start in model.profile(name).starts] for name in wanted]
    return any(lies_legally(model, (*fixed, *choice)) for choice in product(*options))


def maximal_sets(model, profiles):
    """Return the sets (as sorted profiles) that fit an empty board and to which nothing can be added."""
    sets, frontier = {()}, [()]
    while frontier:
        grown = {tuple(sorted((*one, name))) for one in frontier for name in profiles} - sets
        frontier = [one for one in grown if fits(model, MIG, (), one)]
        sets.update(frontier)
    return {one for one in sets if not any(tuple(sorted((*one, name))) in sets for name in profiles)}


PLAIN_40 = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


def test_the_twelve_maximal_sets_of_a_seven_slice_board_are_those_of_the_user_guide():
    one, two, three, four, seven = PLAIN_40
    assert maximal_sets(by_product(A100), PLAIN_40) == {
        (seven,),
        (three, four),
        (one, two, four),
        (one, one, one, four),
        (three, three),
        (two, two, three),
        (one, one, two, three),
        (one, one, one, one, three),
        (one, two, two, two),
        (one, one, one, two, two),
        (one, one, one, one, one, two),
        (one,) * 7,
    }


@pytest.mark.parametrize(
    ("product_name", "mode", "fixed", "wanted", "placed"),
    [
        pytest.param(A100, MIG, (), ("1g.5gb",), ("1g.5gb@6",), id="lone-1g-goes-to-6"),
        pytest.param(A100_80, MIG, (), ("3g.40gb",), ("3g.40gb@4",), id="lone-3g-goes-to-4"),
        # With the 2g at 4 the 4g keeps its only start.
        pytest.param(A100, MIG, (), ("2g.10gb",), ("2g.10gb@4",), id="lone-2g-leaves-the-4g"),
        pytest.param(A30, MIG, (), ("1g.6gb",), ("1g.6gb@0",), id="lone-1g-on-a30"),
        pytest.param(
            A100, MIG, (), ("3g.20gb", *["1g.5gb"] * 4), ("1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "1g.5gb@3", "3g.20gb@4"),
            id="P18-3g-and-four-1g",
        ),
        pytest.param(
            H100, MIG, (), ("4g.40gb", "2g.20gb", "1g.10gb"), ("4g.40gb@0", "2g.20gb@4", "1g.10gb@6"),
            id="P18-4g-2g-1g",
        ),
        pytest.param(A100, MIG, ("1g.5gb@3", "1g.5gb@6"), ("3g.20gb",), None, id="used-1g-block-3g"),
        pytest.param(A100, MIG, ("3g.20gb@0",), ["1g.5gb"] * 4, None, id="used-3g-does-not-move"),
        pytest.param(A100, MIG, ("1g.5gb+me@6",), ("1g.5gb+me",), None, id="one-me-per-board"),
        pytest.param(A100, MIG, (), ("1g.5gb+me", *["2g.10gb"] * 3),
                     ("2g.10gb@0", "2g.10gb@2", "2g.10gb@4", "1g.5gb+me@6"), id="me-beside-three-2g"),
        pytest.param(A100, MIG, (), ["1g.10gb"] * 5, None, id="four-double-1g"),
        pytest.param(A30, MIG, ("2g.12gb+me@0",), ("1g.6gb+me",), None, id="one-me-per-board-of-any-size"),
        pytest.param(RTX, MIG, ("1g.24gb+me.all@0",), ("1g.24gb",), None, id="all-media-leave-none-to-others"),
        pytest.param(RTX, MIG, ("2g.48gb+gfx@0",), ("1g.24gb+me.all",), None, id="all-media-are-taken-in-part"),
        pytest.param(RTX, MIG, ("1g.24gb+me@0",), ("2g.48gb+me.all",), None, id="all-media-and-some"),
        pytest.param(RTX, MIG, ("2g.48gb+me.all@0",), ("1g.24gb-me",) * 2, ("1g.24gb-me@6", "1g.24gb-me@9"),
                     id="all-media-beside-those-without"),
        pytest.param(RTX, MIG, ("1g.24gb+me@9",), ("2g.48gb+gfx", "1g.24gb"), ("2g.48gb+gfx@0", "1g.24gb@6"),
                     id="extra-media-beside-those-with-some"),
        pytest.param(RTX, MIG, ("1g.24gb@0",), ("1g.24gb", "2g.48gb"), ("1g.24gb@3", "2g.48gb@6"), id="P12-twelve-units"),
        pytest.param(A100, MIG, (), ("1g.6gb",), None, id="profile-of-another-model"),
        pytest.param(A100, MIG, ("7g.79gb@0",), ("1g.5gb",), None, id="unknown-slice-in-the-way"),
        pytest.param(A100, MIG, (), ("20gb",), None, id="mps-slice-on-a-mig-board"),
        pytest.param(A100, MPS, ("20gb",), ("20gb",), ("20gb",), id="P01-two-halves"),
        pytest.param(A100, MPS, ("16gb", "16gb"), ("16gb",), None, id="48-of-40-gb"),
        pytest.param(T4, MPS, ("8gb", "4gb", "4gb"), ("1gb",), None, id="t4-17-of-16-gb"),
        pytest.param(A100_80, MPS, ["1gb"] * 47, ("1gb",), ("1gb",), id="48-clients"),
        pytest.param(A100_80, MPS, ["1gb"] * 48, ("1gb",), None, id="49-clients"),
        pytest.param("Tesla-P100-PCIE-16GB", MPS, ["1gb"] * 16, ("1gb",), None, id="17-clients-before-volta"),
        pytest.param(A100, MPS, (), ("1g.5gb",), None, id="mig-slice-on-an-mps-board"),
        pytest.param(A100, MPS, ("1g.5gb@0",), ("1gb",), None, id="unknown-slice-on-an-mps-board"),
        pytest.param(A100, names.TIMESLICING, (), ("1g.5gb",), None, id="time-sliced-boards-are-not-cut"),
    ],
)  # fmt: skip
def test_wanted_slices_are_put_where_most_remains_or_nowhere(product_name, mode, fixed, wanted, placed):
    found = arrange(by_product(product_name), mode, at(*fixed), tuple(wanted))
    assert (found and found.placed) == (placed and at(*placed))
    assert fits(by_product(product_name), mode, at(*fixed), tuple(wanted)) == (placed is not None)


@pytest.mark.parametrize(
    ("mode", "fixed", "free", "wanted", "placed", "kept", "destroyed", "created"),
    [
        pytest.param(
            MIG, ("4g.20gb@0", "1g.5gb@6"), ("2g.10gb@4",), ("1g.5gb",), ("1g.5gb@4",), (), 1, 1, id="P10-idle-2g-beside-busy-4g"
        ),
        pytest.param(
            MIG, (), ("1g.5gb@0", "3g.20gb@4"), ("1g.5gb",), ("1g.5gb@0",), ("3g.20gb@4",), 0, 0, id="a-free-slice-serves"
        ),
        pytest.param(
            MIG, (), ("1g.5gb@2",), ("4g.20gb", "2g.10gb", "1g.5gb"), ("4g.20gb@0", "2g.10gb@4", "1g.5gb@6"), (), 1, 3,
            id="P18-same-profile-other-place",
        ),
        # Two 1g fit beside the free 2g only if the 3g goes, and the 2g stays: one destroyed, not two.
        pytest.param(
            MIG, (), ("1g.5gb@1", "2g.10gb@2", "3g.20gb@4"), ("2g.10gb", "2g.10gb", "1g.5gb"),
            ("1g.5gb@1", "2g.10gb@2", "2g.10gb@4"), (), 1, 1, id="only-what-must-go",
        ),
        # One of the free slices has to go, whichever: without the 1g the start of the 2g is left.
        pytest.param(
            MIG, ("4g.20gb@0",), ("2g.10gb@4", "1g.5gb@6"), ("1g.5gb+me",), ("1g.5gb+me@6",), ("2g.10gb@4",), 1, 1,
            id="of-equals-that-which-leaves-starts",
        ),
        # At 0 and at 2 the 2g breaks one and leaves as many starts; beside the 1g that stays then there are three for a 1g, not two.
        pytest.param(
            MIG, ("1g.5gb@4",), ("1g.5gb@1", "1g.10gb@2"), ("2g.10gb",), ("2g.10gb@2",), ("1g.5gb@1",), 1, 1,
            id="of-these-that-beside-which-what-stays-leaves-starts",
        ),
        pytest.param(
            MIG, (), ("1g.5gb+me@6",), ("1g.5gb+me",), ("1g.5gb+me@6",), (), 0, 0, id="a-free-me-serves",
        ),
        pytest.param(
            MPS, ("10gb", "10gb"), ("10gb", "10gb"), ("20gb",), ("20gb",), (), 2, 1, id="mps-grouping"
        ),
        pytest.param(
            MPS, ("10gb",), ("5gb", "10gb", "12gb"), ("10gb", "8gb"), ("10gb", "8gb"), ("5gb",), 1, 1, id="mps-reuse",
        ),
    ],
)  # fmt: skip
def test_the_fewest_free_slices_are_destroyed(mode, fixed, free, wanted, placed, kept, destroyed, created):
    found = arrange(by_product(A100), mode, at(*fixed), wanted, at(*free))
    assert (found.placed, found.kept, found.destroyed, found.created) == (at(*placed), at(*kept), destroyed, created)


@pytest.mark.parametrize(
    ("volta", "fixed", "free", "kept"),
    [
        pytest.param(True, 0, 48, 47, id="48-clients"),
        pytest.param(True, 40, 8, 7, id="of-whom-40-have-their-shares"),
        pytest.param(True, 30, 8, 8, id="and-fewer-than-48"),
        pytest.param(False, 0, 16, 15, id="16-clients-before-volta"),
    ],
)
def test_free_shares_are_kept_while_a_board_serves_as_many_clients_however_many_gigabytes_it_has(
    volta, fixed, free, kept
):
    """Beside 48 shares of 1 GB an 80 GB board has 32 GB left, and serves nobody with them."""
    model = replace(by_product(A100_80), volta=volta)
    found = arrange(model, MPS, at(*["1gb"] * fixed), ("10gb",), at(*["1gb"] * free))
    assert (len(found.kept), found.destroyed, found.created) == (kept, free - kept, 1)


@pytest.mark.parametrize(
    ("product_name", "mode", "fixed", "profile", "count"),
    [
        pytest.param(A100, MIG, (), "1g.5gb", 7, id="empty"),
        pytest.param(A100, MIG, ("3g.20gb@0",), "1g.5gb", 3, id="3g-at-0"),
        pytest.param(A100, MIG, ("3g.20gb@4",), "1g.5gb", 4, id="3g-at-4"),
        pytest.param(A100, MIG, ("1g.5gb@3", "1g.5gb@6"), "3g.20gb", 0, id="P18-in-number-not-in-place"),
        pytest.param(A30, MIG, ("2g.12gb@0",), "2g.12gb", 1, id="a30"),
        pytest.param(A100, MIG, (), "1g.5gb+me", 1, id="me"),
        pytest.param(A100, MPS, ("20gb",), "10gb", 2, id="P03-whole-gb"),
        # 46068 MiB are 48 nominal GB: 24 slices of 2 GB would be the board and no more.
        pytest.param("NVIDIA-L40S", MPS, (), "2gb", 24, id="P03-l40s"),
        pytest.param(A100_80, MPS, (), "1gb", 48, id="clients"),
        pytest.param(A100, names.TIMESLICING, (), "10gb", 0, id="timeslicing"),
    ],
)
def test_capacity_counts_what_can_be_had_beside_used_slices(product_name, mode, fixed, profile, count):
    assert capacity_for(by_product(product_name), mode, at(*fixed), profile) == count


def test_counts_of_nos_are_laid_out_by_the_same_rule():
    """Scenario nos-counting-annotations: only one layout holds 3g + 4 x 1g."""
    counted = (("3g.20gb", True), ("1g.5gb", True), ("1g.5gb", True), ("1g.5gb", False), ("1g.5gb", False))
    placed = lay_out(by_product(A100), MIG, counted)
    assert [item.placement for item in placed] == list(at("1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "1g.5gb@3", "3g.20gb@4"))
    assert Counter((item.profile, item.used) for item in placed) == Counter(counted)
    assert lay_out(by_product(A100), MPS, (("10gb", True), ("10gb", False))) == (
        PlacedSlice(profile="10gb", used=True),
        PlacedSlice(profile="10gb", used=False),
    )


def test_what_is_used_is_some_of_what_was_laid_out():
    """Alone the 1g would lie at 6; beside a 3g, which lies at 4 and leaves a 2g there, it lies at 0."""
    assert lay_out(by_product(A100), MIG, (("3g.20gb", False), ("1g.5gb", True))) == (
        PlacedSlice(profile="1g.5gb", start=0, used=True),
        PlacedSlice(profile="3g.20gb", start=4, used=False),
    )


def test_a_pod_holds_none_of_the_free_slices_where_these_cannot_lie_beside_the_held_ones():
    """What is reported cannot be: another place, where nothing is, is no answer."""
    assert to_hold(by_product(A100), MIG, at("3g.20gb@0"), at("1g.5gb@4", "1g.5gb@6")) == Placement("1g.5gb", 6)
    assert to_hold(by_product(A100), MIG, at("3g.20gb@0"), at("1g.5gb@0")) is None
    assert to_hold(by_product(A100), MIG, at("3g.20gb@0"), ()) is None


def test_counts_that_no_layout_holds_are_not_guessed_at():
    assert lay_out(by_product(A100), MIG, (("3g.20gb", True),) * 3) is None


def test_resources_and_profiles_are_two_spellings_of_one_slice():
    for resource, profile in (
        ("nvidia.com/mig-1g.5gb.me", "1g.5gb+me"),
        ("nvidia.com/mig-1g.24gb-me", "1g.24gb-me"),
        ("nvidia.com/gpu-10gb", "10gb"),
    ):
        assert (profile_of(resource), resource_of(profile)) == (profile, resource)
    with pytest.raises(ValueError, match=r"'nvidia\.com/gpu' is neither"):
        profile_of("nvidia.com/gpu")


def starts_left(model, placements):
    geometry = geometry_of(model)
    return geometry.starts_left(geometry.occupied(placements))


def test_starts_are_counted_for_plain_profiles_largest_first():
    # Beside a 1g at 6: no 7g, the 4g, the 3g at 0, three 2g, three double 1g, six 1g.
    assert starts_left(by_product(A100), at("1g.5gb@6")) == (0, 1, 1, 3, 3, 6)
    # By hand: units and compute slices are all taken.
    assert starts_left(by_product(A100), at("4g.20gb@0", "3g.20gb@4")) == (0,) * 6


def test_compute_slices_bound_what_fits_and_what_stays():
    """An inventory may describe a board whose compute slices run out before its memory."""
    model = replace(by_product(A100), compute=4)
    assert not fits(model, MIG, at("3g.20gb@4"), ("2g.10gb",))
    assert starts_left(model, at("3g.20gb@4")) == (0, 0, 0, 0, 2, 4)
    found = arrange(model, MIG, (), ("2g.10gb",), at("1g.5gb@0", "3g.20gb@4"))
    assert (found.placed, found.kept, found.destroyed) == (at("2g.10gb@2"), at("1g.5gb@0"), 1)


def test_an_inventory_that_says_that_a_board_gives_two_sets_of_media_is_believed():
    """P12: of a model that nobody knows, the driver's word counts, not what holds of today's boards."""
    profiles = tuple(replace(one, max=2) if one.name == "1g.24gb+me" else one for one in by_product(RTX).profiles)
    model = replace(by_product(RTX), name="NVIDIA-Z900", profiles=profiles)
    assert fits(model, MIG, (), ("1g.24gb+me", "1g.24gb+me", "1g.24gb"))
    assert not fits(model, MIG, (), ("1g.24gb+me",) * 3)
    assert not fits(model, MIG, (), ("1g.24gb+me", "1g.24gb+me.all"))


def test_free_slices_go_if_they_hold_media_engines_that_are_needed():
    found = arrange(by_product(RTX), MIG, (), ("1g.24gb+me.all",), at("1g.24gb@0", "1g.24gb-me@3", "1g.24gb-me@6"))
    # Nothing plain goes beside it, so the lowest start wins.
    assert (found.placed, found.kept) == (at("1g.24gb+me.all@0"), at("1g.24gb-me@3", "1g.24gb-me@6"))
    assert found.destroyed == 1


@st.composite
def boards(draw):
    """A model, fixed and free slices that lie legally together, and slices wanted."""
    model = by_product(draw(st.sampled_from((A30, A100, RTX))))
    everything = [Placement(profile.name, start) for profile in model.profiles for start in profile.starts]
    existing = []
    for item in draw(st.lists(st.sampled_from(everything), max_size=4, unique=True)):
        if lies_legally(model, (*existing, item)):
            existing.append(item)
    used = draw(st.lists(st.booleans(), min_size=len(existing), max_size=len(existing)))
    fixed = tuple(item for item, is_used in zip(existing, used, strict=True) if is_used)
    free = tuple(item for item, is_used in zip(existing, used, strict=True) if not is_used)
    wanted = draw(st.lists(st.sampled_from([profile.name for profile in model.profiles]), min_size=1, max_size=3))
    return model, fixed, free, tuple(wanted)


@given(boards())
@settings(max_examples=150, deadline=None)
def test_layouts_are_legal_and_equal_to_trying_every_start(board):
    """Laws: no overlap, compute and `max` respected, fixed slices stay, what fits is found, the fewest are destroyed."""
    model, fixed, free, wanted = board
    found = arrange(model, MIG, fixed, wanted, free)
    assert (found is not None) == fits_by_trying(model, fixed, wanted) == fits(model, MIG, fixed, wanted)
    if found is None:
        return
    layout = (*fixed, *found.placed, *found.kept)
    assert lies_legally(model, layout)
    assert sorted(item.profile for item in found.placed) == sorted(wanted)
    assert set(found.kept) <= set(free)
    assert found.destroyed == len(set(free) - set(layout))
    assert found.created == len(set(found.placed) - set(free))
    options = [[Placement(name, start) for start in model.profile(name).starts] for name in wanted]
    fewest = min(
        len(free) - size
        for choice in product(*options)
        if lies_legally(model, (*fixed, *choice))
        for size in range(len(free) + 1)
        for kept in combinations(free, size)
        if lies_legally(model, tuple({*fixed, *choice, *kept}))
    )
    assert found.destroyed == fewest


@given(boards(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_order_of_slices_does_not_matter(board, chance):
    model, fixed, free, wanted = board
    shuffled = [list(part) for part in (fixed, wanted, free)]
    for part in shuffled:
        chance.shuffle(part)
    again = arrange(model, MIG, *map(tuple, shuffled))
    assert again == arrange(model, MIG, listed(fixed), wanted, free)
