"""The next step for a board: every state in which an order can find it (docs/adr/0003)."""

import msgspec
import pytest

from policies import names
from policies.annotations import BoardInventory, Placement
from policies.catalogue import by_product
from reconciler.agent.boards import BoardState, mode_fault
from reconciler.agent.driver import Slice, device_id
from reconciler.agent.node import Order
from reconciler.agent.steps import KEEP, EnableMig, Keep, Recut, Refuse, Withdraw, next_steps
from tests.agent.world import layout
from tests.builders import A100, H100, T4

THREE_LOW, THREE_HIGH = Slice("3g.20gb", 0), Slice("3g.20gb", 4)
TWO_LOW, TWO_HIGH = Slice("2g.10gb", 0), Slice("2g.10gb", 4)
ONES = [Slice("1g.5gb", start) for start in range(7)]


def board(
    *slices,
    product=A100,
    mode=names.MIG,
    index=0,
    used=(),
    listed=None,
    withdrawn=(),
    orphans=(),
    mps=None,
    **inventory,
):
    """A board on which, unless said otherwise, nothing is used, the kubelet offers everything, and MPS is served where it is."""
    of_mps = mode == names.MPS or any(item.start is None for item in slices)
    model = by_product(product)
    entry = {"mig": mode == names.MIG, "profiles": model.profiles, **inventory}
    return BoardState(
        inventory=BoardInventory(
            index=index,
            uuid=f"GPU-{index}",
            model=product,
            memory_mib=model.memory_mib,
            compute_slices=model.compute,
            memory_units=model.memory_units,
            **entry,
        ),
        mode=mode,
        mps=of_mps if mps is None else mps,
        slices=slices,
        orphans=orphans,
        used=frozenset(used),
        listed=frozenset(slices if listed is None else listed),
        withdrawn=tuple(item.placement for item in withdrawn),
    )


def order(target, basis=(), *, cut=False, index=0):
    places = [tuple(one.placement if isinstance(one, Slice) else one for one in items) for items in (target, basis)]
    return Order(plan="1", target={index: places[0]}, basis={index: places[1]}, cut=cut)


def step(wanted, state):
    return next_steps(wanted, {state.inventory.index: state})[0]


@pytest.mark.parametrize(
    ("wanted", "state", "expected"),
    [
        pytest.param(None, board(THREE_LOW), KEEP, id="no-order"),
        pytest.param(None, board(THREE_LOW, orphans=(ONES[4],)), Recut(destroy=(ONES[4],)), id="no-order-orphan"),
        pytest.param(order([THREE_LOW], [THREE_LOW]), board(THREE_LOW), KEEP, id="all-there"),
        pytest.param(order([THREE_LOW]), board(), Recut(create=(THREE_LOW,)), id="empty-room"),
        pytest.param(
            order([THREE_LOW, *ONES[4:]], [THREE_LOW]),
            board(THREE_LOW, used=[THREE_LOW]),
            Recut(create=tuple(ONES[4:])),
            id="P10-room-beside-a-used-one",
        ),
        pytest.param(
            order([THREE_LOW, ONES[4], ONES[5]], [THREE_LOW, TWO_HIGH]),
            board(THREE_LOW, TWO_HIGH, used=[THREE_LOW]),
            Withdraw((TWO_HIGH,)),
            id="P10-withdraw-first",
        ),
        pytest.param(
            order([THREE_LOW, ONES[4]], [THREE_LOW, TWO_HIGH]),
            board(THREE_LOW, TWO_HIGH, listed=[THREE_LOW], withdrawn=[TWO_HIGH]),
            Withdraw((TWO_HIGH,)),
            id="withdrawn-wait-for-the-cut",
        ),
        pytest.param(
            order([THREE_LOW, ONES[4]], [THREE_LOW, TWO_HIGH], cut=True),
            board(THREE_LOW, TWO_HIGH, listed=[THREE_LOW], withdrawn=[TWO_HIGH]),
            Recut(destroy=(TWO_HIGH,), create=(ONES[4],)),
            id="cut-allowed",
        ),
        pytest.param(
            order([THREE_LOW, ONES[4]], [THREE_LOW, TWO_HIGH], cut=True),
            board(THREE_LOW, TWO_HIGH, withdrawn=[TWO_HIGH]),
            Withdraw((TWO_HIGH,)),
            id="cut-allowed-but-the-kubelet-offers-it-again",
        ),
        pytest.param(
            order([THREE_LOW, ONES[4]], [THREE_LOW, TWO_HIGH], cut=True),
            board(THREE_LOW),
            Recut(create=(ONES[4],)),
            id="resumed-after-destroying",
        ),
        pytest.param(
            order([THREE_LOW, ONES[4]], [THREE_LOW, TWO_HIGH], cut=True),
            board(THREE_LOW, ONES[4]),
            KEEP,
            id="resumed-after-creating",
        ),
        pytest.param(
            order([THREE_LOW, ONES[4]], [THREE_LOW], cut=True),
            board(THREE_LOW, orphans=(ONES[4],)),
            Recut(destroy=(ONES[4],), create=(ONES[4],)),
            id="resumed-between-gpu-and-compute-instance",
        ),
        pytest.param(
            order(layout("5gb", "10gb"), layout("5gb", "5gb", "5gb")),
            board(*(Slice("5gb", None, n) for n in range(3)), product=T4, mode="mps", used=[Slice("5gb", None, 2)]),
            Withdraw((Slice("5gb", None, 0), Slice("5gb", None, 1))),
            id="mps-the-unused-ones-go",
        ),
        pytest.param(
            order(layout("5gb", "5gb"), layout("5gb", "5gb", "5gb")),
            board(*(Slice("5gb", None, n) for n in range(3)), product=T4, mode="mps", listed=[Slice("5gb", None, 2)]),
            Withdraw((Slice("5gb", None, 1),)),
            id="mps-rather-one-that-is-withdrawn",
        ),
        pytest.param(
            order(layout("5gb", "5gb", "5gb"), layout("5gb")),
            board(Slice("5gb", None, 1), product=T4, mode="mps"),
            Recut(create=(Slice("5gb", None, 0), Slice("5gb", None, 2))),
            id="P14-mps-free-ordinals",
        ),
        pytest.param(None, board(product=H100, mig=False, switch="live"), EnableMig(), id="mig-off-switched-live"),
        pytest.param(
            None,
            board(Slice("10gb"), product=H100, mig=False, switch="live"),
            KEEP,
            id="mps-slices-are-left-so-mig-waits",
        ),
    ],
)
def test_the_next_step_follows_from_what_is_there(wanted, state, expected):
    assert step(wanted, state) == expected


