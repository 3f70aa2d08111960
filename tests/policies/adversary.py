"""A cluster whose scheduler and kubelets do the worst that they may: any order, any node, any device, told of late."""

from msgspec.structs import replace

from policies.placement import profile_of
from policies.settle import settle
from tests.policies.cluster import agent_step, node_of, places, with_node, write


class Adversary:
    """Plays a cluster to its end while nothing comes from outside.

    Which device a pod has got is known to nobody until the agent of its node tells (`hidden`).
    """

    def __init__(self, view, chance):
        self.view, self.chance = view, chance
        self.hidden, self.plan, self.told = {}, 0, []

    def settle(self):
        """The leader decides, and writes that down; return whether there was anything to do."""
        decision = settle(self.view)
        self.plan += 1
        self.view = write(self.view, decision, str(self.plan))
        self.told.append((decision.ungate, decision.layouts, decision.cuts, decision.waiting))
        return bool(decision.ungate or decision.layouts or decision.cuts)

    def agent(self, name):
        """An agent tells who has which device, and takes its next step; return whether that changes anything."""
        before = self.view
        self.reveal(name)
        self.view = agent_step(self.view, name)
        return self.view != before

    def land(self):
        """A released pod is bound to a node, and the kubelet gives it devices; return whether there was one."""
        pods = [pod for pod in self.view.pods if pod.released]
        if not pods:
            return False
        pod = self.chance.choice(pods)
        where = places(self.view, pod)
        assert where, f"{pod.key} is released, but without a place"
        name = self.chance.choice(where)
        bound = replace(pod, node=name, running=True)
        self.view = replace(self.view, pods=tuple(bound if one.key == pod.key else one for one in self.view.pods))
        taken = {device for devices in self.hidden.values() for device in devices}
        for resource, count in pod.slices:
            free = [
                (name, board.index, place)
                for board in node_of(self.view, name).boards
                for place, item in enumerate(board.slices)
                if item.profile == profile_of(resource) and not item.used and not item.withdrawn
            ]
            chosen = self.chance.sample([device for device in free if device not in taken], count)
            self.hidden[pod.key] = self.hidden.get(pod.key, []) + chosen
        self.told.append((pod.key, self.hidden.get(pod.key)))
        return True

    def reveal(self, name):
        """Show which pods hold which devices of a node."""
        for key, devices in list(self.hidden.items()):
            if devices[0][0] != name:
                continue
            for _, index, place in self.hidden.pop(key):
                one = node_of(self.view, name)
                boards = tuple(
                    replace(
                        board,
                        slices=tuple(
                            replace(item, used=True, pod=key) if (board.index, number) == (index, place) else item
                            for number, item in enumerate(board.slices)
                        ),
                    )
                    for board in one.boards
                )
                self.view = with_node(self.view, replace(one, boards=boards))

    def play(self, steps=60):
        """Let things happen in any order, then all that is left to; return the pods that run."""
        happens = [self.settle, self.land, *(lambda name=one.name: self.agent(name) for one in self.view.nodes)]
        for _ in range(self.chance.randrange(steps)):
            self.chance.choice(happens)()
        for _ in range(10 * steps):
            if not any(happen() for happen in self.chance.sample(happens, len(happens))):
                return {pod.key for pod in self.view.pods if pod.holds}
        raise AssertionError("no end")


def admitted(decision):
    """Return the pods that a decision serves: released, or planned."""
    return {release.pod for release in decision.ungate} | decision.planned.keys()
