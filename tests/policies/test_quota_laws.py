"""Laws of quota over random histories of teams that come, borrow, claim, end and come back (the invariants of reclaim)."""

from collections import Counter
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.settle import settle
from tests.policies.teams import (
    NOW,
    carried_out,
    landed,
    left,
    machine,
    pod,
    quota,
    relabelled,
    teams,
    used,
    victims,
    with_pods,
    without,
)

GPU = names.GPU
SPACES = ("a", "b", "c")


def random_teams(chance, pods=9):
    """Return up to three teams on up to three nodes; what runs fits its node, whatever quotas say of it."""
    nodes = [machine(f"n{i}", chance.randint(1, 4)) for i in range(chance.randint(1, 3))]
    quotas = []
    for space in SPACES:
        least = chance.randint(0, 4)
        most = chance.choice((None, None, least + chance.randint(0, 3)))
        quotas.append(quota(space, least, most))
    view = teams(nodes, quotas, ())
    for number in range(chance.randint(1, pods)):
        one = random_pod(chance, number)
        if chance.random() < 0.7:
            roomy = [node for node in nodes if left(view, node)[GPU] >= one.request[GPU]]
            if roomy:
                one = replace(one, node=chance.choice(roomy).name, gated=False, running=True)
        view = replace(view, pods=(*view.pods, one))
    return labelled(view)


def labelled(view):
    """Return the view with the capacity labels that its running pods should have."""
    labels = {}
    for each in view.quotas:
        total = 0
        members = [one for one in view.pods if one.namespace == each.namespace and one.node]
        for one in sorted(members, key=lambda one: (one.created, -one.priority, one.request[GPU], one.name)):
            total += one.request[GPU]
            labels[one.key] = names.OVER_QUOTA if total > each.min[GPU] else names.IN_QUOTA
    return with_pods(view, lambda one: replace(one, capacity=labels.get(one.key, "")))


def random_pod(chance, number):
    return pod(
        f"{chance.choice(SPACES)}/p{number}",
        chance.choice((1, 1, 1, 2, 3)),
        created=int(NOW) - chance.choice((0, 10, 20, 400, 500)),
        priority=chance.choice((0, 0, 0, 5)),
        preempts=chance.random() < 0.8,
        non_preemptible=chance.random() < 0.1,
        controlled=chance.random() < 0.5,
    )


def audit(view, released):
    """Assert that with these releases nobody uses more than max, nor all together more than the sum of mins.

    Counted afresh from the pods alone. Who was above a bound before (somebody lowered it) may stay so, not go higher.
    """
    before, after = used(view), used(view)
    for key in released:
        one = next(one for one in view.pods if one.key == key)
        after[one.namespace] += one.request[GPU]
    going = Counter()
    for one in view.pods:
        if one.terminating and one.evicted_for and one.node:
            claimant = next((other for other in view.pods if other.key == one.evicted_for and other.gated), None)
            if claimant and claimant.namespace != one.namespace:
                going[one.namespace] += one.request[GPU]
    for each in view.quotas:
        space = each.namespace
        if GPU in each.max and after[space] > before[space]:
            assert after[space] - going[space] <= each.max[GPU]
    if after != before:
        assert after.total() <= sum(each.min[GPU] for each in view.quotas)


def fits(view, claimant, gone):
    """Return whether a claimant could be released if these pods were gone: quota by the pods alone, and a node."""
    rest = without(view, gone)
    spaces = used(rest)
    need = claimant.request[GPU]
    own = next(each for each in view.quotas if each.namespace == claimant.namespace)
    return (
        spaces[claimant.namespace] + need <= own.max.get(GPU, 1 << 60)
        and spaces.total() + need <= sum(each.min[GPU] for each in view.quotas)
        and (not claimant.non_preemptible or spaces[claimant.namespace] + need <= own.min[GPU])
        and any(left(rest, node)[GPU] >= need for node in view.nodes)
    )


def legal(view, claimant, gone):
    """Return whether pods may go one after another in this order, by rules 1 to 3 alone."""
    spaces = used(view)
    mins = {each.namespace: each.min[GPU] for each in view.quotas}
    need, own = claimant.request[GPU], claimant.namespace

    def guaranteed(space):
        unused = sum(max(0, mins[other] - spaces[other]) for other in mins)
        whole = sum(mins.values())
        return mins[space] * unused // whole if whole else 0

    def rank(amount):
        return 0 if amount <= mins[own] else 1 if amount <= mins[own] + guaranteed(own) else 2

    def bound(space):
        """Return down to what another team's pods may be taken; more than there is: not at all."""
        if spaces[own] + need <= mins[own]:
            return mins[space]
        return mins[space] + guaranteed(space) if spaces[own] + need <= mins[own] + guaranteed(own) else 1 << 60

    for key in gone:
        one = next(one for one in view.pods if one.key == key)
        if one.namespace == own:
            rest = spaces[own] - one.request[GPU]
            before = rank(rest + need) <= rank(rest + one.request[GPU])  # else it would overtake when it comes back
            allowed = claimant.preempts and one.priority < claimant.priority and before
        else:
            allowed = one.capacity == names.OVER_QUOTA and spaces[one.namespace] > bound(one.namespace)
        if one.non_preemptible or not allowed:
            return False
        spaces[one.namespace] -= one.request[GPU]
    return True


