"""Reclaim by brute force: every set of victims that the rules of section 4 allow for one waiting pod, one after another.

Only for a view in which that pod waits alone and nobody is between gate and node: then nothing but the rules decides.
"""

from collections import Counter
from itertools import combinations_with_replacement

from policies import names
from policies.placement import arrange, profile_of
from tests.policies.books import GPU, MEMORY, Books, cost

SLICES = "slices"
MOST = 3  # victims in a set that is looked for


class Floor:
    """What pods leave on the nodes that can be used.

    Attributes:
        room: what each node (by name) has left besides slices.
    """

    def __init__(self, view):
        self.nodes = {node.name: node for node in view.nodes if node.ready and not node.cordoned}
        self.room = {name: Counter(node.allocatable) for name, node in self.nodes.items()}
        self._gone = set()
        self._cut = {}
        for pod in view.pods:
            if pod.holds:
                self._take(pod, -1)

    def leave(self, pod):
        self._gone.add(pod.key)
        self._take(pod, 1)

    def come_back(self, pod):
        self._gone.remove(pod.key)
        self._take(pod, -1)

    def fits(self, pod):
        return any(not self.lacks(pod, name) for name in self.nodes if self._admits(pod, name))

    def lacks(self, pod, name):
        """Return what a node lacks for a pod: resources, or SLICES; nothing where the pod may not go."""
        if name not in self.nodes or not self._admits(pod, name):
            return set()
        room = self.room[name]
        wanted = {key: amount for key, amount in pod.request.items() if not _is_slice(key)} | {"pods": 1000}
        short = {key for key, amount in wanted.items() if room[key] < amount}
        return short if self._has_slices(pod, name) else short | {SLICES}

    def _admits(self, pod, name):
        return pod.constraints.selects(name, self.nodes[name].labels)

    def _has_slices(self, pod, name):
        """Return whether the boards of a node could be cut into what a pod needs beside the slices that others hold."""
        boards = [
            (board.model, board.mode, tuple(s.placement for s in board.slices if s.used and s.pod not in self._gone))
            for board in self.nodes[name].boards
        ]
        for resource, count in pod.slices:
            for where in combinations_with_replacement(range(len(boards)), count):
                share = Counter(where)
                if all(arrange(*boards[place], (profile_of(resource),) * n) for place, n in share.items()):
                    break
            else:
                return False
        return True

    def _take(self, pod, sign):
        if pod.node in self.room:
            for key, amount in pod.request.items():
                self.room[pod.node][key] += sign * amount
            self.room[pod.node]["pods"] += sign * 1000


