"""Which board an old pod is held a place on (docs/adr/0034): others that may end are waited for, who stays is not."""

import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from console.simulation.world import SimulatedPod, World
from policies import names
from policies.holding import patience
from policies.memo import Memo
from policies.model import Pod
from policies.settle import settle
from policies.timestamps import timestamp
from policies.view import view_node, view_pod
from tests.builders import A30, A100, T4, make_pod, raw_pod
from tests.policies.cluster import begin, bound, cluster, free, gated, node, used
from tests.policies.test_unreadable import entry

OLD, NEW = timestamp(0), timestamp(390)  # at 400 s they have run for 400 s, and for 10 s
NOW = 400.0
UNREADABLE = json.dumps([entry(0), entry(1, memoryMiB=0)])


def zone(name, product=A100, mode=names.MIG, **fields):
    return node(name, product, mode=mode, labels={"zone": name}, **fields)


def kept_off(view, memo=None):
    """Return who waits since a place is held for another."""
    return {one.pod for one in settle(view, memo=memo).waiting if one.reason == names.PLACE_HELD}


@pytest.mark.parametrize(
    ("waited_s", "span_s"),
    [(0, 0), (1, 0), (2, 1), (299, 128), (300, 128), (511, 128), (512, 256), (3600, 1024)],
)
def test_who_has_run_for_half_as_long_as_a_pod_waits_is_taken_to_stay_in_powers_of_two(waited_s, span_s):
    assert patience(waited_s) == span_s


@pytest.mark.parametrize(
    ("on_a", "on_b", "stays"),
    [
        pytest.param([OLD], [NEW, NEW, NEW], "web/to-b", id="who-has-run-for-long-is-taken-to-stay"),
        pytest.param([NEW], [NEW, NEW, NEW], "web/to-a", id="of-boards-that-may-come-free-the-freest"),
        pytest.param([OLD], [OLD, NEW, NEW], "web/to-a", id="where-none-may-come-free-the-freest"),
        pytest.param([OLD], [NEW, NEW, OLD], "web/to-a", id="one-who-stays-is-enough"),
    ],
)
def test_a_board_is_held_that_may_come_free(on_a, on_b, stays):
    """Old for 300 s at 400 s: whoever has run for more than 128 s is taken to stay."""
    holders = {name: [("1g.5gb", start) for start in range(len(ages))] for name, ages in (("a", on_a), ("b", on_b))}
    nodes = [zone(name, placements={"0": [used(*item) for item in items]}) for name, items in holders.items()]
    runs = [
        bound(f"web/{name}{n}", name, "1g.5gb", created=age)
        for name, ages in (("a", on_a), ("b", on_b))
        for n, age in enumerate(ages)
    ]
    young = [gated(f"web/to-{name}", "1g.5gb", created=NEW, nodeSelector={"zone": name}) for name in ("a", "b")]
    view = begin(cluster(nodes, [*runs, gated("ml/old", "7g.40gb", created=timestamp(100)), *young], now=NOW))
    assert kept_off(view) == {stays}


def test_it_counts_since_when_a_pod_was_let_through_and_not_since_when_it_waited():
    """The holder of b was created with the service of a, and released 10 s ago."""
    nodes = [
        zone("a", placements={"0": [used("1g.5gb", 0)]}),
        zone("b", placements={"0": [used("1g.5gb", 0), used("1g.5gb", 1)]}),
    ]
    runs = [
        bound("web/a", "a", "1g.5gb", created=OLD),
        *(bound(f"web/b{n}", "b", "1g.5gb", created=OLD, annotations={names.RELEASED_AT: NEW}) for n in (0, 1)),
    ]
    young = [gated(f"web/to-{name}", "1g.5gb", created=NEW, nodeSelector={"zone": name}) for name in ("a", "b")]
    view = begin(cluster(nodes, [*runs, gated("ml/old", "7g.40gb", created=timestamp(100)), *young], now=NOW))
    assert kept_off(view) == {"web/to-b"}


def test_what_counts_of_a_node_is_the_board_that_may_come_free():
    """Board 0 of a takes six 1g beside a service; of those that may come free b's takes five, and a's other one four."""
    nodes = [
        zone("a", count=2, placements={"0": [used("1g.5gb", 0)], "1": [used("1g.10gb", start) for start in (0, 2, 4)]}),
        zone("b", placements={"0": [used("1g.5gb", 0), used("1g.5gb", 1)]}),
    ]
    runs = [
        bound("web/service", "a", "1g.5gb", created=OLD),
        *(bound(f"web/a{n}", "a", "1g.10gb", created=NEW) for n in range(3)),
        *(bound(f"web/b{n}", "b", "1g.5gb", created=NEW) for n in range(2)),
    ]
    young = gated("web/to-b", "1g.5gb", created=NEW, nodeSelector={"zone": "b"})
    view = begin(cluster(nodes, [*runs, gated("ml/old", "7g.40gb", created=timestamp(100)), young], now=NOW))
    assert kept_off(view) == {"web/to-b"}


