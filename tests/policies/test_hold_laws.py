"""Laws of holding: nothing is kept for whom nobody could make way, nor from whom it takes nothing."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.settle import settle
from tests.policies.history_boards import random_teams
from tests.policies.teams import NOW, budget, carried_out, landed, left, machine, pod, quota, teams, without

GPU = names.GPU
SPACES = ("a", "b", "c", "free")  # no quota governs the last
DIMENSIONS = (GPU, "cpu")


def random_situation(chance):
    """Return teams with pods that run, wait, or are on their way out for somebody who may have gone."""
    nodes = [machine(f"n{i}", chance.randint(2, 4), chance.choice((4, 6, 64))) for i in range(chance.randint(1, 3))]
    up = [replace(one, ready=chance.random() < 0.95, cordoned=chance.random() < 0.05) for one in nodes]
    quotas = []
    for space in SPACES[:3]:
        least = chance.choice((None, 0, 1, 2, 4, 6))
        most = None if least is None or chance.random() < 0.5 else least + chance.randint(0, 2)
        cpu = chance.choice((None, None, 0, 3, 6, 9))
        faults = ("spec.min: none",) if chance.random() < 0.05 else ()
        quotas += [quota(space, least, most, cpu=cpu, faults=faults)] if chance.random() < 0.9 else []
    pods = []
    for number in range(chance.randint(3, 14)):
        one = random_pod(chance, number)
        view = teams(nodes, quotas, pods)
        roomy = [node for node in nodes if all(left(view, node)[name] >= n for name, n in one.request.items())]
        if roomy and chance.random() < 0.5:
            going = chance.choice(("", "", "", "a/p0", "b/p1", "gone/x")) if one.controlled else ""
            one = replace(
                one,
                node=chance.choice(roomy).name,
                gated=False,
                running=True,
                terminating=bool(going),
                evicted_for=going,
            )
        elif chance.random() < 0.15:
            one = replace(one, gated=False, released_at=9000, unschedulable_since=9900)
        elif chance.random() < 0.1:
            one = replace(one, waiting=(names.EVICTING, ""))
        pods.append(one)
    budgets = [budget(space, 0, app="web") for space in SPACES if chance.random() < 0.3]
    if chance.random() < 0.1 and len(up) > 1:
        up = up[1:]  # a node has gone, with what was bound to it still there
    return teams(up, quotas, pods, budgets)


def random_pod(chance, number):
    gpus = chance.choice((0, 1, 1, 2, 2, 3))
    return pod(
        f"{chance.choice(SPACES)}/p{number}",
        gpus,
        cpu=chance.choice((0, 1, 2, 3)) or (0 if gpus else 1),
        created=int(NOW) - chance.choice((0, 400, 500)),
        priority=chance.choice((0, 0, 5)),
        preempts=chance.random() < 0.8,
        non_preemptible=chance.random() < 0.15,
        controlled=chance.random() < 0.5,
        labels={"app": "web"} if chance.random() < 0.5 else {},
    )


def at_rest(view):
    """Return the view when all that is decided has happened and whoever was on its way out has ended, and what is said."""
    for _ in range(60):
        view = landed(view)
        decision = settle(view)
        if not (decision.ungate or decision.evict or decision.relabel):
            going = {one.key for one in view.pods if one.terminating}
            if not going:
                return view, decision
            view = without(view, going)
            continue
        nobodys = {evict.pod for evict in decision.evict if not evict.claimant}
        back = [one for one in view.pods if one.key in nobodys]
        view = without(carried_out(view, decision), nobodys)
        fresh = [replace(one, gated=True, released_at=0, unschedulable_since=None, created=int(NOW)) for one in back]
        view = replace(view, pods=(*view.pods, *fresh))
    raise AssertionError("decisions go on without end")


class Books:
    """What is used, counted from the pods alone."""

    def __init__(self, view):
        self.view = view
        self.quotas = {space: each for each in view.quotas if not each.faults for space in each.namespaces}
        self.used = {space: Counter() for space in self.quotas}
        self.total, self.mins = Counter(), Counter()
        for each in self.quotas.values():
            self.mins.update(each.min)
        for one in view.pods:
            if one.namespace in self.quotas and (one.node or not one.gated):
                self.used[one.namespace].update(one.request)
                self.total.update(
                    {name: n for name, n in one.request.items() if name in self.quotas[one.namespace].min}
                )

    def bounds(self, one, kept=()):
        """Yield (what its own quota uses, what all use, the bound on either) for each bound, with a pod and what is kept."""
        each = self.quotas.get(one.namespace)
        for name in DIMENSIONS if each else ():
            asked = one.request.get(name, 0)
            if not asked:
                continue
            own = self.used[one.namespace][name] + asked
            own_kept = sum(other.request.get(name, 0) for other in kept if other.namespace == one.namespace)
            if name in each.max:
                yield own, own + own_kept, each.max[name]
            if name in each.min:
                if one.non_preemptible:
                    yield own, own + own_kept, each.min[name]
                theirs = [other for other in kept if name in getattr(self.quotas.get(other.namespace), "min", ())]
                all_kept = sum(other.request.get(name, 0) for other in theirs if not self.waits_for_its_own(other))
                yield own, self.total[name] + asked + all_kept, self.mins[name]

    def allows(self, one, kept=()):
        return all(total <= bound for _, total, bound in self.bounds(one, kept))

    def waits_for_its_own(self, one):
        return any(own > bound for own, _, bound in self.bounds(one))

    def could_ever(self, one):
        each = self.quotas.get(one.namespace)
        empty = Books(replace(self.view, pods=()))
        fits = any(
            node.ready and not node.cordoned and all(node.allocatable[name] >= n for name, n in one.request.items())
            for node in self.view.nodes
        )
        faulty = each is None and any(one.namespace in other.namespaces for other in self.view.quotas)
        # Who has been released already is with the scheduler, whatever its quota says by now.
        return fits and (not one.gated or (not faulty and empty.allows(one)))

    def homes(self, one, kept=()):
        """Return the nodes with room for a pod, when what is kept is kept there too, as far as it could be."""
        return [
            node
            for node in self.view.nodes
            if node.ready and not node.cordoned
            and all(left(self.view, node)[name] >= n + sum(
                other.request.get(name, 0) for other in kept
                if all(node.allocatable[what] >= amount for what, amount in other.request.items())
            ) for name, n in one.request.items())
        ]  # fmt: skip


@given(st.randoms(use_true_random=True))
@settings(max_examples=300, deadline=None)
def test_no_pod_waits_that_could_run_and_would_take_nothing_from_one_before_it(chance):
    """Q18: where nothing happens any more, what is kept is kept for pods that could run if others ended."""
    view, decision = at_rest(random_situation(chance))
    pods, books = {one.key: one for one in view.pods}, Books(view)
    before, stranded = [], []
    for item in decision.waiting:
        one = pods[item.pod]
        if not books.could_ever(one):
            continue
        if not one.gated:
            stranded.append(one)  # its quota counts it already
            continue
        if books.allows(one) and books.homes(one):
            others = [other for other in before if not books.waits_for_its_own(other)]
            assert not books.allows(one, before) or not books.homes(one, [*others, *stranded])
        before.append(one)


@pytest.mark.parametrize("situation", [random_situation, random_teams], ids=["whole GPUs", "slices"])
@given(st.randoms(use_true_random=True))
@settings(max_examples=80, deadline=None)
def test_who_could_never_run_changes_nothing_for_others(situation, chance):
    """Q18: not served even alone on empty nodes; unless others are on their way out for it already."""
    view = situation(chance)
    claimants = {one.evicted_for for one in view.pods}
    vain = {one.key for one in view.pods if one.gated and one.key not in claimants and not is_served_alone(view, one)}
    decision, without_them = settle(view), settle(without(view, vain))
    assert decision.ungate == without_them.ungate
    assert decision.evict == without_them.evict
    assert decision.layouts == without_them.layouts
    assert [item.pod for item in decision.waiting if item.pod not in vain] == [
        item.pod for item in without_them.waiting
    ]


def is_served_alone(view, one):
    nodes = tuple(
        replace(node, boards=tuple(replace(board, slices=tuple(map(unused, board.slices))) for board in node.boards))
        for node in view.nodes
    )
    decision = settle(replace(view, nodes=nodes, pods=(replace(one, waiting=("", "")),)))
    return bool(decision.ungate or decision.planned)


def unused(item):
    return replace(item, used=False, pod=None)
