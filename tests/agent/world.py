"""A node with simulated hardware, an API server that is a dict, and a leader that allows what was withdrawn.

Every call that the agent makes is a boundary, at which it can be killed (`kills`: by their numbers); hardware, kubelet and API server live on.
"""

import msgspec

from policies import names
from policies.annotations import Placement, read_inventory, write_spec
from policies.view import view_pod
from reconciler.agent.agent import LOOK_AGAIN_S, NodeAgent
from reconciler.agent.driver import Slice, device_id
from reconciler.agent.grants import Grants, by_variable
from reconciler.agent.handed import Handed
from reconciler.agent.node import read_node
from reconciler.agent.simulated.driver import DESTROY_BIN, DESTROY_COMPUTE_INSTANCE, LIST
from reconciler.agent.simulated.kubelet import SimulatedKubelet
from reconciler.agent.simulated.memory import recall
from reconciler.agent.tenants import Tenants
from tests.agent.hardware import SimulatedHardware
from tests.agent.merging import merge
from tests.builders import make_pod, raw_node


class Killed(BaseException):
    """The agent's process ends here."""


def layout(*items):
    """Return a layout from `("3g.20gb", 4)` for MIG and `"10gb"` for MPS."""
    return tuple(Placement(item) if isinstance(item, str) else Placement(*item) for item in items)