@pytest.mark.parametrize(
    ("wanted", "state", "why"),
    [
        pytest.param(
            order([TWO_LOW], [THREE_LOW]),
            board(THREE_LOW, used=[THREE_LOW]),
            "3g.20gb at 0 is in use",
            id="destroys-a-used-one",
        ),
        pytest.param(
            order([TWO_LOW], [THREE_LOW], cut=True),
            board(THREE_LOW, used=[THREE_LOW], listed=[], withdrawn=[THREE_LOW]),
            "3g.20gb at 0 is in use",
            id="allocated-between-withdraw-and-cut",
        ),
        pytest.param(
            order([TWO_LOW], [THREE_LOW], cut=True),
            board(THREE_LOW),
            "the cut was allowed before all that it destroys had been reported as withdrawn",
            id="cut-before-withdrawn",
        ),
        pytest.param(
            order([THREE_LOW, *ONES[4:]], [THREE_LOW]),
            board(THREE_LOW, TWO_HIGH),
            "its layout has changed since the plan was made: it has 3g.20gb at 0, 2g.10gb at 4",
            id="one-more-than-in-the-basis",
        ),
        pytest.param(
            order([THREE_LOW, *ONES[4:]], [THREE_LOW]),
            board(),
            "its layout has changed since the plan was made: it has no slices",
            id="one-less-than-in-the-basis",
        ),
        pytest.param(
            order([ONES[1]], [ONES[0], ONES[1]]),
            board(ONES[0], ONES[2]),
            "its layout has changed since the plan was made: it has 1g.5gb at 0, 1g.5gb at 2",
            id="P14-same-counts-other-places",
        ),
        pytest.param(
            order([THREE_LOW, THREE_LOW]), board(), "no such layout: 3g.20gb at 0 overlaps 3g.20gb at 0", id="overlap"
        ),
        pytest.param(
            order([Slice("4g.20gb", 0), TWO_HIGH, Slice("2g.10gb", 6)]),
            board(),
            "no such layout: 2g.10gb may start at 0, 2, 4, not at 6",
            id="P18-no-such-start",
        ),
        pytest.param(
            order([Slice("7g.79gb", 0)]), board(), f"no such layout: {A100} has no profile 7g.79gb", id="no-profile"
        ),
        pytest.param(order(layout("10gb")), board(), "10gb is no layout of mode mig", id="mps-slice-on-a-mig-board"),
        pytest.param(
            order([ONES[0]]), board(product=T4, mode="mps"), "1g.5gb at 0 is no layout of mode mps", id="mig-on-mps"
        ),
        pytest.param(
            order(layout("10gb", "10gb")),
            board(product=T4, mode="mps"),
            "no such layout: 10gb beside 10 GB: Tesla-T4 has 16 GB",
            id="mps-too-much",
        ),
        pytest.param(
            order(layout("10gb")),
            board(product=T4, mode="timeslicing"),
            "10gb is no layout of mode timeslicing",
            id="timeslicing-is-fixed",
        ),
        pytest.param(order([THREE_LOW]), board(fault="GPU is lost"), "GPU is lost", id="a-board-that-has-failed"),
        pytest.param(order([THREE_LOW], index=5), board(), "the node has no such board", id="no-such-board"),
    ],
)
def test_an_order_is_refused_with_its_reason_and_nothing_is_touched(wanted, state, why):
    steps = next_steps(wanted, {0: state})
    assert steps.get(5, steps[0]) == Refuse(why)


