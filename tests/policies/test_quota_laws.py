"""Laws of quota over a thousand histories of teams on whole GPUs, and what such histories have found."""

import random

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from policies import names
from policies.settle import settle
from tests.policies import laws
from tests.policies.history import HISTORIES, idle
from tests.policies.history_gpus import WholeGpus
from tests.policies.teams import NOW, carried_out, landed, machine, pod, quota, teams, victims, without


@given(WholeGpus.strategy())
@settings(max_examples=HISTORIES)
def test_whatever_happens_to_teams_the_laws_of_quota_hold(history):
    """Q05, Q13, Q14, Q20: at every decision of a history, and when all has come to rest (laws.py says which)."""
    WholeGpus.play(*history)


def test_a_history_is_told_when_a_law_does_not_hold(monkeypatch):
    monkeypatch.setattr(laws, "hold", lambda view, _decision: laws.order_does_not_matter(view, None, 0))
    with pytest.raises(AssertionError, match="the order of the view matters") as failed:
        WholeGpus.play(*WholeGpus.some(random.Random(1)))
    assert "the history:" in failed.value.__notes__[0]


# What histories have found --------------------------------------------------------------------------------------------


def comes_to_rest(view, rounds=8):
    """Return the view when only victims end and their owners make them again; fail if that goes on."""
    for _ in range(rounds):
        decision = settle(view)
        view = landed(carried_out(view, decision))
        leaving = [one for one in view.pods if one.terminating]
        if idle(decision) and not leaving:
            return view
        again = [
            replace(one, uid=f"{one.uid}'", node="", gated=True, running=False, terminating=False, evicted_for="")
            for one in leaving
        ]
        view = without(view, {one.key for one in leaving})
        view = replace(view, pods=(*view.pods, *again))
    raise AssertionError("decisions go on without end")


@pytest.mark.parametrize(
    ("node", "unused"),
    [
        pytest.param(machine("n1", 9, cpu=9), [], id="the mins are used up"),
        pytest.param(machine("n1", 3, cpu=3), [quota("c", 3, cpu=3)], id="the node is full"),
    ],
)
def test_who_owns_gpus_and_who_owns_cpus_do_not_evict_one_another_for_ever(node, unused):
    """Q20, ADR 11: each has a right to what it owns and none to the rest, so whoever runs goes on."""
    quotas = [quota("a", 3, cpu=0), quota("b", 0, cpu=3), *unused]
    view = teams([node], quotas, [pod("b/x", 3, cpu=3, node="n1"), pod("a/y", 3, cpu=3)])
    assert [one.node for one in comes_to_rest(view).pods] == ["n1", ""]


def test_who_borrows_gpus_keeps_the_memory_that_is_its_own_from_who_would_borrow_that():
    """Q20, ADR 11: b borrows one of its two GPUs, but no GB; a owns three GPUs, and 64 of the 96 GB that they cost."""
    mins = {"a": (3, 64), "b": (1, 64), "d": (2, 0)}
    quotas = [
        replace(quota(team, gpus), min={names.GPU: gpus * 1000, names.GPU_MEMORY_QUOTA: gigabytes * 1000})
        for team, (gpus, gigabytes) in mins.items()
    ]
    running = [pod("b/x", node="n1", created=1), pod("b/y", node="n1", created=2)]
    view = teams([machine("n1", 4)], quotas, [*running, pod("a/z", 3)])
    assert [one.node for one in comes_to_rest(view).pods] == ["n1", "n1", ""]


def test_who_asks_for_less_cpu_than_is_left_takes_its_gpus_back_all_the_same():
    """A dimension that a claimant does not lack plays no part, however much of it is borrowed."""
    quotas = [quota("a", 3, cpu=0), quota("b", 0, cpu=3)]
    view = teams([machine("n1", 3, cpu=9)], quotas, [pod("b/x", 3, cpu=2, node="n1"), pod("a/y", 3, cpu=1)])
    assert victims(settle(view)) == ["b/x"]


def test_a_claimant_does_not_wait_for_its_victim_where_there_is_room_elsewhere():
    quotas = [quota("a", 2), quota("b", 2)]
    going = pod("b/x", 2, node="n1", created=1, terminating=True, evicted_for="a/y")
    view = teams([machine("n1", 4), machine("n2", 2)], quotas, [going, pod("b/z", 1, node="n1"), pod("a/y", 1)])
    (release,) = settle(view).ungate
    assert landed(carried_out(view, settle(view))).pods[-1].node in {"n1", "n2"}
    assert release.pod == "a/y"


def test_who_has_been_given_up_by_the_scheduler_counts_although_its_place_is_yet_to_come():
    """What its status says is what the webhook estimates from."""
    view = teams(
        [machine("n1", 2)],
        [quota("a", 2), quota("b", 2)],
        [
            pod("b/x", 2, node="n1", terminating=True, evicted_for="a/y"),
            pod("a/y", 1),
            pod("b/stuck", 1, gated=False, unschedulable_since=int(NOW) - 60),
        ],
    )
    used = {status.namespace: status.used[names.GPU] for status in settle(view).quotas}
    assert used == {"a": 2000, "b": 1000}


def test_what_a_served_claimants_victims_still_hold_is_for_the_next_one():
    """Q20: a/y was let in by what another pod left. Its victim is ending all the same, so nobody else needs to go for a/z."""
    quotas = [quota("a", 3), quota("b", 1)]
    going = pod("b/x", node="n1", created=3, terminating=True, evicted_for="a/y")
    pods = [pod("b/own", node="n1", created=1), pod("b/lent", node="n1", created=2), going, pod("a/y"), pod("a/z")]
    view = teams([machine("n1", 4)], quotas, [*pods[:3], replace(pods[3], node="n1", gated=False), pods[4]])
    decision = settle(view)
    assert (victims(decision), decision.ungate) == ([], ())
    used = {status.namespace: status.used[names.GPU] for status in decision.quotas}
    assert used == {"a": 1000, "b": 3000}  # it counts for its own quota until it has ended
    assert [release.pod for release in settle(without(view, {"b/x"})).ungate] == ["a/z"]


def test_that_one_victim_stays_may_make_another_unneeded():
    """a/new brings a down to its bound, so b's own has to go before a/old may: without a/new, a/old is enough."""
    view = teams(
        [machine("n1", 64)],
        [quota("a", 10), quota("b", 10)],
        [
            pod("a/new", 6, node="n1", created=1002),
            pod("a/old", 12, node="n1", created=1000),
            pod("b/low", 3, node="n1", created=1001),
            pod("b/high", 3, node="n1", created=1001, priority=5),
            pod("b/claim", 6, priority=5),
        ],
    )
    assert victims(settle(view)) == ["a/old"]
