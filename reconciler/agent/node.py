"""What the agent reads of its own node: how it is labelled, what the leader has ordered, what we reported last.

Taken from the API's object once per change. The resourceVersion is left out on purpose: the kubelet writes to the
node every few seconds, and none of that concerns us.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from policies import names
from policies.annotations import (
    BoardInventory,
    Layouts,
    Placed,
    PlacedSlice,
    Placement,
    read_inventory,
    read_layouts,
    read_status,
)
from policies.legible import Doubts, told
from policies.model import Condition, Node
from policies.needs import is_slice
from policies.placement import bin_gb, resource_of
from policies.quantity import Quantity
from policies.view import read_mode

_NODE: Final = msgspec.json.Decoder(Node)
_HARDWARE: Final = (names.PRODUCT_LABEL, names.COUNT_LABEL, names.MEMORY_LABEL)
_LABELS: Final = (
    names.PARTITIONING_LABEL,
    *_HARDWARE,
    names.REPLICAS_LABEL,
    names.PLUGIN_CONFIGS_LABEL,
    names.PLUGIN_CONFIG_LABEL,
    names.MIG_PARTED_LABEL,
    names.MIG_CONFIG_LABEL,
    names.MIG_STATE_LABEL,
)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of the leader that has not been dealt with (docs/adr/0003).

    Attributes:
        plan: its id.
        target: the whole layout of each board concerned; boards not named are left alone.
        basis: the layout of the same boards from which it was made.
        cut: whether what was reported as withdrawn may be destroyed.
    """

    plan: str
    target: Layouts
    basis: Layouts
    cut: bool

    def of(self, index: int) -> tuple[tuple[Placement, ...], tuple[Placement, ...]] | None:
        """Return target and basis of a board; None if the plan does not name it."""
        return (self.target[index], self.basis.get(index, ())) if index in self.target else None


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as far as its agent is concerned.

    Attributes:
        name: its name.
        uid: its uid: a node of the same name made again is another node.
        mode: the partitioning mode of its boards; "" if they are not ours to cut.
        labels: those of its labels that say what boards it has and how they are used.
        annotations: those of ours.
        capacity: NVIDIA's resources, as they stand in its status: slices, and whole GPUs.
        allocatable: likewise.
        condition: the condition that we wrote last; None if there is none.
        inventory: the boards, as we reported them last; a reboot may give them other indices.
        reported: the slices that we reported last, by those indices.
        order: what is to be done; None if there is nothing.
        faults: what could not be understood of our annotations and labels.
    """

    name: str
    uid: str = ""
    mode: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    capacity: Mapping[str, Quantity] = {}
    allocatable: Mapping[str, Quantity] = {}
    condition: Condition | None = None
    inventory: tuple[BoardInventory, ...] = ()
    reported: Placed = {}
    order: Order | None = None
    faults: tuple[str, ...] = ()

    @property
    def hardware(self) -> tuple[str | None, ...]:
        """Return what its labels say of its boards."""
        return tuple(self.labels.get(label) for label in _HARDWARE)

    @property
    def resources(self) -> frozenset[str]:
        """Return the resources that are ours to announce: all slices that it has, and what we reported last.

        Of a node that is not ours any more only those of MPS, which we take away; others may have another plugin by now.
        """
        profiles = frozenset(item.profile for items in self.reported.values() for item in items)
        if not self.mode:
            return frozenset(resource_of(profile) for profile in profiles if bin_gb(profile))
        reported = map(resource_of, profiles)
        return frozenset((*filter(is_slice, self.capacity), *reported))

    def reported_of(self, board: str) -> tuple[PlacedSlice, ...]:
        """Return the slices that we reported last of the board of this UUID."""
        return tuple(
            item for entry in self.inventory if entry.uuid == board for item in self.reported.get(entry.index, ())
        )


def read_node(raw: bytes) -> NodeState:
    """Return what is kept of a node. Raises msgspec.DecodeError if it cannot be read."""
    node = _NODE.decode(raw)
    status = node.status
    labels = {key: value for key, value in (node.metadata.labels or {}).items() if key in _LABELS}
    annotations = {
        key: value for key, value in (node.metadata.annotations or {}).items() if key.startswith(names.PREFIX)
    }
    faults: list[str] = []
    doubts: Doubts = []
    mode = read_mode(labels, faults)
    inventory, reported = read_inventory(annotations, doubts), read_status(annotations, doubts)
    order = _order(annotations, doubts)
    return NodeState(
        name=node.metadata.name or "",
        uid=node.metadata.uid or "",
        mode=mode,
        labels=labels,
        annotations=annotations,
        capacity=_nvidias(status.capacity if status else None),
        allocatable=_nvidias(status.allocatable if status else None),
        condition=next(
            (c for c in (status and status.conditions) or () if c.type == names.PARTITIONING_CONDITION), None
        ),
        inventory=inventory or (),
        reported=reported or {},
        order=order,
        faults=(*faults, *told(doubts)),
    )


def _order(annotations: Mapping[str, str], doubts: Doubts) -> Order | None:
    plan = annotations.get(names.SPEC_PLAN, "")
    order = Order(
        plan=plan,
        target=read_layouts(names.SPEC_PLACEMENTS, annotations, doubts),
        basis=read_layouts(names.SPEC_BASIS, annotations, doubts),
        cut=annotations.get(names.SPEC_CUT) == plan,
    )
    return order if plan and plan != annotations.get(names.STATUS_PLAN, "") else None


def _nvidias(resources: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
    return {name: amount for name, amount in (resources or {}).items() if name.startswith(names.NVIDIA_PREFIX)}
