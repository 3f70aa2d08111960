"""Quota reckoned by hand: section 4 once more in plain arithmetic, from the pods of a view alone, for laws to compare with.

Amounts are thousandths, as everywhere. Nothing here asks the code that decides.
"""

from collections import Counter

from policies import names

GPU, MEMORY = names.GPU, names.GPU_MEMORY_QUOTA
WHOLE_GB = 32
NEVER = 1 << 60
SLICES = {  # what one costs of a GPU on the only kind of board of its cluster, in thousandths rounded up, and its GB
    "nvidia.com/mig-1g.6gb": (250, 6),
    "nvidia.com/mig-2g.12gb": (500, 12),
    "nvidia.com/mig-4g.24gb": (1000, 24),
    "nvidia.com/mig-1g.5gb": (125, 5),
    "nvidia.com/mig-2g.10gb": (250, 10),
    "nvidia.com/mig-3g.20gb": (500, 20),
    "nvidia.com/mig-4g.20gb": (500, 20),
    "nvidia.com/gpu-8gb": (334, 8),
    "nvidia.com/gpu-12gb": (500, 12),
    "nvidia.com/gpu-24gb": (1000, 24),
}


def cost(pod):
    """Return what a pod costs of each resource."""
    found = Counter(pod.request)
    found[MEMORY] += pod.request.get(GPU, 0) * WHOLE_GB
    for resource, count in pod.slices:
        share, gigabytes = SLICES[resource]
        found[GPU] += share * count
        found[MEMORY] += gigabytes * 1000 * count
    return +found


def counted(pod):
    """Return whether a quota counts a pod: bound and not ended, or let through the gate."""
    return not pod.finished and bool(pod.node or not (pod.gated or pod.terminating))


def in_force(quotas):
    """Return which quota governs each namespace, and which namespaces wait because of a fault."""
    governs, faulty = {}, set()
    for quota in sorted(quotas, key=lambda each: (each.kind != names.COMPOSITE_QUOTA, each.created, each.title)):
        if quota.faults:
            faulty.update(quota.namespaces)
        elif not any(space in governs for space in quota.namespaces):
            governs |= dict.fromkeys(quota.namespaces, quota)
        elif quota.kind == names.COMPOSITE_QUOTA or governs[quota.namespace].kind == quota.kind:
            faulty.update(quota.namespaces)  # two that want the same: the younger is in conflict
    return governs, faulty - governs.keys()


class Books:
    """Who uses what. Pods may be taken out and put back, to see what would be without them.

    Attributes:
        governs: the quota in force of each namespace.
        waits: namespaces whose pods wait because of a fault of the quota that claims them.
        going: the pods that are on their way out for a waiting claimant, with that claimant.
        orphans: those on their way out for a claimant that waits no longer.
        mins: what all quotas own together of each resource.
        used: what each quota (by title) uses of each resource; who is going counts for its quota no longer.
        total: the same for all together, of a resource by those who own some of it; who is going still counts.
    """

    def __init__(self, view):
        self.governs, self.waits = in_force(view.quotas)
        quotas = {quota.title: quota for quota in self.governs.values()}
        self.mins = sum((Counter(quota.min) for quota in quotas.values()), Counter())
        self.used, self.total = {title: Counter() for title in quotas}, Counter()
        self._quotas = quotas
        claimants = {pod.key: pod for pod in view.pods if pod.gated and pod.namespace in self.governs}
        self.going = {
            pod.key: claimants[pod.evicted_for]
            for pod in view.pods
            if pod.terminating and pod.node and not pod.finished and pod.evicted_for in claimants
        }
        self.orphans = {
            pod.key
            for pod in view.pods
            if pod.terminating and pod.node and not pod.finished and pod.evicted_for and pod.key not in self.going
        }
        self.members = [pod for pod in view.pods if counted(pod) and pod.namespace in self.governs]
        for pod in self.members:
            self.count(pod)

    def of(self, pod):
        return self.governs.get(pod.namespace)

    def count(self, pod, sign=1):
        """Count a pod for its quota, if it has one, or (`sign` -1) no longer."""
        if (quota := self.of(pod)) is None:
            return
        own = pod.key not in self.going or self.governs[self.going[pod.key].namespace] is quota
        for name, amount in cost(pod).items():
            self.used[quota.title][name] += sign * amount if own else 0
            self.total[name] += sign * amount if name in quota.min else 0

    def guaranteed(self, quota, name):
        """Return the quota's share of what stands unused in all mins."""
        unused = sum(
            max(0, each.min[name] - self.used[title][name]) for title, each in self._quotas.items() if name in each.min
        )
        return quota.min[name] * unused // self.mins[name] if self.mins[name] else 0

    def lacks(self, pod):
        """Return the dimensions in which a pod's own bounds keep it out, and those in which the sum of all mins does."""
        quota, asks = self.of(pod), cost(pod)
        with_it = {name: self.used[quota.title][name] + amount for name, amount in asks.items()}
        own = {name for name in asks if with_it[name] > quota.max.get(name, NEVER)}
        if pod.non_preemptible:
            own |= {name for name in asks if with_it[name] > quota.min.get(name, NEVER)}
        return own, {name for name in asks if name in quota.min and self.total[name] + asks[name] > self.mins[name]}

    def rank(self, pod, gone):
        """Return the class of a pod when so much less is used: 0 within min, 1 within what is guaranteed, 2 beyond."""
        quota, found = self.of(pod), 0
        for name, amount in cost(pod).items():
            if quota and name in quota.min:
                above = self.used[quota.title][name] - gone[name] + amount - quota.min[name]
                found = max(found, 0 if above <= 0 else 1 if above <= self.guaranteed(quota, name) else 2)
        return found

    def labels(self):
        """Return the capacity label of each pod that a quota counts as its own, by age and then as in the queue."""
        sums, labels = {title: Counter() for title in self.used}, {}
        for pod in sorted(self.members, key=lambda pod: (pod.created, -pod.priority, *size(pod), pod.key)):
            if pod.key not in self.going:
                quota, asks = self.of(pod), cost(pod)
                sums[quota.title].update(asks)
                over = any(sums[quota.title][name] > quota.min.get(name, NEVER) for name in asks)
                labels[pod.key] = names.OVER_QUOTA if over else names.IN_QUOTA
        return labels

    def shown(self):
        """Return what the status of each quota says: victims on their way out count for their claimant's."""
        shown = {title: Counter() for title in self.used}
        for pod in self.members:
            shown[self.of(self.going.get(pod.key, pod)).title].update(cost(pod))
        return {
            title: {name: shown[title][name] for name in {*quota.min, *quota.max}}
            for title, quota in self._quotas.items()
        }


def size(pod):
    """Return by what a request is smaller than another: GB of GPU memory, compute slices, CPU, memory."""
    asks = cost(pod)
    compute = sum(
        int(name.removeprefix(names.MIG_RESOURCE).partition("g.")[0]) * count
        for name, count in pod.slices
        if name.startswith(names.MIG_RESOURCE)
    )
    return asks[MEMORY], compute, asks["cpu"], asks["memory"]
