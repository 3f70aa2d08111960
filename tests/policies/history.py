"""Histories of teams that come, borrow, claim, end and come back, while nodes, quotas, budgets and the clock change.

A history is a list of happenings, each with a seed of its own for its details, so that one can be left out without
changing the others: hypothesis finds the few that matter. Whenever the cluster is settled, the decision is held against
the laws of section 4 (laws.py), and sometimes only a part of it is written down: leaders die.
"""

import random
from collections import Counter

from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.governing import QuotaView
from policies.settle import settle
from policies.view import View
from tests.policies import laws
from tests.policies.teams import budget, carried_out, with_pods, without

HISTORIES = 1000  # of each kind, in a run of the tests
QUOTAS, PODS, MIDDLE = 4, 12, 20  # happenings of a history, in which nothing happens now and then
ROUNDS = 100  # until all has come to rest, at most
SEEDS = 1 << 32
NOTHING = "nothing"
NOW = 10_000_000.0
HOUR = 3600.0
SPACES = ("a", "b", "c", "d")
AT_FIRST, LATER = "aaaabcd", "abbccd"  # by namespace: some borrow what others claim; the last has no quota mostly
QUOTA_NAMES = ("a", "a", "b", "b", "c", "c", "d", "ab", "bc")  # of one namespace, or of two together
APPS = ("x", "y")
GIB = 1 << 30


