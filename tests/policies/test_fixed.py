"""Boards whose layout a person has fixed: used as they are, never cut, whoever waits."""

import json

import pytest

from policies import names
from policies.admission import admit
from policies.annotations import BoardInventory, read_inventory, write_inventory
from policies.boards import read_boards
from policies.catalogue import by_product
from policies.inventory import Inventory
from policies.placement import resource_of
from policies.settings import DEFAULTS
from policies.settle import settle
from policies.view import View, view_node, view_pod
from tests.builders import A100, T4, make_node, make_pod

SEVEN = {"0": [{"profile": "1g.5gb", "start": start, "used": False} for start in range(7)]}


def board(*, fixed=True, mode="mig", product=A100, profiles=("1g.5gb",)):
    model = by_product(product)
    return BoardInventory(
        index=0, uuid="GPU-0", model=product, memory_mib=model.memory_mib, mig=mode == "mig", mode=mode, fixed=fixed,
        profiles=tuple(profile for profile in model.profiles if profile.name in profiles),
        compute_slices=model.compute, memory_units=model.memory_units,
    )  # fmt: skip


def node(entry, *, name="n1", placements=SEVEN, **fields):
    return make_node(name, annotations=write_inventory([entry]), placements=placements, **fields)


def gated(key, resource):
    return view_pod(make_pod(key, limits={resource: 1}, gates=[names.GATE]))


def test_that_a_layout_is_fixed_is_written_only_where_it_is():
    told = [
        json.loads(write_inventory([board(fixed=fixed)])[names.INVENTORY])[0].get("fixed") for fixed in (True, False)
    ]
    assert told == [True, None]
    (read,) = read_inventory(write_inventory([board()]), [])
    assert read == board()


@pytest.mark.parametrize("mode", ["mig", "mps", "timeslicing"])
def test_a_fixed_board_is_not_cut(mode):
    annotations = write_inventory([board(mode=mode)])
    (read,) = read_boards({}, annotations, "mig", [])
    assert (read.cuttable, read.mode) == (False, mode)


def test_its_slices_are_given_away_as_they_are_and_no_order_is_ever_given():
    """Where nothing is free the reason says it: boards that are not to be cut are no hope."""
    fixed = view_node(node(board(), resources={"nvidia.com/mig-1g.5gb": "7"}))
    pods = [gated(f"team-a/p{n}", "nvidia.com/mig-1g.5gb") for n in range(8)]
    decision = settle(View(nodes=(fixed,), pods=tuple(pods)))
    assert [release.pod for release in decision.ungate] == [f"team-a/p{n}" for n in range(7)]
    assert decision.layouts == ()
    (waiting,) = decision.waiting
    assert waiting.message == (
        "needs 1g.5gb; none is free, and 1 board cannot be cut now (node n1: its layout is fixed by a file)"
    )


def test_a_slice_that_is_not_in_the_layout_is_made_by_no_board():
    fixed = view_node(node(board(), resources={"nvidia.com/mig-1g.5gb": "7"}))
    decision = settle(View(nodes=(fixed,), pods=(gated("team-a/large", "nvidia.com/mig-3g.20gb"),)))
    (waiting,) = decision.waiting
    assert waiting.message == "needs 3g.20gb; no board makes that (1 node in all)"


@pytest.mark.parametrize(
    ("profile", "resource"),
    [
        pytest.param("1g.5gb+me", "nvidia.com/mig-1g.5gb.me", id="mig"),
        pytest.param("10gb", "nvidia.com/gpu-10gb", id="mps"),
        pytest.param("gpu", "nvidia.com/gpu", id="a-turn"),
        pytest.param("gpu.shared", "nvidia.com/gpu.shared", id="a-turn-called-so"),
    ],
)
def test_what_is_told_of_a_device_says_which_resource_it_is(profile, resource):
    assert resource_of(profile) == resource


