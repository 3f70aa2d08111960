"""A memo saves time and decides nothing: with it and without, every view of a history comes to the same decision."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import policies.memo
from policies import names
from policies.memo import Memo
from policies.model import Taint
from policies.settings import DEFAULTS
from policies.settle import settle
from tests.builders import A30, A100, H100
from tests.policies.cluster import (
    agent_step,
    begin,
    bind,
    bound,
    cluster,
    end,
    free,
    gated,
    node,
    places,
    released,
    used,
    write,
)
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


A30_CUT = {"0": [free("2g.12gb", 0)]}
WANTS = gated("ml/wants", "2g.12gb")
TAINT = {"key": "team", "effect": "NoSchedule"}


def two_nodes(*pods, **fields):
    """Return a view of two A30 on which half a board is cut."""
    return cluster([node(name, A30, placements=A30_CUT, **fields) for name in ("n1", "n2")], pods)


def one_node(*pods, **fields):
    """Return a view of one uncut A30."""
    return cluster([node("n1", A30, labels={"zone": "a"}, **fields)], pods)


def with_boards_of(product):
    """Return a view of a node with other boards under the same labels: of a slice a quota has no more than a fifth of a GPU."""
    view = cluster([node("n1", H100)], [gated("a/x", "1g.10gb")])
    (there,), (other,) = view.nodes, cluster([node("n1", product)], []).nodes
    bounds = {names.GPU: 200}
    return replace(
        view, nodes=(replace(there, boards=other.boards),), quotas=(replace(quota("a"), min=bounds, max=bounds),)
    )


def named(name):
    """Return a view of a node without labels, and a pod that asks for the node n2 by its name."""
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    view = cluster([node(name, A30)], [gated("ml/a", "2g.12gb", affinity={"nodeAffinity": required})])
    return replace(view, nodes=(replace(view.nodes[0], labels={}),))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            two_nodes(gated("ml/a", "2g.12gb")),
            two_nodes(released("ml/a", "2g.12gb"), gated("ml/b", "4g.24gb")),
            id="a-pod-is-released-that-could-land-on-either",
        ),
        pytest.param(
            one_node(bound("x/old", "n1", cpu="64"), gated("ml/a", "2g.12gb", cpu="1")),
            one_node(gated("ml/a", "2g.12gb", cpu="1")),
            id="a-pod-ends",
        ),
        pytest.param(one_node(WANTS, resources={"pods": "0"}), one_node(WANTS), id="a-node-offers-more"),
        pytest.param(
            cluster([node("n1", A30, labels={"zone": "a"})], [gated("ml/a", "2g.12gb", nodeSelector={"zone": "b"})]),
            cluster([node("n1", A30, labels={"zone": "b"})], [gated("ml/a", "2g.12gb", nodeSelector={"zone": "b"})]),
            id="a-node-is-labelled",
        ),
        pytest.param(one_node(WANTS, taints=[TAINT]), one_node(WANTS), id="a-node-loses-its-taint"),
        pytest.param(one_node(WANTS, ready=False), one_node(WANTS), id="a-node-comes-back"),
        pytest.param(
            cluster([node("n1", A30), node("n2", A100)], [gated("ml/a", "1g.5gb")]),
            cluster([node("n1", A30)], [gated("ml/a", "1g.5gb")]),
            id="a-node-goes",
        ),
        pytest.param(
            cluster([node("n1", A30), node("n2", A100)], [gated("ml/a", "1g.5gb")]),
            cluster([node("n1", A100), node("n2", A30)], [gated("ml/a", "1g.5gb")]),
            id="nodes-change-their-boards",
        ),
        pytest.param(with_boards_of(H100), with_boards_of(A100), id="a-slice-costs-more-on-another-board"),
        pytest.param(named("n1"), named("n2"), id="a-node-of-another-name"),
    ],
)
def test_what_has_changed_is_taken_note_of(before, after):
    memo = Memo()
    settle(before, DEFAULTS, memo)
    assert settle(after, DEFAULTS, memo) == settle(after) != settle(before)


def test_what_is_forgotten_because_it_is_too_much_is_found_again(monkeypatch):
    monkeypatch.setattr("policies.memo._MOST_STATES", 0)
    memo = Memo()
    for view in (two_nodes(WANTS), two_nodes(WANTS, gated("ml/b", "4g.24gb")), one_node(WANTS)):
        assert settle(view, DEFAULTS, memo) == settle(view)


def test_a_plan_leaves_the_nodes_as_they_were_for_the_next():
    """Nobody sits there, and nothing is kept: the first plan's pod is deleted before it is released."""
    full, memo = two_nodes(*(gated(f"ml/{number}", "4g.24gb") for number in range(3))), Memo()
    settle(full, DEFAULTS, memo)
    after = two_nodes(gated("ml/later", "4g.24gb"), gated("ml/last", "2g.12gb"))
    assert settle(after, DEFAULTS, memo) == settle(after)


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