class History:
    """A cluster and what becomes of it.

    Attributes:
        view: the cluster as it is now.
        told: what has happened, one line each, for whoever has to find out why a law does not hold.
    """

    def __init__(self, seed):
        self.chance, self.told, self._number = random.Random(seed), [], 0
        self.shaken = False  # whether what is promised may be lost, by no fault of whoever promised it
        self.view = View(now=NOW, nodes=tuple(self.some_nodes()))

    @classmethod
    def play(cls, seed, happenings):
        """Let things happen, and then nothing more from outside until all has come to rest."""
        history = cls(seed)
        try:
            for what, details in happenings:
                history.happen(what, details)
            history.come_to_rest()
        except Exception as error:
            error.add_note("\n".join(["the history:", *history.told]))
            raise

    @classmethod
    def whats(cls):
        """Return what may happen, one after another: quotas are written, pods settle in, and then anything."""
        return [*[("rewrite_a_quota",)] * QUOTAS, *[(NOTHING, "settle_in", "settle_in")] * PODS, *[cls.events] * MIDDLE]

    @classmethod
    def some(cls, chance):
        """Return a seed and happenings of that seed's cluster."""
        return chance.randrange(SEEDS), [(chance.choice(what), chance.randrange(SEEDS)) for what in cls.whats()]

    @classmethod
    def strategy(cls):
        """Return the same as a strategy of hypothesis, which makes nothing of what happens where that is as bad."""
        seeds = st.integers(0, SEEDS - 1)
        return st.tuples(seeds, st.tuples(*(st.tuples(st.sampled_from(what), seeds) for what in cls.whats())))

    def happen(self, what, details):
        """Let one thing happen. Whatever it is, all that is released finds a place, unless that has been shaken."""
        if what == NOTHING:
            return
        self.told.append(what)
        self.chance = random.Random(details)
        getattr(self, what)()
        self.shaken = self.shaken or self.has_strangers()
        if not self.shaken:
            stuck = self.landed(self.view)[1]
            assert not stuck, f"released, but without a place: {stuck}"

    def has_strangers(self):
        """Return whether somebody is on the way to whom nobody has promised anything: it takes what is others'."""
        claimed = {space for quota in self.view.quotas for space in quota.namespaces}
        return any(pod.released and not (pod.slices or pod.namespace in claimed) for pod in self.view.pods)

    events = (
        NOTHING, *("settle",) * 6, "bind", "bind", "end", "leave", "leave", "arrive", "arrive", "arrive",
        "delete_a_pod", "lift_a_gate", "rewrite_a_quota", "rewrite_a_budget", "change_a_node", "move_the_clock",
        "refuse_an_eviction",
    )  # fmt: skip
    """What may happen, as often as it stands here."""

    # The leader -------------------------------------------------------------------------------------------------------

    def settle(self):
        """Decide, and write all of it down, or, where the leader dies, a part."""
        decision = self.decide()
        if self.chance.randrange(5) == 0:
            some = {
                field: tuple(item for item in getattr(decision, field) if self.chance.randrange(2))
                for field in ("ungate", "relabel", "evict", "layouts", "cuts", "waiting")
            }
            decision = replace(decision, **some)
            self.told.append(f"  of that is written: {said(decision)}")
        self.write(decision)

    def decide(self):
        """Return the decision, once it has been held against the laws."""
        decision = settle(self.view)
        self.told.append(f"  {said(decision)}")
        laws.hold(self.view, decision)
        if self.chance.randrange(3) == 0:
            laws.order_does_not_matter(self.view, decision, self.chance.randrange(1 << 16))
        waiting = [pod for pod in self.view.pods if pod.gated and not (pod.held or pod.terminating)]
        claimants = [pod for pod in waiting if any(evict.claimant == pod.key for evict in decision.evict)]
        if claimants or (waiting and self.chance.randrange(2)):
            laws.one_alone_is_served_as_by_brute_force(*self.alone(self.chance.choice(claimants or waiting)))
        return decision

    def write(self, decision):
        self.view = carried_out(self.view, decision)
        self.count_budgets()

    def alone(self, claimant):
        """Return the view in which one pod waits and nobody is between gate and node, and that pod."""
        view = self.calm(self.landed(self.view)[0])
        others = {pod.key for pod in view.pods if not pod.node and pod.key != claimant.key}
        claimant = replace(claimant, waiting=("", ""))
        return with_pods(without(view, others), lambda one: claimant if one.key == claimant.key else one), claimant

    def calm(self, view):
        """Return the view when agents have done and told all that they have to."""
        return view

    # Scheduler, kubelets and owners -----------------------------------------------------------------------------------

    def bind(self):
        """The scheduler binds all that is released, in any order and on any node; it says so where there is none."""
        self.view, stuck = self.landed(self.view)
        self.shaken = bool(stuck)
        self.view = with_pods(
            self.view, lambda one: replace(one, unschedulable_since=int(self.view.now)) if one.key in stuck else one
        )

    def landed(self, view):
        """Return the view when all that is released has been bound, and who has found no node."""
        keys, stuck = [pod.key for pod in view.pods if pod.released], set()
        for key in shuffled(self.chance, keys):
            one = next(pod for pod in view.pods if pod.key == key)
            nodes = self.places(view, one)
            if nodes:
                view = self.bound(view, key, self.chance.choice(nodes))
            else:
                stuck.add(key)
        return view, stuck

    def bound(self, view, key, node):
        return with_pods(
            view,
            lambda one: replace(one, node=node, running=True, unschedulable_since=None) if one.key == key else one,
        )

    def end(self):
        """Some pods have done their work."""
        done = {pod.key for pod in self.view.pods if pod.running and self.chance.randrange(8) == 0}
        self.view = self.without(done)

    def leave(self):
        """Some of the pods that are ending have ended; some never do."""
        self.ended({pod.key for pod in self.view.pods if pod.terminating and self.chance.randrange(2)})

    def ended(self, keys):
        """Pods have gone; owners make theirs again, behind the gate, under another name."""
        again = [pod for pod in self.view.pods if pod.key in keys and pod.controlled]
        self.view = self.without(keys)
        for old in again:
            self.add(self.reborn(old))

    def reborn(self, old):
        name = f"{old.name.partition('-')[0]}-{self.next()}"
        governed = any(old.namespace in quota.namespaces for quota in self.view.quotas)
        return replace(
            old, name=name, uid=f"uid of {name}", node="", gated=governed or bool(old.slices), running=False,
            terminating=False, evicted_for="", capacity="", refused_until=0.0, released_at=0, created=int(self.view.now),
            constraints=replace(old.constraints, terms=None), waiting=("", ""), finished=False,
            unschedulable_since=None,
        )  # fmt: skip

    def without(self, keys):
        return without(self.view, keys)

    # People -----------------------------------------------------------------------------------------------------------

    def settle_in(self):
        """A pod that is there from the beginning: most of these run."""
        self.add(self.some_pod(may_run=True))

    def arrive(self):
        self.add(self.some_pod(may_run=False))

    def add(self, one):
        self.told.append(f"  {shown(one)}")
        self.view = replace(self.view, pods=(*self.view.pods, one))
        if not one.gated:  # no gate has held it, so nothing is promised to it, and it takes what may be others'
            self.shaken = any(pod.released for pod in self.view.pods)

    def delete_a_pod(self):
        """Somebody deletes a pod: one that waits is gone, one that runs ends when it likes."""
        if self.view.pods:
            gone = self.chance.choice(self.view.pods)
            self.told.append(f"  {gone.key}")
            self.view = with_pods(
                self.view, lambda one: replace(one, terminating=True) if one.key == gone.key else one
            ) if gone.node else self.without({gone.key})  # fmt: skip

    def lift_a_gate(self):
        """Whoever else held a pod holds it no longer."""
        held = next((pod.key for pod in self.view.pods if pod.held), None)
        self.view = with_pods(self.view, lambda one: replace(one, held=one.held and one.key != held))

    def rewrite_a_quota(self):
        """A quota is created, changed or deleted: of one namespace, of two together, now and then with a fault."""
        name = self.chance.choice(QUOTA_NAMES)
        others = [quota for quota in self.view.quotas if quota.name != name]
        if len(others) < len(self.view.quotas) and self.chance.randrange(3) == 0:
            self.told.append(f"  no quota {name}")
        else:
            others.append(self.some_quota(name))
            self.told.append(f"  {name}: min {others[-1].min} max {others[-1].max} {' '.join(others[-1].faults)}")
        self.view = replace(self.view, quotas=tuple(others))

    def rewrite_a_budget(self):
        """A budget is created, changed or deleted."""
        space, app, allowed = self.chance.choice(SPACES), self.chance.choice(APPS), self.chance.randint(0, 2)
        labels = {} if self.chance.randrange(3) == 0 else {"app": app}
        others = [each for each in self.view.budgets if (each.namespace, each.selector.match_labels) != (space, labels)]
        if self.chance.randrange(3):
            others.append(replace(budget(space, allowed, **labels), name=f"budget-{self.next()}"))
        self.view = replace(self.view, budgets=tuple(others))

    def count_budgets(self):
        """Whom a budget let go counts against it."""
        ends = Counter()
        for one in self.view.pods:
            if one.terminating and one.evicted_for and not one.finished:
                ends.update(each.key for each in self.view.budgets if each.covers(one.namespace, one.labels))
        budgets = tuple(replace(each, allowed=max(0, each.allowed - ends[each.key])) for each in self.view.budgets)
        self.view = replace(self.view, budgets=budgets)

    def refuse_an_eviction(self):
        """The API server refuses one: the pod is left alone for a minute."""
        running = [pod.key for pod in self.view.pods if pod.running]
        if running:
            key, until = self.chance.choice(running), self.view.now + 60
            self.view = with_pods(self.view, lambda one: replace(one, refused_until=until) if one.key == key else one)

    # The world --------------------------------------------------------------------------------------------------------

    def change_a_node(self):
        """A node goes away, is cordoned, or comes back."""
        node = self.chance.choice(self.view.nodes)
        ready, cordoned = self.chance.choice(((True, False), (True, False), (False, False), (True, True)))
        self.told.append(f"  {node.name} ready {ready} cordoned {cordoned}")
        new = replace(node, ready=ready, cordoned=cordoned)
        self.shaken = self.shaken or any(pod.released for pod in self.view.pods)
        self.view = replace(self.view, nodes=tuple(new if one is node else one for one in self.view.nodes))

    def move_the_clock(self):
        """Time passes; now and then the clock jumps, forward or backward."""
        by = self.chance.choice((1.0, 31.0, 400.0, 5 * HOUR, -5 * HOUR))
        self.told.append(f"  by {by:+.0f} s")
        self.view = replace(self.view, now=self.view.now + by)

    def come_to_rest(self):
        """Nothing more happens but what follows: victims end, owners make them again. Decisions end, and nobody went in vain."""
        self.told.append("from now on nothing comes from outside")
        self.bind()
        self.view = replace(self.view, now=self.view.now + 60)  # the scheduler gives up those for whom it finds no node
        self.ended({pod.key for pod in self.view.pods if pod.terminating})
        disturbed, claimants = self.shaken, set()  # who was left without a place takes the first that comes free
        for _ in range(ROUNDS):
            decision = self.decide()
            claimants |= {evict.claimant_uid for evict in decision.evict}
            self.write(decision)
            disturbed = disturbed or self.has_strangers()
            self.go_on()
            leaving = {pod.key for pod in self.view.pods if pod.terminating}
            if idle(decision) and leaving:
                self.told.append("  victims end")
                self.ended(leaving)
            elif (
                idle(decision) and settle(self.view) == decision
            ):  # what was said has been written, and changes nothing
                laws.at_rest(self.view, decision, set() if disturbed else claimants)
                return
        raise AssertionError("decisions go on without end")

    def go_on(self):
        """What follows from a decision by itself."""
        self.view, _ = self.landed(self.view)

    # Chance -----------------------------------------------------------------------------------------------------------

    def next(self):
        self._number += 1
        return self._number

    def some_quota(self, name):
        return QuotaView(
            kind=names.COMPOSITE_QUOTA if len(name) > 1 else names.ELASTIC_QUOTA,
            namespace=name[0], name=name, namespaces=tuple(name), created=self.next(),
            faults=("spec.min: is more than spec.max",) if self.chance.randrange(20) == 0 else (),
            **dict(zip(("min", "max"), self.some_bounds(), strict=True)),
        )  # fmt: skip

    def some_bounds(self):
        """Return min and max of a few dimensions."""
        least, most = {}, {}
        for name, unit, choices in self.dimensions:
            if self.chance.randrange(4) == 0 or name == self.dimensions[0][0]:
                least[name] = self.chance.choice(choices) * unit
                if self.chance.randrange(3) == 0:
                    most[name] = least[name] + self.chance.choice(choices) * unit
            elif self.chance.randrange(12) == 0:
                most[name] = self.chance.choice(choices) * unit  # a cap on what it neither owns nor borrows
        return least, most

    def some_key(self, *, may_run):
        return f"{self.chance.choice(AT_FIRST if may_run else LATER)}/p{self.next()}"

    def some_fields(self):
        """Return what a pod may be besides what it asks for."""
        return {
            "created": int(self.view.now) - self.chance.choice((0, 10, 20, 400, 500)),
            "priority": self.chance.choice((0, 0, 0, 5)),
            "preempts": self.chance.randrange(5) > 0,
            "non_preemptible": self.chance.randrange(10) == 0,
            "controlled": self.chance.randrange(2) == 0,
            "held": self.chance.randrange(12) == 0,
            "labels": {"app": self.chance.choice(APPS)},
        }


def shuffled(chance, items):
    items = list(items)
    chance.shuffle(items)
    return items


def idle(decision):
    """Return whether there is nothing to do."""
    return not (decision.ungate or decision.relabel or decision.evict or decision.layouts or decision.cuts)


def said(decision):
    """Return a decision as one line."""
    parts = {
        "release": [item.pod for item in decision.ungate],
        "evict": [f"{item.pod} for {item.claimant}" for item in decision.evict],
        "relabel": [f"{item.pod} {item.capacity}" for item in decision.relabel],
        "cut": [item.node for item in (*decision.layouts, *decision.cuts)],
        "wait": [f"{item.pod} {item.reason}" for item in decision.waiting],
    }
    return "; ".join(f"{what} {', '.join(items)}" for what, items in parts.items() if items) or "nothing"


def shown(one):
    marks = ("gated", "held", "non_preemptible", "controlled", "preempts")
    words = [one.key, *(f"{n} {amount}" for n, amount in one.request.items()), one.node]
    words += [f"priority {one.priority}", f"created {one.created}", *(mark for mark in marks if getattr(one, mark))]
    return " ".join(words)