def only_waiting(view, key):
    """Return the view with one pod waiting alone."""
    return without(view, {one.key for one in view.pods if not one.node and one.key != key})


@given(st.randoms(use_true_random=True))
@settings(max_examples=150, deadline=None)
def test_whatever_happens_no_release_breaks_a_quota_and_all_comes_to_rest(chance):
    """Q05, Q20: at every instant; and when only victims end and owners make them again, decisions end."""
    view = random_teams(chance)
    for number in range(100, 112):
        match chance.choice(("settle", "settle", "bind", "end", "leave", "arrive")):
            case "settle":
                decision = settle(view)
                audit(view, [release.pod for release in decision.ungate])
                view = carried_out(view, decision)
            case "bind":
                view = landed(view)
            case "end":
                view = without(view, {one.key for one in view.pods if one.running and chance.random() < 0.2})
            case "leave":
                view = ended(view, {one.key for one in view.pods if one.terminating and chance.random() < 0.5}, number)
            case "arrive":
                view = replace(view, pods=(*view.pods, random_pod(chance, number)))
    for turn in range(40):
        decision = settle(view)
        audit(view, [release.pod for release in decision.ungate])
        if not (decision.ungate or decision.evict or decision.relabel):
            if not any(one.terminating for one in view.pods):
                break
            view = ended(view, {one.key for one in view.pods if one.terminating}, 200 + turn)
            continue
        view = landed(carried_out(view, decision))
    else:
        raise AssertionError("decisions go on without end")
    assert settle(view) == decision


def ended(view, keys, created):
    """Return the view when pods have ended; owners make theirs again."""
    again = [one for one in view.pods if one.key in keys and one.controlled]
    fresh = [
        replace(
            one, uid=f"{one.uid}'", node="", gated=True, running=False, terminating=False, evicted_for="", capacity="",
            created=int(NOW) + created,
        )
        for one in again
    ]  # fmt: skip
    rest = without(view, keys)
    return replace(rest, pods=(*rest.pods, *fresh))


@given(st.randoms(use_true_random=True))
@settings(max_examples=100, deadline=None)
def test_the_order_in_which_the_view_is_written_does_not_matter(chance):
    view = random_teams(chance, pods=14)
    shuffled = [list(part) for part in (view.pods, view.nodes, view.quotas)]
    for part in shuffled:
        chance.shuffle(part)
    pods, nodes, quotas = (tuple(part) for part in shuffled)
    assert settle(replace(view, pods=pods, nodes=nodes, quotas=quotas)) == settle(view)


@given(st.randoms(use_true_random=True))
@settings(max_examples=200, deadline=None)
def test_the_victims_of_a_claimant_are_legal_enough_and_none_too_many(chance):
    """Against brute force over all sets of pods: who can be helped is helped, by a set of which nobody could stay."""
    view = random_teams(chance)
    for claimant in [one for one in view.pods if one.gated]:
        alone = only_waiting(view, claimant.key)
        decision = settle(alone)
        gone = victims(decision)
        if fits(alone, claimant, set()):
            assert (gone, [release.pod for release in decision.ungate]) == ([], [claimant.key])
            continue
        if gone:
            assert legal(alone, claimant, gone)
            assert fits(alone, claimant, set(gone))
            for stays in gone:
                rest = [key for key in gone if key != stays]
                assert not (legal(alone, claimant, rest) and fits(alone, claimant, set(rest)))
        else:
            for count in range(1, 4):
                for some in combinations([one.key for one in alone.pods if one.node], count):
                    assert not (legal(alone, claimant, some) and fits(alone, claimant, set(some)))


@given(st.randoms(use_true_random=True))
@settings(max_examples=100, deadline=None)
def test_a_label_says_whether_a_pod_is_beyond_min_by_age(chance):
    view = random_teams(chance)
    view = without(view, {one.key for one in view.pods if not one.node})
    plain = with_pods(view, lambda one: replace(one, capacity=""))
    assert relabelled(plain, settle(plain)) == view