@pytest.mark.parametrize(
    ("product", "mode", "inventory", "why"),
    [
        pytest.param(A100, "mig", {"mig": True}, None, id="mig-on"),
        pytest.param(H100, "mig", {"switch": "live"}, None, id="mig-off-but-switched-live"),
        pytest.param(
            A100,
            "mig",
            {"mig": False},
            "MIG mode is off; stop what runs on it, run nvidia-smi -i 0 -mig 1 and reset it",
            id="P07-mig-off",
        ),
        pytest.param(
            T4, "mig", {}, "Tesla-T4 cannot do MIG; label the node nos.nebuly.com/gpu-partitioning=mps", id="no-mig"
        ),
        pytest.param(A100, "mps", {"mig": False}, None, id="mps"),
        pytest.param(
            A100, "mps", {"mig": True}, "MIG mode is on; for MPS run nvidia-smi -i 0 -mig 0", id="mps-in-mig-mode"
        ),
        pytest.param(A100, "timeslicing", {"mig": False}, None, id="timeslicing"),
    ],
)
def test_a_person_is_told_what_a_mode_needs(product, mode, inventory, why):
    assert mode_fault(board(product=product, **{"mig": False, **inventory}).inventory, mode) == why


def test_boards_that_lose_slices_are_refused_together_before_the_cut():
    """Else the leader would wait for a withdrawal that does not come, or allow one that it has not seen."""
    idle, busy, empty = board(THREE_LOW), board(THREE_LOW, index=1, used=[THREE_LOW]), board(index=2)
    plan = Order(
        plan="1",
        target={0: (), 1: (), 2: (Placement("3g.20gb", 0),)},
        basis={0: layout(("3g.20gb", 0)), 1: layout(("3g.20gb", 0))},
        cut=False,
    )
    assert next_steps(plan, {0: idle, 1: busy, 2: empty}) == {
        0: Refuse("GPU 1 is refused, so nothing is destroyed by this plan"),
        1: Refuse("3g.20gb at 0 is in use"),
        2: Recut(create=(THREE_LOW,)),
    }


def test_after_the_cut_each_board_stands_for_itself():
    gone = {"listed": [], "withdrawn": [THREE_LOW]}
    idle, busy = board(THREE_LOW, **gone), board(THREE_LOW, index=1, used=[THREE_LOW], **gone)
    basis = layout(("3g.20gb", 0))
    plan = Order(plan="1", target={0: (), 1: ()}, basis={0: basis, 1: basis}, cut=True)
    assert next_steps(plan, {0: idle, 1: busy}) == {
        0: Recut(destroy=(THREE_LOW,)),
        1: Refuse("3g.20gb at 0 is in use"),
    }


def test_boards_that_the_order_does_not_name_are_kept():
    """P07, A10: whatever lies on them."""
    foreign = board(Slice("1g.10gb", 2), THREE_HIGH, index=1, used=[THREE_HIGH])
    steps = next_steps(order([THREE_LOW]), {0: board(), 1: foreign})
    assert steps == {0: Recut(create=(THREE_LOW,)), 1: Keep()}


def test_a_device_id_names_board_profile_and_place_and_is_short_enough():
    """P14; the kubelet takes 63 characters."""
    uuid = "GPU-8a1b2c3d-0000-1111-2222-333344445555"
    assert device_id(uuid, THREE_HIGH) == f"{uuid}/3g.20gb/4"
    assert device_id(uuid, Slice("10gb", None, 3)) == f"{uuid}/10gb/3"
    longest = max((p.name for p in by_product("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition").profiles), key=len)
    assert len(device_id(uuid, Slice(longest, 9))) <= 63


def test_resources_are_named_as_the_device_plugin_does():
    assert Slice("1g.24gb+me.all", 0).resource == "nvidia.com/mig-1g.24gb.me.all"
    assert Slice("10gb", None, 1).resource == "nvidia.com/gpu-10gb"
    assert msgspec.json.encode(Slice("10gb").placement) == b'{"profile":"10gb"}'
