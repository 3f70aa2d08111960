"""What is made again on a board, and who is told of what cannot be (docs/adr/0023)."""

import pytest

from policies import names
from policies.annotations import PlacedSlice
from policies.view import view_pod
from reconciler.agent.driver import Slice
from reconciler.agent.handed import Handed
from reconciler.agent.restore import missing
from reconciler.agent.tenants import Tenants
from tests.agent.test_steps import ONES, THREE_HIGH, THREE_LOW, TWO_LOW, board
from tests.builders import H100, T4, make_pod

TEN, FIVE, FIVE_TOO = Slice("10gb"), Slice("5gb"), Slice("5gb", ordinal=1)


def told(*slices, withdrawn=False):
    return [PlacedSlice(profile=one.profile, start=one.start, used=False, withdrawn=withdrawn) for one in slices]


@pytest.mark.parametrize(
    ("state", "held", "reported", "expected"),
    [
        pytest.param(board(), [], [], (), id="nothing-was-there"),
        pytest.param(board(THREE_LOW), [THREE_LOW], told(THREE_LOW), (), id="all-is-there"),
        pytest.param(board(), [THREE_HIGH], told(THREE_LOW, THREE_HIGH), (THREE_HIGH, THREE_LOW), id="held-ones-first"),
        pytest.param(board(), [THREE_LOW], [], (THREE_LOW,), id="held-though-never-told"),
        pytest.param(board(THREE_LOW), [], told(THREE_LOW, *ONES[4:6]), tuple(ONES[4:6]), id="some-are-there"),
        pytest.param(board(), [], told(THREE_LOW, withdrawn=True), (), id="withdrawn"),
        pytest.param(board(TWO_LOW), [THREE_LOW], told(THREE_LOW, THREE_HIGH), (THREE_HIGH,), id="room-is-taken"),
        pytest.param(board(mig=False, product=H100), [THREE_LOW], told(THREE_LOW), (), id="mig-mode-is-off"),
        pytest.param(board(mode=names.MPS, product=T4), [], told(THREE_LOW), (), id="of-another-mode"),
        pytest.param(
            board(FIVE, mode=names.MPS, product=T4), [], told(FIVE, FIVE, TEN), (TEN,), id="no-room-for-all-shares"
        ),
        pytest.param(
            board(mode=names.MPS, product=T4), [FIVE_TOO], told(FIVE, FIVE), (FIVE_TOO, FIVE), id="shares-by-ordinal"
        ),
    ],
)
def test_what_went_without_being_withdrawn_is_made_again(state, held, reported, expected):
    assert missing(state.inventory, state.mode, state.slices, held, reported) == expected


def test_a_pod_whose_board_is_not_there_any_more_is_named_once(tmp_path):
    pod, said = view_pod(make_pod("ml/x")), []
    pods = [pod]
    tenants = Tenants(None, Handed(tmp_path / "handed.json"), lambda: pods, lambda *told: said.append(told))
    held = {"GPU-gone/3g.20gb/4": "ml/x", "GPU-0/3g.20gb/0": "ml/unknown-to-the-api-server"}
    for _ in range(2):
        assert tenants.look(held, [board(THREE_LOW)]) == {}
    assert said == [
        (pod, "DeviceGone", "its device GPU-gone/3g.20gb/4 is not there: the node does not have this board any more")
    ]
    tenants.look({}, [board(THREE_LOW)])
    tenants.look(held, [board(THREE_LOW)])
    assert len(said) == 2, "and again if it was there meanwhile"
