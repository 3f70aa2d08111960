"""What `settle` decides: values that say everything a reader needs to carry them out, with their reasons.

The reconciler applies a Decision to the cluster, `simulate` applies it to memory, `why` prints it.
"""

import msgspec

from policies.annotations import Layouts, Placement
from policies.quantity import Amounts


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Remove our gate from a pod: its slices are there, whichever way the scheduler places it.

    Attributes:
        pod: namespace/name.
        uid: of the pod that was judged.
        version: its resourceVersion then, a precondition of the write.
        avoid: nodes promised to others, excluded by required node affinity in the same patch; sorted.
        capacity: the capacity label to set in the same patch; empty where no quota governs the pod.
    """

    pod: str
    uid: str
    version: str
    avoid: tuple[str, ...] = ()
    capacity: str = ""


class Relabel(msgspec.Struct, frozen=True, kw_only=True):
    """Set the capacity label of a pod: it has another value, or none.

    Attributes:
        pod: namespace/name.
        uid: of the pod that was judged.
        version: its resourceVersion then.
        capacity: `in-quota` or `over-quota`; empty where no quota governs it any more: it has none.
    """

    pod: str
    uid: str
    version: str
    capacity: str


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Evict a pod (policy/v1): for a claimant, after the annotation `evicted-for` has been written on it.

    Or for nobody: the scheduler finds no node for it, and its controller is to make it again, behind the gate (ADR 9); or
    what it holds is not there any more (ADR 23).

    Attributes:
        pod: namespace/name of the victim.
        uid: of the victim that was judged, a precondition of the eviction.
        version: its resourceVersion then, a precondition of the annotation, or of the eviction where there is no claimant.
        claimant: namespace/name of the pod for which it goes, the value of the annotation; empty if for nobody.
        claimant_uid: its uid, for the Event on it.
        quota: the claimant's quota, or its own if there is none, namespace/name; limits per quota count by it.
        grace_s: seconds that the victim may take, already capped by the settings.
        reason: `Reclaimed`, `Preempted`, `PlaceLost` or `DeviceReplaced`.
        message: one sentence with numbers, for the Events on both.
    """

    pod: str
    uid: str
    version: str
    claimant: str = ""
    claimant_uid: str = ""
    quota: str
    grace_s: int
    reason: str
    message: str


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is to stand in the status of a quota. Every quota of the view has one, changed or not.

    Attributes:
        kind: `ElasticQuota` or `CompositeElasticQuota`.
        namespace: its namespace.
        name: its name.
        generation: the generation that was judged (observedGeneration).
        governs: the namespaces that it governs, sorted; empty where another one does, or it has a fault.
        min: what it owns.
        max: what it may use at most.
        used: what its pods use, of the resources that its min or max name; in thousandths, as all amounts here.
        borrowed: used above min.
        lent: its share of what all borrow.
        guaranteed: how much above min it may take back from others that borrow (section 4).
        ready: whether it is in force.
        reason: `Ready`, `Superseded`, `Conflict` or `Invalid`.
        message: every fault, or what governs instead; empty when ready.
    """

    kind: str
    namespace: str
    name: str
    generation: int = 0
    governs: tuple[str, ...] = ()
    min: Amounts = {}
    max: Amounts = {}
    used: Amounts = {}
    borrowed: Amounts = {}
    lent: Amounts = {}
    guaranteed: Amounts = {}
    ready: bool = True
    reason: str = "Ready"
    message: str = ""

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Order a node's agent to bring boards into a layout.

    Attributes:
        node: its name.
        target: the whole layout of each board that changes.
        basis: the layout that each of them had when this was decided; the agent refuses if it has another.
        destroys: whether anything is destroyed, so that withdrawing comes first.
    """

    node: str
    target: Layouts
    basis: Layouts
    destroys: bool


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Allow a node's agent to destroy what it has withdrawn for a plan: no pod can claim it any more.

    Attributes:
        node: its name.
        plan: the plan's id.
    """

    node: str
    plan: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod waits.

    Attributes:
        pod: namespace/name.
        reason: PascalCase code (policies.names).
        message: one sentence that a person understands, with numbers.
    """

    pod: str
    reason: str
    message: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Everything to do now; empty fields mean nothing of that kind. All tuples are in a fixed order.

    Attributes:
        ungate: pods to release, in the order in which they were granted.
        relabel: pods whose capacity label is not true, by namespace/name.
        evict: pods to evict, in the order in which they were chosen.
        quotas: the status of every quota, by namespace, name and kind; to be compared with what stands there.
        layouts: boards to bring into a new layout, by node name.
        cuts: withdrawn slices that may be destroyed, by node name.
        waiting: pods that stay gated (or pending), in the order of the queue.
        planned: where each pod that waits for a cut was planned: namespace/name -> node, and its placements by board.
    """

    ungate: tuple[Release, ...] = ()
    relabel: tuple[Relabel, ...] = ()
    evict: tuple[Evict, ...] = ()
    quotas: tuple[QuotaStatus, ...] = ()
    layouts: tuple[Layout, ...] = ()
    cuts: tuple[Cut, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    planned: dict[str, "Planned"] = {}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod was planned, for people and the simulator; the scheduler is not bound to it.

    Attributes:
        node: its node.
        slices: (board index, placement) of each of its slices.
    """

    node: str
    slices: tuple[tuple[int, Placement], ...]
