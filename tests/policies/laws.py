"""The laws of quota (section 4): what must be true of every decision, whatever has happened before it.

Each is looked at against figures reckoned by hand (books.py) or against brute force (oracle.py).
"""

import random
from collections import Counter

from msgspec.structs import replace

from policies import names
from policies.settle import settle
from tests.policies.books import Books, cost, size
from tests.policies.oracle import Oracle


def hold(view, decision):
    """Assert what every decision must keep."""
    no_release_goes_beyond_quota(view, decision)
    victims_are_taken_by_the_rules(view, decision)
    labels_are_true(view, decision)
    statuses_are_true(view, decision)


def no_release_goes_beyond_quota(view, decision):
    """Q05: neither used above max nor the sum of used above the sum of mins; who may not be evicted borrows nothing."""
    books, pods = Books(view), by_key(view)
    for release in decision.ungate:
        pod = pods[release.pod]
        assert pod.gated, f"{pod.key} is released twice"
        assert not pod.held, f"{pod.key} is released though somebody else holds it"
        assert pod.namespace not in books.waits, f"{pod.key} is released though its quota is faulty"
        if books.of(pod):
            assert books.lacks(pod) == (set(), set()), f"{pod.key} is released beyond quota"
            books.count(pod)


def victims_are_taken_by_the_rules(view, decision):
    """Each is borrowed from a quota that is above min just before, or of a lower priority; and budgets allow it.

    What is granted in the same decision to those who stand before a claimant is not known here, so its quota is taken to
    use the least that it may have used; laws of one alone are exact.
    """
    books, least, pods = Books(view), Books(view), by_key(view)
    for key in (*least.going, *least.orphans):
        least.count(pods[key], -1)
    labels, spent = books.labels(), Counter()
    for evict in decision.evict:
        victim = pods[evict.pod]
        assert not victim.terminating, f"{victim.key} is evicted though it is ending"
        assert victim.refused_until <= view.now, f"{victim.key} is evicted though its eviction was refused a moment ago"
        if not evict.claimant:
            assert (victim.node, victim.gated, victim.controlled) == ("", False, True), f"{victim.key} goes for nobody"
            assert victim.unschedulable_since <= view.now - 30, f"{victim.key} goes for nobody"
            continue
        claimant = pods[evict.claimant]
        assert victim.node, f"{victim.key} is evicted though it is bound nowhere"
        assert not victim.non_preemptible, f"{victim.key} is evicted though it may not be"
        covering = [budget for budget in view.budgets if budget.covers(victim.namespace, victim.labels)]
        spent.update(budget.key for budget in covering)
        assert len(covering) <= 1, f"{victim.key} is evicted under two budgets"
        assert all(spent[budget.key] <= budget.allowed for budget in covering), f"{victim.key}: budget used up"
        quota, own = books.of(victim), books.of(claimant)
        if quota is own:
            assert claimant.preempts, f"{victim.key} goes for {claimant.key}, which displaces nobody"
            assert victim.priority < claimant.priority, f"{victim.key} goes for {claimant.key} of no higher priority"
        else:
            assert labels[victim.key] == names.OVER_QUOTA, f"{victim.key} is evicted within min"
            assert any(
                books.used[quota.title][name] > quota.min[name]
                and least.used[own.title][name] + amount - own.min[name] <= least.guaranteed(own, name)
                for name, amount in cost(claimant).items()
                if name in quota.min and name in own.min and cost(victim)[name]
            ), f"{victim.key} goes for {claimant.key} without a rule"
        least.count(victim, -1)
        books.count(victim, -1)
    assert len({evict.pod for evict in decision.evict}) == len(decision.evict), "somebody is evicted twice"


def labels_are_true(view, decision):
    """Q13, Q14: over-quota is who is beyond min by age, when this decision has been carried out."""
    books, pods = Books(view), by_key(view)
    released = {release.pod: release.capacity for release in decision.ungate if books.of(pods[release.pod])}
    books.members += [pods[key] for key in released]
    written = released | {relabel.pod: relabel.capacity for relabel in decision.relabel}
    for key, label in books.labels().items():
        if not pods[key].terminating:
            assert written.get(key, pods[key].capacity) == label, f"{key} is {label}"
    for relabel in decision.relabel:
        assert relabel.capacity != pods[relabel.pod].capacity, f"{relabel.pod} is labelled {relabel.capacity} already"


