"""Every model of the tables, row by row against what is published, and every layout of it from an empty board (P12, P22)."""

from collections import Counter

import pytest

from policies import names
from policies.catalogue import by_product, models
from policies.placement import arrange, fits
from tests.policies.facts import BOARDS, COMPUTE, TABLES, UNITS, kind_of, layouts, lies_legally, maximal_sets, name_of

PLAIN_AND_DOUBLE = ("1g", "1gD", "2g", "3g", "4g", "7g")


def test_there_is_a_table_for_every_model_that_is_published_and_for_no_other():
    """P12."""
    assert {model.name for model in models() if model.profiles} == set(BOARDS)


@pytest.mark.parametrize("product", BOARDS)
def test_a_model_has_the_published_profiles(product):
    """P12, P22: names, compute slices, memory units, starts, how many of each, ids."""
    table = BOARDS[product][0]
    model = by_product(product)
    found = {
        one.name: (one.compute, one.memory_units, one.starts, one.max, one.id) for one in by_product(product).profiles
    }
    assert found == {name_of(product, kind): row for kind, row in TABLES[table].items()}
    assert (model.compute, model.memory_units) == (COMPUTE[table], UNITS[table])


@pytest.mark.parametrize("product", [product for product, (_, _, memory) in BOARDS.items() if memory])
def test_a_profile_has_the_memory_that_its_driver_prints(product):
    """In GiB to two decimals, an eighth half to even: 9.625 is 9.62, 46.375 is 46.38."""
    printed = BOARDS[product][2]
    for profile in by_product(product).profiles:
        if profile.memory_units in printed:
            assert f"{profile.memory_mib / 1024:.2f}" == printed[profile.memory_units], profile.name


@pytest.mark.parametrize(
    ("table", "kinds", "sets", "maximal"),
    [
        # Published counts, and for the last two by the rule that one set of JPEG and OFA engines serves one +me.
        pytest.param("SEVEN", ("1g", "2g", "3g", "4g", "7g"), 37, 12, id="seven-plain"),
        pytest.param("SEVEN", PLAIN_AND_DOUBLE, 77, 28, id="seven-double"),
        pytest.param("SEVEN", (*PLAIN_AND_DOUBLE, "1g+me"), 127, 44, id="seven-all"),
        pytest.param("A30", ("1g", "2g", "4g"), 9, 4, id="a30-plain"),
        # 21 and 9 by units alone; 2g+me with 1g+me, and with 1g beside them, are out.
        pytest.param("A30", ("1g", "1g+me", "2g", "2g+me", "4g"), 19, 8, id="a30-all"),
        pytest.param("RTX", ("1g", "2g", "4g"), 9, 4, id="rtx-plain"),
    ],
)
def test_the_published_tables_have_as_many_sets_as_published(table, kinds, sets, maximal):
    """This guards the oracle of the next test."""
    found = {tuple(sorted(kind for kind, _ in layout)) for layout in layouts(table)} - {()}
    found = {one for one in found if set(one) <= set(kinds)}
    assert len(found) == sets
    assert sum(not any(tuple(sorted((*one, kind))) in found for kind in kinds) for one in found) == maximal


@pytest.mark.parametrize("product", BOARDS)
def test_every_maximal_layout_is_reached_from_an_empty_board_and_nothing_goes_beside_it(product):
    """P18."""
    table, model = BOARDS[product][0], by_product(product)
    for kinds in maximal_sets(table):
        wanted = tuple(name_of(product, kind) for kind in kinds)
        found = arrange(model, names.MIG, (), wanted)
        assert found is not None, wanted
        placed = [(kind_of(product, item.profile), item.start) for item in found.placed]
        assert lies_legally(table, placed), placed
        assert Counter(kind for kind, _ in placed) == Counter(kinds)
        for kind in TABLES[table]:
            assert not fits(model, names.MIG, (), (*wanted, name_of(product, kind))), (wanted, kind)
