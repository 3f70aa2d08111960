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