def statuses_are_true(view, decision):
    """Used is counted from the pods; no more is lent than borrowed, nor more borrowed than lent but for what nobody owns."""
    books, pods = Books(view), by_key(view)
    books.members += [pods[release.pod] for release in decision.ungate if books.of(pods[release.pod])]
    shown = books.shown()
    borrowed, lent, unused = Counter(), Counter(), Counter()
    for status in decision.quotas:
        title = f"{status.kind} {status.namespace}/{status.name}"
        assert status.used == shown.get(title, {}), f"{title} uses {shown.get(title)}"
        for name, least in status.min.items() if title in shown else ():
            borrowed[name] += status.borrowed.get(name, 0)
            unused[name] += max(0, least - status.used[name])
            assert status.borrowed.get(name, 0) == max(0, status.used[name] - least)
            assert status.lent.get(name, 0) <= max(0, least - status.used[name])
        lent.update(status.lent)
    assert all(lent[name] == min(borrowed[name], unused[name]) for name in {*borrowed, *lent})


def order_does_not_matter(view, decision, seed):
    """The same decision whatever the order in which the view is written."""
    parts = {field: list(getattr(view, field)) for field in ("nodes", "pods", "quotas", "budgets")}
    for part in parts.values():
        random.Random(seed).shuffle(part)
    again = settle(replace(view, **{field: tuple(part) for field, part in parts.items()}))
    assert again == decision, "the order of the view matters"


def one_alone_is_served_as_by_brute_force(view, claimant):
    """Who can be helped is helped, by a set of victims that the rules allow and of which nobody could stay."""
    oracle = Oracle(view, claimant)
    if not (oracle.governed or oracle.waits):
        return
    decision = settle(view)
    gone = [evict.pod for evict in decision.evict]
    released = [release.pod for release in decision.ungate]
    cut = decision.layouts or decision.cuts or any(node.in_flight for node in view.nodes)
    if oracle.waits:
        assert (gone, released) == ([], []), f"{claimant.key} waits for its quota to be put right"
    elif oracle.fits_now:
        assert gone == [], f"{gone} for {claimant.key}, which fits as it is"
        # Where pods are leaving the plan may count on what they leave, rather than on a board yet to be cut or another node.
        assert released == [claimant.key] or cut or oracle.going, f"{claimant.key} fits as it is"
    elif oracle.fits():
        assert (gone, released) == ([], []), f"{claimant.key} fits when those have gone that go for it"
    elif gone:
        assert oracle.helps(gone) == (True, True), f"{gone} for {claimant.key}: (helps, allowed)"
        for stays in gone:
            rest = [key for key in gone if key != stays]
            assert oracle.helps(rest) != (True, True), f"{stays} goes for {claimant.key} without need"
    else:
        found = oracle.any_set()
        assert found is None, f"{claimant.key} waits, though {found} could go for it"


def at_rest(view, decision, claimants):
    """Nothing is left to do, nobody went in vain, and the first who waits cannot be helped.

    `claimants`: uids of those for whom somebody went while nothing came from outside.
    """
    assert not decision.ungate + decision.relabel + decision.evict + decision.layouts + decision.cuts
    stuck = [pod for pod in view.pods if pod.released]
    waiting = [pod for pod in view.pods if pod.gated and not pod.held]
    if stuck:  # their nodes went away after they were released: what else could have been theirs is kept for them
        return
    vain = [pod.key for pod in waiting if pod.uid in claimants]
    assert not vain, f"pods went in vain for {vain}"
    books = Books(view)
    waiting = [pod for pod in waiting if pod.namespace not in books.waits]
    first = min(waiting, key=lambda pod: (books.rank(pod, Counter()), *in_queue(pod)), default=None)
    if first is not None and books.of(first):
        oracle = Oracle(view, first)
        assert not oracle.fits(), f"{first.key} waits, though it fits"
        assert oracle.any_set() is None, (
            f"{first.key} is the first and waits, though {oracle.any_set()} could go for it"
        )


def in_queue(pod):
    return -pod.priority, pod.created, *size(pod), pod.namespace, pod.name


def by_key(view):
    return {pod.key: pod for pod in view.pods}