def warnings(*nodes, **pod):
    answer = admit(
        make_pod(**pod),
        namespace="team-a",
        labels={},
        inventory=Inventory.of(map(view_node, nodes)),
        settings=DEFAULTS,
    )
    assert answer.faults == ()
    return list(answer.warnings)


def test_who_asks_for_a_gpu_is_warned_where_that_is_a_turn():
    def shared(name, **fields):
        turns = {"0": [{"profile": "gpu", "used": False}] * 4}
        entry = board(mode="timeslicing", product=T4)
        return node(entry, name=name, product=T4, placements=turns, resources={"nvidia.com/gpu": "4"}, **fields)

    limits = {"nvidia.com/gpu": 1}
    unlimited = "nothing is limited: neither memory nor compute, no fault isolation"
    assert warnings(shared("n1"), limits=limits) == [f"nvidia.com/gpu is a turn on a GPU on n1; {unlimited}"]
    assert warnings(shared("n1"), shared("n2"), limits=limits) == [
        f"nvidia.com/gpu is a turn on a GPU on n1 and 1 more; {unlimited}"
    ]
    tainted = shared("n1", taints=[{"key": "shared", "effect": "NoSchedule"}])
    assert warnings(tainted, limits=limits) == []
    single = node(board(), placements={"0": [{"profile": "gpu", "used": False}]}, resources={"nvidia.com/gpu": "7"})
    assert warnings(single, limits=limits) == [], "of strategy single: a MIG slice, which is limited"
    assert warnings(shared("n1"), limits={"cpu": 1}) == []


def test_who_asks_for_a_gpu_is_warned_where_that_is_a_clients_part():
    """W32: four times nvidia.com/gpu by sharing.mps; nothing of the pod says that it is a client of MPS."""
    quarters = {"0": [{"profile": "gpu", "used": False}] * 4}
    entry = board(mode="mps", product=T4, profiles=())
    quartered = node(entry, product=T4, mode="mps", placements=quarters, resources={"nvidia.com/gpu": "4"})
    assert warnings(quartered, limits={"nvidia.com/gpu": 1}) == [
        "nvidia.com/gpu is a part of a GPU by MPS on n1; a program hangs there, for its pod is not given the user and the "
        "hostIPC of a client: have the node's file rename it (nvidia.com/gpu-<N>gb, with memoryGB), and ask for that"
    ]
    renamed = node(entry, product=T4, mode="mps", placements={"0": [{"profile": "4gb", "used": False}] * 4})
    assert not any("hangs" in each for each in warnings(renamed, limits={"nvidia.com/gpu": 1}))


@pytest.mark.parametrize(
    ("profile", "resource"),
    [pytest.param("gpu", "nvidia.com/gpu", id="gpu"), pytest.param("turn", "nvidia.com/turn", id="renamed")],
)
def test_a_wish_for_a_turn_is_denied_where_turns_are_called_otherwise_than_it_would_be_answered(profile, resource):
    """Else it would become nvidia.com/gpu.shared and wait for ever; a node beside it that announces that serves it."""
    wish = make_pod(annotations={names.FRACTION: "0.25", names.MODE: "timeslicing"})

    def answer(*nodes):
        inventory = Inventory.of(map(view_node, nodes))
        return admit(wish, namespace="team-a", labels={}, inventory=inventory, settings=DEFAULTS)

    entry = board(mode="timeslicing", product=T4)
    turns = {"0": [{"profile": profile, "used": False}] * 4}
    otherwise = node(entry, product=T4, mode="timeslicing", placements=turns, resources={resource: "4"})
    assert answer(otherwise).faults == (
        "metadata.annotations[nos.nebuly.com/gpu-fraction]: 0.25: no board serves it by timeslicing; Tesla-T4 is "
        f"time-sliced, but announced as {resource}: ask for that in limits, or have the node's file call it "
        "nvidia.com/gpu.shared (renameByDefault: true)",
    )
    called_so = make_node(
        "n2", T4, mode="timeslicing", placements={"0": [{"profile": "gpu.shared", "used": False}] * 4}
    )
    assert answer(otherwise, called_so).faults == ()
