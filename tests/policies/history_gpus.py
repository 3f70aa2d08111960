"""Histories of whole GPUs: nodes on which another plugin announces them, pods that ask for GPUs, CPU and memory."""

from msgspec.structs import replace

from policies import names
from tests.policies.history import GIB, History
from tests.policies.teams import left, machine, pod


class WholeGpus(History):
    """A cluster of whole GPUs."""

    dimensions = (
        (names.GPU, 1000, (0, 1, 2, 3, 4)),
        (names.GPU_MEMORY_QUOTA, 1000, (0, 32, 64, 96)),
        ("cpu", 1000, (0, 1, 2, 4)),
        ("memory", 1000 * GIB, (0, 1, 2, 4)),
    )

    def some_nodes(self):
        return [
            machine(f"n{number}", self.chance.randint(2, 6), cpu=self.chance.choice((4, 16, 16)))
            for number in range(self.chance.randint(1, 3))
        ]

    def some_pod(self, *, may_run):
        made = pod(
            self.some_key(may_run=may_run),
            self.chance.choice((0, 1, 1, 1, 1, 1, 2, 3)),
            cpu=self.chance.choice((0, 0, 1, 2)),
            **self.some_fields(),
        )
        if self.chance.randrange(3) == 0:
            made = replace(made, request={**made.request, "memory": self.chance.choice((1, 2)) * 1000 * GIB})
        runs = may_run and self.chance.randrange(10) < 9
        governed = any(made.namespace in quota.namespaces for quota in self.view.quotas)
        roomy = self.places(self.view, made)
        if (runs or not governed) and roomy:  # who is not governed comes to no gate
            return replace(made, node=self.chance.choice(roomy), gated=False, held=False, running=True)
        return replace(made, gated=governed, held=made.held and governed)

    def places(self, view, one):
        """Return the nodes on which the scheduler could bind a pod."""
        return [node.name for node in view.nodes if fits(view, node, one)]


def fits(view, node, one):
    room = left(view, node)
    return (
        node.ready
        and not node.cordoned
        and one.constraints.selects(node.name, node.labels)
        and all(room[name] >= amount for name, amount in {**one.request, "pods": 1000}.items())
    )
