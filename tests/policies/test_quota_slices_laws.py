"""Laws of quota where boards are cut: on random clusters, with victims that end when they like."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.governing import QuotaView
from policies.placement import profile_of, size_of
from policies.settle import settle
from tests.policies.cluster import agent_step, carry_out, end, land_all, write
from tests.policies.teams import carried_out, relabelled
from tests.policies.test_settle_laws import random_cluster

SPACES = ("a", "b", "c")
MEMORY = names.GPU_MEMORY_QUOTA


def random_teams(chance):
    """Return a random cluster whose pods belong to teams with quotas in GB; some are eight minutes old."""
    view = random_cluster(chance)
    space = {pod.key: chance.choice(SPACES) for pod in view.pods}
    quotas = tuple(
        QuotaView(
            kind=names.ELASTIC_QUOTA, namespace=each, name="q", namespaces=(each,),
            min={MEMORY: chance.choice((0, 10, 20, 40, 60)) * 1000},
            max={MEMORY: 80_000} if chance.random() < 0.2 else {},
        )
        for each in SPACES
    )  # fmt: skip
    pods = []
    for number, pod in enumerate(view.pods):
        pods.append(replace(pod, namespace=space[pod.key], name=f"{pod.name}-{number}"))
    names_now = {old.key: new.key for old, new in zip(view.pods, pods, strict=True)}
    nodes = tuple(
        replace(node, boards=tuple(
            replace(board, slices=tuple(replace(item, pod=names_now.get(item.pod)) for item in board.slices))
            for board in node.boards
        ))
        for node in view.nodes
    )  # fmt: skip
    now = max((pod.created for pod in pods), default=0) + chance.choice((10, 480))
    view = replace(view, nodes=nodes, pods=tuple(pods), quotas=quotas, now=float(now))
    return relabelled(view, settle(view))


def gigabytes(pod):
    return sum(size_of(profile_of(resource))[0] * count * 1000 for resource, count in pod.slices)


def audit(view, released):
    """Assert that what is released now breaks no max and not the sum of mins, counted from the pods alone."""
    used, more = Counter(), Counter()
    claimants = {pod.key: pod.namespace for pod in view.pods if pod.gated}
    everything = 0
    for pod in view.pods:
        if pod.finished or not (pod.node or pod.released):
            continue
        everything += gigabytes(pod)
        leaves = pod.terminating and claimants.get(pod.evicted_for, pod.namespace) != pod.namespace
        used[pod.namespace] += 0 if leaves else gigabytes(pod)
    for pod in view.pods:
        if pod.key in released:
            more[pod.namespace] += gigabytes(pod)
    for quota in view.quotas:
        if more[quota.namespace]:
            assert used[quota.namespace] + more[quota.namespace] <= quota.max.get(MEMORY, 1 << 60)
    if more.total():
        assert everything + more.total() <= sum(quota.min[MEMORY] for quota in view.quotas)


@given(st.randoms(use_true_random=True))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_quotas_hold_released_pods_land_and_used_slices_stay(chance):
    view = random_teams(chance)
    for turn in range(30):
        match chance.choice(("settle", "settle", "agent", "land", "end", "leave")):
            case "settle":
                decision = settle(view)
                audit(view, {release.pod for release in decision.ungate})
                view = victims_marked(write(view, decision, plan(view, turn)), decision)
            case "agent":
                view = agent_step(view, chance.choice(view.nodes).name)  # asserts that no slice in use is destroyed
            case "land":
                view, stuck = land_all(view, chance)
                assert not stuck
            case "end":
                for pod in [pod for pod in view.pods if pod.holds][: chance.randint(0, 1)]:
                    view = end(view, pod.key)
            case "leave":
                for pod in [pod for pod in view.pods if pod.terminating and not pod.finished][:1]:
                    view = end(view, pod.key)
        assert not land_all(view, chance)[1]


def plan(view, turn):
    """Return the id of an order that is given now."""
    return str(int(view.now * 1000) + turn)  # milliseconds


def victims_marked(view, decision):
    """Return the view with the evictions and labels of a decision, releases being written already."""
    return carried_out(view, replace(decision, ungate=()))


@given(st.randoms(use_true_random=True))
@settings(max_examples=60, deadline=None)
def test_it_comes_to_rest_and_who_was_evicted_was_evicted_for_somebody_who_runs(chance):
    """Nobody goes in vain: where nothing else happens meanwhile, every claimant runs when its victims have ended."""
    view = random_teams(chance)
    gone = {}
    for turn in range(60):
        decision = settle(view)
        audit(view, {release.pod for release in decision.ungate})
        gone |= {evict.pod: evict.claimant for evict in decision.evict}
        leaving = [pod.key for pod in view.pods if pod.terminating and not pod.finished]
        if not (decision.ungate or decision.evict or decision.layouts or decision.cuts or decision.relabel):
            if not leaving:
                break
            view = end(view, chance.choice(leaving))
            continue
        view = victims_marked(carry_out(view, decision, plan(view, turn)), decision)
        view, stuck = land_all(view, chance)
        assert not stuck
    else:
        raise AssertionError("no fixed point")
    assert settle(view) == decision
    running = {pod.key for pod in view.pods if pod.node}
    assert set(gone.values()) <= running
    assert len(gone) == sum(pod.terminating for pod in view.pods)


@given(st.randoms(use_true_random=True))
@settings(max_examples=40, deadline=None)
def test_the_order_in_which_the_view_is_written_does_not_matter(chance):
    view = random_teams(chance)
    parts = [list(part) for part in (view.nodes, view.pods, view.quotas)]
    for part in parts:
        chance.shuffle(part)
    nodes, pods, quotas = (tuple(part) for part in parts)
    assert settle(replace(view, nodes=nodes, pods=pods, quotas=quotas)) == settle(view)
