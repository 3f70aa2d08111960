"""Histories of boards that are cut: pods ask for slices, and agents carry out orders and tell of what is used when they like."""

from msgspec.structs import replace

from policies import names
from policies.catalogue import by_product
from policies.constraints import Constraints
from policies.needs import is_slice
from policies.placement import arrange, resource_of
from policies.settle import settle
from policies.view import view_node
from tests.policies.cluster import agent_step, free, node, places, report, with_node, write
from tests.policies.history import MIDDLE, History
from tests.policies.teams import pod, relabelled
from tests.policies.test_settle_laws import KINDS


class Boards(History):
    """A cluster of boards of one kind."""

    events = (*History.events, *("agents",) * 4)
    dimensions = (
        (names.GPU_MEMORY_QUOTA, 1000, (0, 10, 20, 40, 60)),
        (names.GPU, 500, (0, 1, 2, 4)),
        ("cpu", 1000, (0, 1, 2, 4)),
    )

    # Agents -----------------------------------------------------------------------------------------------------------

    def agents(self):
        """An agent takes its next step."""
        name = self.chance.choice(self.view.nodes).name
        self.told.append(f"  {name}")
        self.view = agent_step(self.view, name)  # asserts that no slice in use is destroyed

    def write(self, decision):
        self.view = write(self.view, replace(decision, ungate=()))
        super().write(decision)

    def go_on(self):
        super().go_on()
        for one in self.view.nodes:
            self.view = agent_step(self.view, one.name)

    def calm(self, view):
        for one in view.nodes:
            view = with_node(view, replace(one, cut=one.spec_plan))
            view = report(agent_step(view, one.name), one.name)
        return view

    # Scheduler and kubelets -------------------------------------------------------------------------------------------

    places = staticmethod(places)

    def bound(self, view, key, node):
        view = super().bound(view, key, node)
        return report(view, node) if self.chance.randrange(2) else view

    def without(self, keys):
        nodes = {one.node for one in self.view.pods if one.key in keys and one.node}
        view = super().without(keys)
        for name in sorted(nodes):
            view = report(view, name) if self.chance.randrange(2) else view
        return view

    # Chance -----------------------------------------------------------------------------------------------------------

    def some_nodes(self):
        (product, mode), self.profiles = self.chance.choice(list(KINDS.items()))
        for number in range(self.chance.randint(1, 3)):
            placements = {}
            for board in range(self.chance.choice((1, 1, 2))):
                there = ()
                for _ in range(self.chance.randint(1, 6)):
                    found = arrange(by_product(product), mode, there, (self.chance.choice(self.profiles),))
                    there += found.placed if found else ()
                placements[str(board)] = [free(item.profile, item.start) for item in there]
            room = {"cpu": self.chance.choice(("4", "6", "64", "64")), "pods": self.chance.choice(("7", "110"))}
            zone = {"zone": self.chance.choice("ab")}
            made = node(
                f"n{number}",
                product,
                count=len(placements),
                mode=mode,
                placements=placements,
                labels=zone,
                resources=room,
            )
            yield view_node(made)

    def some_pod(self, *, may_run):
        """Return a pod that asks for slices, or now and then for CPU alone."""
        key, fields = self.some_key(may_run=may_run), self.some_fields()
        resource, count = resource_of(self.chance.choice(self.profiles)), self.chance.choice((1, 1, 1, 2, 3))
        if may_run and (there := [name for one in self.view.nodes for name in one.allocatable if is_slice(name)]):
            resource, count = self.chance.choice(there), 1
        cpu = {"cpu": self.chance.choice((1, 2, 4)) * 1000} if self.chance.randrange(3) == 0 else {}
        made = pod(key, 0, **fields)
        made = replace(
            made,
            request={resource: count * 1000, **cpu},
            slices=((resource, count),),
            moments=(((resource, count * 1000),),),
        )
        if self.chance.randrange(4) == 0:
            zone = self.chance.choice(self.view.nodes).labels["zone"]
            made = replace(made, constraints=Constraints(selector=(("zone", zone),)))
        if may_run and self.chance.randrange(10) < 9:
            roomy = places(self.view, made)
            if roomy:
                return replace(made, node=self.chance.choice(roomy), gated=False, held=False, running=True)
        return made

    def add(self, one):
        super().add(one)
        if one.node:
            self.view = report(self.view, one.node)

    def reborn(self, old):
        return replace(super().reborn(old), gated=True)


def random_teams(chance):
    """Return a cluster as it is at the beginning of a history, with true labels."""
    seed, happenings = Boards.some(chance)
    history = Boards(seed)
    for what, details in happenings[:-MIDDLE]:
        history.happen(what, details)
    return relabelled(history.view, settle(history.view))
