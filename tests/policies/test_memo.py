"""A memo saves time and decides nothing: with it and without, every view of a history comes to the same decision."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import policies.memo
from policies.memo import Memo
from policies.model import Taint
from policies.settings import DEFAULTS
from policies.settle import settle
from tests.builders import A30
from tests.policies.cluster import agent_step, begin, bind, bound, cluster, end, gated, node, places, used, write
from tests.policies.history_boards import Boards
from tests.policies.history_gpus import WholeGpus
from tests.policies.teams import machine, pod, quota, teams, without
from tests.policies.test_settle_laws import random_cluster


@given(st.randoms(use_true_random=True))
@settings(max_examples=60, deadline=None)
def test_with_a_memo_and_without_slices_are_given_alike_whatever_happens_in_between(chance):
    view, memo = random_cluster(chance), Memo()
    for turn in range(25):
        decision = settle(view)
        assert settle(view, DEFAULTS, memo) == decision
        if chance.random() < 0.3:
            view = write(view, decision, str(turn + 1))
        else:
            view = chance.choice((agent_steps, lands, ends, some_leave, nodes_change, time_passes, in_another_order))(
                view, chance
            )


def agent_steps(view, chance):
    return agent_step(view, chance.choice(view.nodes).name)


def lands(view, chance):
    for one in view.pods:
        if one.released and (there := places(view, one)):
            return bind(view, one.key, chance.choice(there))
    return view


def ends(view, _chance):
    held = [one.key for one in view.pods if one.holds]
    return end(view, held[0]) if held else view


def some_leave(view, chance):
    return replace(view, pods=tuple(one for one in view.pods if chance.random() < 0.9))


def nodes_change(view, chance):
    return replace(view, nodes=tuple(changed(one, chance) for one in view.nodes))


def time_passes(view, chance):
    return replace(view, now=view.now + chance.choice((1.0, 31.0, 70.0)))


def in_another_order(view, _chance):
    return replace(view, nodes=view.nodes[::-1], pods=view.pods[::-1])


def changed(one, chance):
    """Return a node, perhaps another one than it was."""
    match chance.randrange(8):
        case 0:
            return replace(one, ready=not one.ready)
        case 1:
            return replace(one, cordoned=not one.cordoned)
        case 2:
            return replace(one, labels={**one.labels, "zone": chance.choice("ab")})
        case 3:
            return replace(one, taints=() if one.taints else (Taint(key="team", effect="NoSchedule"),))
        case 4:
            return replace(one, allocatable={**one.allocatable, "cpu": chance.choice((2000, 64000))})
        case _:
            return one


class Remembering:
    """A history that decides twice, and remembers only once."""

    memo = None

    def decide(self):
        self.memo = self.memo or Memo()
        decision = super().decide()
        assert settle(self.view, DEFAULTS, self.memo) == decision
        return decision


class RememberingGpus(Remembering, WholeGpus):
    """Of whole GPUs."""


class RememberingBoards(Remembering, Boards):
    """Of boards that are cut."""


@given(RememberingGpus.strategy())
@settings(max_examples=60, deadline=None)
def test_with_a_memo_and_without_teams_lend_and_take_back_alike(history):
    RememberingGpus.play(*history)


@given(RememberingBoards.strategy())
@settings(max_examples=30, deadline=None)
def test_with_a_memo_and_without_teams_take_back_slices_alike(history):
    RememberingBoards.play(*history)


def test_only_what_has_changed_is_looked_at_again(monkeypatch):
    nodes = [node(f"n{number}", A30, placements={"0": [used("4g.24gb", 0)]}) for number in range(3)]
    running = [bound(f"run/{number}", f"n{number}", "4g.24gb") for number in range(3)]
    view, memo, seen = begin(cluster(nodes, [*running, gated("ml/a", "4g.24gb")])), Memo(), []
    survey = policies.memo.survey
    monkeypatch.setattr(policies.memo, "survey", lambda one, *others: seen.append(one.name) or survey(one, *others))
    settle(view, DEFAULTS, memo)
    assert seen == ["n0", "n1", "n2"]
    settle(end(view, "run/1"), DEFAULTS, memo)
    assert seen == ["n0", "n1", "n2", "n1"]


def test_who_no_longer_leaves_for_anybody_is_counted_again():
    """The claimant is deleted: its victim ends when it ends, and what it holds is not planned with until then."""
    victim = replace(pod("a/x", 1, node="n1"), terminating=True, evicted_for="b/y")
    before = teams(
        [machine("n1", 1)], [quota("a", 0), quota("b", 1), quota("c", 1)], [victim, pod("b/y", 1), pod("c/z", 1)]
    )
    after, memo = without(before, {"b/y"}), Memo()
    settle(before, DEFAULTS, memo)
    assert settle(after, DEFAULTS, memo) == settle(after)