class World:
    """One node; `slices` are the layouts that its boards have from the start, by index."""

    hardware = SimulatedHardware

    def __init__(self, slices=None, *, pods=(), delay_s=0.0, forgetful=False, state=None, **node):
        self.node = raw_node(**node)
        self.node["metadata"]["uid"] = "uid-node"
        self.pods = {}
        self.now = 1_000.0
        self.set_back_s = 0.0  # by how much the clock of the node, which it is not paced by
        self.calls, self.kills = 0, set()
        self.faults = {}
        self.rejected = []
        self.told = []
        self.handed = Handed(state / "handed.json") if state else None
        self.patches = []
        self.forgetful = forgetful
        self.delay_s = delay_s
        memory = recall(self.read())
        self.uuids = [board.uuid for board in memory.boards]
        present = {self.uuids[index]: tuple(_numbered(layout(*items))) for index, items in (slices or {}).items()}
        self._kubelet = self._new_kubelet({}, {})
        self._hardware = self.hardware(self, memory, present)
        self.restart()
        self.run()
        for key, resource in pods:
            self.bind(key, resource)
            self.run()

    # What others do.

    def bind(self, key, resource, count=1):
        """Bind a pod that asks for slices of one resource to the node."""
        self.pods[key] = view_pod(make_pod(key, limits={resource: count}, node="n1", uid=f"uid-{key}"))

    def end(self, key):
        """Delete a pod."""
        del self.pods[key]

    def order(self, target, basis=None, plan="1"):
        """Order layouts, by board index; the basis is what the boards have, unless said otherwise."""
        basis = {index: self.layout(index) for index in target} if basis is None else basis
        self.annotate(write_spec(target, basis, plan))

    def allow(self, plan="1"):
        """Allow the cut, as the leader does when no pod can claim what is withdrawn."""
        self.annotate({names.SPEC_CUT: plan})

    def annotate(self, annotations):
        self.node["metadata"]["annotations"] |= annotations

    # The agent.

    def restart(self):
        """Start the agent's process anew; a forgetful kubelet drops the devices of a plugin that is gone."""
        if self.forgetful:
            self._kubelet = self._new_kubelet({}, self._kubelet.allocated())
        self.driver = self._hardware.driver()
        tenants = self._tenants() if self.handed else None
        self.agent = NodeAgent(self.driver, _Counted(self), tenants, ticks=lambda: self.now, **self._options())

    def reboot(self, **lost):
        """Lose all instances, and what the kubelet knows of devices but for its checkpoint; start the agent anew."""
        self._hardware.reboot(**lost)
        self._kubelet = self._new_kubelet({}, self._kubelet.allocated())
        self.restart()

    def start_container(self, key, naming=by_variable):
        """Do what the kubelet does when a pod's container first starts: ask for its devices; return the answer."""
        devices = [device for device, holder in self._kubelet.allocated().items() if holder == key]
        return Grants(self.driver, naming=self.handed.remembering(naming)).grant(devices)

    def act(self):
        """Run one pass and carry out its patch; return whether it asks for another, or the patch changed something."""
        outcome = self.agent.act(self.read(), self.now - self.set_back_s)
        if outcome.patch:
            self.boundary()
            self.patches.append(outcome.patch)
            merge(self.node, outcome.patch)
            self.boundary()
        return outcome

    def run(self, *, passes=100):
        """Run passes until one changes nothing; time goes on as the agent asks."""
        for _ in range(passes):
            outcome = self.act()
            if outcome.patch is None and outcome.again_s in (None, LOOK_AGAIN_S):
                return
            self.now += outcome.again_s or 0.0
        raise AssertionError("the agent does not come to rest")

    def finish(self, *, passes=200, after=restart):
        """Run agent and leader until the plan is dealt with; after it was killed, the agent is started again."""
        for _ in range(passes):
            try:
                outcome = self.act()
            except Killed:
                after(self)
                continue
            self.now += outcome.again_s or 0.0
            if outcome.patch is None and not outcome.again_s and not self._lead():
                return
        raise AssertionError("the plan does not come to an end")

    def _lead(self):
        node = self.read()
        plan = self.annotation(names.SPEC_PLAN)
        withdrawn = any(item.withdrawn for items in node.reported.values() for item in items)
        if node.order is None or node.order.cut or not withdrawn:
            return False
        self.allow(plan)
        return True

    # What can be seen.

    def read(self):
        return read_node(msgspec.json.encode(self.node))

    def annotation(self, name):
        return self.node["metadata"]["annotations"].get(name)

    def layout(self, index):
        """Return what the driver has on a board, sorted, without use."""
        found = self.driver.slices(self.uuids[index])
        return tuple(sorted((item.placement for item in found), key=lambda p: (p.start or 0, p.profile)))

    def reported(self, index=0):
        """Return what is reported of a board as `3g.20gb@4 free`, `... withdrawn` or `... team-a/train`."""
        return [
            (item.profile if item.start is None else f"{item.profile}@{item.start}")
            + (f" {item.pod}" if item.used else " withdrawn" if item.withdrawn else " free")
            for item in self.read().reported[index]
        ]

    def inventory(self, index=0):
        """Return what is reported of a board's kind."""
        return read_inventory(self.read().annotations, [])[index]

    def condition(self):
        condition = self.read().condition
        return condition.status, condition.reason, condition.message

    def allocatable(self):
        """Return slice resources of which there are any."""
        return {name: int(n) for name, n in self.read().allocatable.items() if int(n)}

    def holder(self, index, profile, start):
        return self._kubelet.allocated().get(device_id(self.uuids[index], Slice(profile, start)))

    @property
    def dealt_with(self):
        return self.annotation(names.STATUS_PLAN) == self.annotation(names.SPEC_PLAN)

    # Inside.

    def boundary(self):
        self.calls += 1
        if self.calls in self.kills:
            raise Killed

    def interrupt(self, operation, board, item):
        if operation != LIST:
            self.boundary()
        if operation in (DESTROY_COMPUTE_INSTANCE, DESTROY_BIN):
            self._assert_allowed(board, item)
        fault = self.faults.get((operation, board)) or self.faults.get(operation)
        if fault:
            raise fault

    def holds(self, device):
        return self._kubelet.holds(device)

    def _assert_allowed(self, board, item):
        """Whatever a test is about: nothing goes that was not withdrawn, told so, and allowed by the leader."""
        node = self.read()
        assert node.order, "destroyed without an order"
        assert node.order.cut, "destroyed before the leader allowed it"
        assert item.placement in [one.placement for one in node.reported[self.uuids.index(board)] if one.withdrawn]
        assert device_id(board, item) not in self._kubelet.allocatable(), "destroyed while the kubelet offered it"

    def _options(self):
        """Return what else an agent gets that starts now."""
        return {}

    def _tenants(self):
        def tell(pod, reason, message):
            self.told.append((pod.key, reason, message))

        return Tenants(self.driver, self.handed, self.pods.values, tell)

    def _new_kubelet(self, announced, allocated):
        return SimulatedKubelet(
            self.pods.values,
            announced=announced,
            allocated=allocated,
            tell=lambda pod, _reason, message: self.rejected.append((pod.key, message)),
            delay_s=self.delay_s,
            clock=lambda: self.now,
        )


class _Counted:
    """The kubelet, with each announcement a boundary."""

    def __init__(self, world):
        self._world = world

    def announce(self, devices):
        self._world.boundary()
        return self._world._kubelet.announce(devices)

    def allocatable(self):
        return self._world._kubelet.allocatable()

    def allocated(self):
        return self._world._kubelet.allocated()


def _numbered(items):
    seen = {}
    for item in items:
        seen[item] = seen.get(item, -1) + 1
        yield Slice(item.profile, item.start, 0 if item.start is not None else seen[item])
