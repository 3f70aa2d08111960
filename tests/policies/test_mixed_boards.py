"""Nodes whose boards differ in model, mode and state; what the agent has discovered counts before any table."""

import random

from msgspec.structs import replace

from policies import names
from policies.annotations import BoardInventory, Placement, write_inventory
from policies.catalogue import Profile, by_product
from policies.settle import settle
from tests.builders import A30, A100, H100, T4
from tests.policies.cluster import bound, cluster, free, gated, node, play, slices, used

RTX = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


def discovered(index, product, **fields):
    """Return a board as its agent reports it; MIG mode is on if nothing else is said."""
    model = by_product(product)
    facts = {"memory_mib": model.memory_mib, "profiles": model.profiles, "mig": bool(model.profiles), **fields}
    return BoardInventory(index=index, uuid=f"GPU-{index}", model=product, **facts)


def profile(name, compute, units, starts, most=0):
    return Profile(
        name=name, id=units, compute=compute, memory_units=units, memory_mib=units * 9000, starts=starts, max=most
    )


def targets(decision):
    """Return the new layouts as {board: [profile@start]}."""
    (layout,) = decision.layouts
    return {
        index: [item.profile + ("" if item.start is None else f"@{item.start}") for item in placements]
        for index, placements in layout.target.items()
    }


def test_each_board_of_a_node_is_cut_as_its_model_mode_and_state_allow():
    """P07, P08, P12: of nine boards of one node five can be cut, each in its own way."""
    boards = [
        discovered(0, A100),
        discovered(1, A30),
        discovered(2, H100, mig=False, switch="live"),
        discovered(3, A100, mig=False, switch="admin"),
        discovered(4, RTX),
        discovered(5, "NVIDIA-L4", mode=names.MPS),
        discovered(6, T4, mode=names.TIMESLICING),
        discovered(7, H100, fault="lost"),
        discovered(8, H100),
    ]
    busy = [used("7g.80gb", 0)]
    mixed = node(annotations=write_inventory(boards), placements={"5": [free("24gb")], "8": busy})
    asked = {
        "a/a100": "7g.40gb",
        "a/a100-again": "7g.40gb",  # board 3 waits for a person
        "a/a30": "2g.12gb+me",
        "a/h100": "7g.80gb",
        "a/h100-again": "7g.80gb",  # board 7 is lost, board 8 in use
        "a/rtx": "2g.48gb+me.all",
        "a/rtx-too": "1g.24gb-me",
        "a/l4": "10gb",
        "a/t4": "16gb",  # board 5 has 14 GB left, board 6 is time-sliced
    }
    pods = [gated(key, name, created=f"2026-03-02T09:00:0{i}Z") for i, (key, name) in enumerate(asked.items())]

    decision = settle(cluster([mixed], [bound("x/busy", "n1", "7g.80gb"), *pods]))

    assert targets(decision) == {
        0: ["7g.40gb@0"],
        1: ["2g.12gb+me@0"],
        2: ["7g.80gb@0"],
        4: ["1g.24gb-me@0", "2g.48gb+me.all@6"],
        5: ["10gb"],
    }
    told = {one.pod: one.reason for one in decision.waiting}
    unserved = {"a/a100-again", "a/h100-again", "a/t4"}
    assert {pod for pod, reason in told.items() if reason != names.BEING_CUT} == unserved


def test_boards_that_nothing_is_asked_of_stay_as_they_are():
    """P05: seven 1g fill one of eight empty boards in MIG mode; our own plugin does not mind the other seven."""
    eight = node(count=8, annotations=write_inventory([discovered(index, A100) for index in range(8)]))
    pods = [gated(f"ml/{number}", "1g.5gb") for number in range(7)]

    view, decision = play(cluster([eight], pods), random.Random(1))

    assert slices(view) == [f"0:1g.5gb@{start} used" for start in range(7)]
    assert decision.waiting == ()


def test_a_model_that_nobody_knows_is_cut_as_its_inventory_describes_it():
    """P12: ten memory units, five compute slices, starts that no board of today has."""
    unknown = BoardInventory(
        index=0,
        uuid="GPU-0",
        model="NVIDIA-Z900",
        memory_mib=90_000,
        mig=True,
        profiles=(
            profile("1g.18gb", 1, 2, (0, 2, 4, 6, 8)),
            profile("1g.18gb+me", 1, 2, (0, 2, 4, 6, 8)),
            profile("2g.44gb", 2, 5, (0, 5)),
            profile("5g.88gb", 5, 10, (0,)),
        ),
    )
    one = node(product="NVIDIA-Z900", annotations=write_inventory([unknown]))
    asked = ["2g.44gb", "1g.18gb+me", "1g.18gb+me", "1g.18gb", "1g.18gb"]
    pods = [gated(f"ml/{number}", name, created=f"2026-03-02T09:00:0{number}Z") for number, name in enumerate(asked)]

    decision = settle(cluster([one], pods))

    # By hand: beside the 2g five units are left, where two slices of two units lie; the second +me is one too many.
    assert targets(decision) == {0: ["1g.18gb@0", "1g.18gb+me@2", "2g.44gb@5"]}


def test_names_of_the_inventory_count_before_those_of_the_table():
    """P12, P22: early drivers of the GB200 call a slice 3g.95gb that later ones call 3g.93gb."""
    table = by_product("NVIDIA-GB200")
    early = {"1g.23gb": "1g.24gb", "1g.23gb+me": "1g.24gb+me", "3g.93gb": "3g.95gb", "4g.93gb": "4g.95gb"}
    profiles = tuple(replace(one, name=early.get(one.name, one.name)) for one in table.profiles)
    board = discovered(0, "NVIDIA-GB200", profiles=profiles)
    one = node(product="NVIDIA-GB200", annotations=write_inventory([board]))

    decision = settle(cluster([one], [gated("ml/new", "3g.93gb"), gated("ml/old", "3g.95gb")]))

    assert decision.layouts[0].target == {0: (Placement("3g.95gb", 4),)}
    assert {one.pod: one.reason for one in decision.waiting} == {
        "ml/new": names.NO_BOARD,
        "ml/old": names.BEING_CUT,
    }
