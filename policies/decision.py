"""What `settle` decides: values that say everything a reader needs to carry them out, with their reasons.

The reconciler applies a Decision to the cluster, `simulate` applies it to memory, `plan` prints it.
"""

import msgspec

from policies.annotations import Layouts, Placement


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Remove our gate from a pod: its slices are there, whichever way the scheduler places it.

    Attributes:
        pod: namespace/name.
        uid: of the pod that was judged.
        version: its resourceVersion then, a precondition of the write.
        avoid: nodes promised to others, excluded by required node affinity in the same patch; sorted.
    """

    pod: str
    uid: str
    version: str
    avoid: tuple[str, ...] = ()


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
        layouts: boards to bring into a new layout, by node name.
        cuts: withdrawn slices that may be destroyed, by node name.
        waiting: pods that stay gated (or pending), in the order of the queue.
        planned: where each pod that waits for a cut was planned: namespace/name -> node, and its placements by board.
    """

    ungate: tuple[Release, ...] = ()
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