def test_who_may_end_is_found_anew_as_time_passes_and_not_remembered():
    """At 519 s the holder of b has run for 129 s, and nobody may end any more; a clock may also go back."""
    nodes = [
        zone("a", placements={"0": [used("1g.5gb", 0)]}),
        zone("b", placements={"0": [used("1g.5gb", 0), used("1g.5gb", 1)]}),
    ]
    runs = [
        bound("web/a", "a", "1g.5gb", created=OLD),
        *(bound(f"web/b{n}", "b", "1g.5gb", created=NEW) for n in (0, 1)),
    ]
    young = [gated(f"web/to-{name}", "1g.5gb", created=NEW, nodeSelector={"zone": name}) for name in ("a", "b")]
    view = begin(cluster(nodes, [*runs, gated("ml/old", "7g.40gb", created=timestamp(100)), *young], now=NOW))
    memo = Memo()
    kept = [kept_off(replace(view, now=now), memo) for now in (400.0, 518.0, 519.0, 518.0)]
    assert kept == [{"web/to-b"}, {"web/to-b"}, {"web/to-a"}, {"web/to-b"}]


@pytest.mark.parametrize(
    ("product", "mode", "small", "large", "count"),
    [
        pytest.param(T4, names.MPS, "4gb", "15gb", 1, id="mps"),
        pytest.param(A30, names.MIG, "1g.6gb", "4g.24gb", 2, id="several-slices"),
    ],
)
def test_the_same_holds_of_shares_and_of_several_slices(product, mode, small, large, count):
    def boards(held):
        return {str(n): [used(small, 0 if mode == names.MIG else None)] * held for n in range(count)}

    nodes = [
        zone("a", product, mode, count=count, placements=boards(1)),
        zone("b", product, mode, count=count, placements=boards(1)),
    ]
    runs = [
        bound(f"web/{name}{n}", name, small, created=OLD if name == "a" and n == 0 else NEW)
        for name in ("a", "b")
        for n in range(count)
    ]
    young = [gated(f"web/to-{name}", small, created=NEW, nodeSelector={"zone": name}) for name in ("a", "b")]
    old = gated("ml/old", large, count=count, created=timestamp(100))
    view = begin(cluster(nodes, [*runs, old, *young], now=NOW))
    assert kept_off(view) == {"web/to-b"}


def test_the_same_holds_of_cores():
    """Three of eight cores are left on a, whose holder stays, two on b."""
    nodes = [zone(name, resources={"cpu": "8"}) for name in ("a", "b")]

    def takes(key, cpu, created, **fields):
        return make_pod(key, limits={"nvidia.com/mig-1g.5gb": "1", "cpu": cpu}, created=created, **fields)

    runs = [
        takes("web/a", "5", OLD, node="a", phase="Running"),
        takes("web/b", "6", NEW, node="b", phase="Running"),
    ]
    gate = {"gates": (names.GATE,)}
    young = [takes(f"web/to-{name}", "2", NEW, nodeSelector={"zone": name}, **gate) for name in ("a", "b")]
    view = begin(cluster(nodes, [*runs, takes("ml/old", "7", timestamp(100), **gate), *young], now=NOW))
    assert kept_off(view) == {"web/to-b"}


def test_who_is_on_its_way_out_is_taken_to_end_however_long_it_has_run():
    """Of a both holders go, of whom one has run for 400 s; b has three recent ones."""
    holders = {"a": [OLD, NEW], "b": [NEW, NEW, NEW]}
    nodes = [
        zone(name, placements={"0": [used("1g.5gb", start) for start in range(len(ages))]})
        for name, ages in holders.items()
    ]
    runs = [
        bound(f"web/{name}{n}", name, "1g.5gb", created=age)
        for name, ages in holders.items()
        for n, age in enumerate(ages)
    ]
    young = [gated(f"web/to-{name}", "1g.5gb", created=NEW, nodeSelector={"zone": name}) for name in ("a", "b")]
    view = begin(cluster(nodes, [*runs, gated("ml/old", "7g.40gb", created=timestamp(100)), *young], now=NOW))
    goes = [replace(one, terminating=True, evicted_for="ml/gone") if one.key == "web/a0" else one for one in view.pods]
    assert kept_off(replace(view, pods=tuple(goes))) == {"web/to-a"}


def test_a_slice_that_is_there_is_held_alone():
    """Board 0 has one of the two 4g, and room beside it that is nobody's; board 1 is held by one who may end."""
    boards = {"0": [free("4g.20gb", 0)], "1": [used("7g.40gb", 0)]}
    there = zone("a", count=2, placements=boards)
    young = gated("web/young", "1g.5gb", created=NEW)
    old = gated("ml/old", "4g.20gb", count=2, created=timestamp(100))
    pinned = gated("web/slice", "4g.20gb", created=NEW)
    runs = bound("web/runs", "a", "7g.40gb", created=NEW)
    assert kept_off(begin(cluster([there], [runs, old, young], now=NOW))) == set()
    assert settle(begin(cluster([there], [runs, old, young], now=NOW))).planned.keys() == {"web/young"}
    assert settle(begin(cluster([there], [runs, old, pinned], now=NOW))).ungate == ()


