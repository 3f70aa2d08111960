"""Sets of nodes and counts on nodes, as bits."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from policies.nodesets import Counts, nodes_in, set_of

SETS = st.sets(st.integers(0, 70))


@given(SETS)
def test_a_set_of_nodes_holds_those_of_which_it_is_made(places):
    assert list(nodes_in(set_of(sorted(places)))) == sorted(places)


@given(added=st.lists(SETS, max_size=20), asked=SETS)
def test_what_was_added_on_some_nodes_is_counted_there(added, asked):
    counts, by_hand = Counts(), Counter(place for places in added for place in places)
    for places in added:
        counts.add(set_of(sorted(places)))
    assert counts.on(set_of(sorted(asked))) == sum(by_hand[place] for place in asked)


@given(
    added=st.lists(SETS, max_size=20),
    more=st.lists(SETS, max_size=20),
    times=st.integers(0, 9),
    number=st.integers(0, 30),
)
def test_nodes_that_have_more_than_a_number_are_those_where_as_many_were_counted(added, more, times, number):
    counts, other, by_hand = Counts(), Counts(), Counter()
    for places in added:
        counts.add(set_of(sorted(places)))
        by_hand.update(places)
    for places in more:
        other.add(set_of(sorted(places)))
        by_hand.update(dict.fromkeys(places, times))
    counts.add_all(other, times)
    assert list(nodes_in(counts.above(number) & (1 << 71) - 1)) == sorted(
        place for place, count in by_hand.items() if count > number
    )
