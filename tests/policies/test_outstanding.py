"""What slices that no node shows yet leave of the room. By hand: A100 40 GB has 8 memory units of 5 GB and 7 of compute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.catalogue import by_product
from policies.outstanding import displaced, outstanding
from policies.placement import capacity_for, fits
from policies.site import BoardKind
from tests.builders import A30, A100, T4

RTX, NVL = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "NVIDIA-H100-NVL"


def kind_of(product, mode="mig"):
    return BoardKind(mode, by_product(product))


def fewer(kind, given_away, profile):
    return displaced(outstanding({(kind, name): count for name, count in given_away.items()}), kind, profile)


@pytest.mark.parametrize(
    ("kind", "given_away", "profile", "expected"),
    [
        pytest.param(kind_of(A100), {"1g.5gb": 3}, "1g.5gb", 3, id="the same"),
        pytest.param(kind_of(A100), {"1g.10gb": 3}, "1g.10gb", 3, id="the same, with double memory"),
        pytest.param(kind_of(A100), {"3g.20gb": 1}, "1g.5gb", 3, id="a half leaves four of seven: 4 GB units and 4 of compute"),
        pytest.param(kind_of(A100), {"3g.20gb": 1}, "4g.20gb", 0, id="3g and 4g share a board"),
        pytest.param(kind_of(A100), {"4g.20gb": 1}, "3g.20gb", 1, id="and 4g leaves one 3g of two"),
        pytest.param(kind_of(A100), {"2g.10gb": 1, "1g.10gb": 2}, "2g.10gb", 2, id="several sizes"),
        pytest.param(kind_of(A100), {"7g.40gb": 2}, "1g.5gb", 14, id="whole boards"),
        pytest.param(kind_of(A30), {"2g.12gb": 1}, "1g.6gb", 2, id="half an A30"),
        pytest.param(kind_of(T4, "mps"), {"10gb": 2}, "4gb", 5, id="MPS has GB only"),
        pytest.param(kind_of(A30), {}, "1g.6gb", 0, id="nothing"),
    ],
)  # fmt: skip
def test_what_is_given_away_takes_room(kind, given_away, profile, expected):
    assert fewer(kind, given_away, profile) == expected


def test_boards_of_another_kind_are_left_alone():
    given_away = outstanding({(kind_of(A30), "1g.6gb"): 4, (kind_of(A100, "mps"), "5gb"): 4})
    assert displaced(given_away, kind_of(A100), "1g.5gb") == 0


@given(st.sampled_from([A30, A100, NVL, RTX]), st.data())
def test_it_never_takes_more_room_than_there_is_beside_it(product, data):
    """Too much would send pods to other boards while these stay empty."""
    kind = kind_of(product)
    profiles = st.sampled_from([profile.name for profile in kind.model.profiles if profile.plain])
    given_away, profile = sorted(data.draw(st.lists(profiles, max_size=4))), data.draw(profiles)
    room = capacity_for(kind.model, "mig", (), profile)
    left = sum(fits(kind.model, "mig", (), (*given_away, *[profile] * count)) for count in range(1, room + 1))
    if fits(kind.model, "mig", (), tuple(given_away)):
        counts = {name: given_away.count(name) for name in given_away}
        assert room - fewer(kind, counts, profile) >= left