@pytest.mark.parametrize(
    ("product", "count", "notes", "boards", "holder", "asked"),
    [
        pytest.param(
            A100, 2, {names.INVENTORY: UNREADABLE},
            {"0": [used("1g.5gb", start) for start in range(6)], "1": [used("1g.5gb", 0)]}, "1g.5gb",
            {"nvidia.com/mig-1g.5gb": "2"}, id="a-board-that-cannot-be-read",
        ),
        pytest.param(
            T4, 2, {}, {"0": [free("8gb")], "1": [used("4gb")]}, "4gb",
            {"nvidia.com/gpu-8gb": "1", "nvidia.com/gpu-4gb": "1"}, id="slices-of-another-mode",
        ),
    ],
)  # fmt: skip
def test_nothing_is_held_on_a_board_of_which_nothing_can_be_made(product, count, notes, boards, holder, asked):
    """One slice is free, the other on a board that makes none: the pod waits, and that is all."""
    there = node("n1", product, count=count, annotations=notes, placements=boards)
    held = [item for slices in boards.values() for item in slices if item["used"]]
    runs = [bound(f"web/{n}", "n1", holder, created=NEW if n == len(held) - 1 else OLD) for n in range(len(held))]
    old = make_pod("ml/old", limits=asked, gates=(names.GATE,), created=timestamp(100))
    decision = settle(begin(cluster([there], [*runs, old], now=NOW)))
    assert [(one.pod, one.reason) for one in decision.waiting] == [("ml/old", names.NO_ROOM)]


# Time passes ----------------------------------------------------------------------------------------------------------


def arriving(key, at, duration_s, profile, **fields):
    raw = raw_pod(key, limits={f"nvidia.com/mig-{profile}": "1"}, gates=[names.GATE], created=timestamp(at), **fields)
    return at, SimulatedPod(key=key, raw=raw, view=view_pod(msgspec.convert(raw, Pod)), duration_s=duration_s)


def started(nodes, services, pods):
    """Return when pods have started in a story that begins at 0 s with services that never end."""
    world = World(0.0, lambda _key, _at: None)
    there = [raw_pod(f"web/service-{name}", limits={"nvidia.com/mig-1g.5gb": "1"}, node=name, created=OLD, phase="Running")
             for name in services]  # fmt: skip
    bound_ones = [SimulatedPod(key=f"web/service-{name}", raw=raw, view=view_pod(msgspec.convert(raw, Pod)))
                  for name, raw in zip(services, there, strict=True)]  # fmt: skip
    world.at(0.0, lambda: world.arrive([view_node(one) for one in nodes], bound_ones))
    for at, pod in pods:
        world.at(float(at), lambda pod=pod: world.submit(pod))
    world.run()
    return {event.object: event.at for event in world.events if event.what == "started"}


def test_an_old_pod_does_not_wait_as_long_as_younger_ones_keep_coming_elsewhere():
    """A service blocks a for ever; on b six 1g run for 60 s each, one every 10 s until 1200 s. Old at 400 s, started at 450 s."""
    nodes = [zone("a", placements={"0": [used("1g.5gb", 3)]}), zone("b")]
    stream = [arriving(f"web/s{at:04}", at, 60, "1g.5gb", nodeSelector={"zone": "b"}) for at in range(0, 1200, 10)]
    times = started(nodes, ["a"], [*stream, arriving("ml/old", 100, 50, "7g.40gb")])
    assert times["ml/old"] == 450.0


@given(st.integers(0, 1 << 32))
@settings(max_examples=8, deadline=None)
def test_an_old_pod_is_served_in_bounded_time_however_long_some_holders_live(seed):
    """Younger pods run for 60 s at most, less than the 128 s that matter to a pod old at 400 s: who stays is known at once.

    Less and less is missing on the board held: of seven slices one at least every 60 s, so it starts by 400 + 7 x 60 s.
    """
    chance = random.Random(seed)
    zones = ["a", "b", "c"]
    services = sorted(chance.sample(zones, chance.randint(1, 2)))
    nodes = [zone(name, placements={"0": [used("1g.5gb", chance.randrange(7))]} if name in services else None)
             for name in zones]  # fmt: skip
    stream = []
    for name in zones:
        at = 0
        while at < 900:
            profile = chance.choice(("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"))
            stream.append(
                arriving(f"web/{name}{at:04}", at, chance.randint(50, 60), profile, nodeSelector={"zone": name})
            )
            at += chance.randint(6, 10)
    old = arriving("ml/old", 100, 50, "7g.40gb", nodeSelector={})
    times = started(nodes, services, [*stream, old])
    assert times["ml/old"] <= 820