class Oracle:
    """What may be done for one waiting pod."""

    def __init__(self, view, claimant):
        self.claimant, self._budgets, self._now = claimant, view.budgets, view.now
        self._pods = [pod for pod in view.pods if pod.node and not pod.finished]
        self._by_key = {pod.key: pod for pod in self._pods}
        self._books, self._floor = Books(view), Floor(view)
        self._labels = self._books.labels()
        self._away = {node.name for node in view.nodes if not node.ready}
        self.waits = claimant.namespace in self._books.waits
        self.governed = self._books.of(claimant) is not None
        if not self.governed:
            return
        self.fits_now = self.fits()
        self.going = {*self._books.going, *self._books.orphans}
        for key in self.going:  # who goes already is as good as gone
            self._go(self._by_key[key])

    def fits(self):
        """Return whether the claimant fits, in quota and on a node."""
        return not any(self._books.lacks(self.claimant)) and self._floor.fits(self.claimant)

    def helps(self, keys):
        """Return whether the claimant fits when these have gone, and whether they may go one after another."""
        gone, allowed = [], True
        for key in keys:
            pod = self._by_key[key]
            allowed = allowed and self._may_go(pod, gone)
            self._go(pod)
            gone.append(pod)
        fits = self.fits()
        for pod in reversed(gone):
            self._stay(pod)
        return fits, allowed

    def any_set(self):
        """Return a set of at most MOST victims that helps, in an order in which they may go; None if there is none."""
        seen = set()

        def look(gone):
            state = frozenset(pod.key for pod in gone)
            if state in seen:
                return None
            seen.add(state)
            if self.fits():
                return [pod.key for pod in gone]
            for pod in self._pods if len(gone) < MOST else ():
                if pod.key not in state and self._may_go(pod, gone):
                    self._go(pod)
                    found = look([*gone, pod])
                    self._stay(pod)
                    if found is not None:
                        return found
            return None

        return look([])

    def _go(self, pod):
        self._floor.leave(pod)
        self._books.count(pod, -1)

    def _stay(self, pod):
        self._floor.come_back(pod)
        self._books.count(pod)

    def _may_go(self, pod, gone):
        """Return whether rules 1 to 3 and the budgets let a pod go when others have."""
        books, claimant, quota, own = self._books, self.claimant, self._books.of(pod), self._books.of(self.claimant)
        if quota is None or pod.terminating or pod.non_preemptible or pod.refused_until > self._now:
            return False
        if pod.node in self._away:
            return False
        covering = [budget for budget in self._budgets if budget.covers(pod.namespace, pod.labels)]
        if len(covering) > 1 or any(
            sum(budget.covers(other.namespace, other.labels) for other in gone) >= budget.allowed for budget in covering
        ):
            return False
        freed = self._freed(pod)
        if quota is own:
            less = Counter(cost(pod))
            overtakes = books.rank(claimant, less) > books.rank(pod, less)
            return bool(freed) and claimant.preempts and pod.priority < claimant.priority and not overtakes
        over = self._labels[pod.key] == names.OVER_QUOTA
        entitled = all(self._door(name) for name in books.lacks(claimant)[1])
        above = {name: self._is_above_bound(quota, name) for name in freed & cost(pod).keys()}
        owed = any(self._door(name) == 2 and name in quota.min and not above[name] for name in above)
        return over and entitled and any(above.values()) and not owed

    def _door(self, name):
        """Return by which rule (1 or 2) the claimant may displace pods of others in a dimension; 0: by none."""
        books, own = self._books, self._books.of(self.claimant)
        if name not in own.min:
            return 0
        above = books.used[own.title][name] + cost(self.claimant)[name] - own.min[name]
        return 1 if above <= 0 else 2 if above <= books.guaranteed(own, name) else 0

    def _is_above_bound(self, quota, name):
        """Return whether rule 1 or 2 holds in a dimension."""
        rule = self._door(name) if name in quota.min else 0
        kept = self._books.guaranteed(quota, name) if rule == 2 else 0
        return bool(rule) and self._books.used[quota.title][name] > quota.min[name] + kept

    def _freed(self, pod):
        """Return the dimensions in which a pod would free something that the claimant lacks."""
        own, shared = self._books.lacks(self.claimant)
        quota, asks = self._books.of(pod), cost(pod)
        freed = {name for name in shared if asks[name] and name in quota.min}
        if quota is self._books.of(self.claimant):
            freed |= {name for name in own if asks[name]}
        short = set() if self._floor.fits(self.claimant) else self._floor.lacks(self.claimant, pod.node)
        gpus = {name for name in cost(self.claimant) if name in (GPU, MEMORY) or _is_slice(name)}
        by_what = {name: gpus if name == SLICES or name.startswith(names.NVIDIA_PREFIX) else {name} for name in short}
        wanted = {name for names_ in by_what.values() for name in names_ if name in self._books.of(self.claimant).min}
        if quota is self._books.of(self.claimant) or all(map(self._door, wanted)):
            for name, meant in by_what.items():
                if name == "pods" or (pod.slices if name == SLICES else pod.request.get(name)):
                    freed |= meant
        return freed


def _is_slice(name):
    return name.startswith((names.MIG_RESOURCE, names.MPS_RESOURCE))
