"""What a simulated node's hardware and kubelet remember over a restart of the agent: its own last report.

A real node's boards keep their instances, and the kubelet its checkpoint, whatever happens to the agent. Here both are
gone with the process, and the report on the node (`gpu-inventory`, `status-placements`) stands in for their memory.
What was done but not yet reported is lost with it: for the simulated node it has not happened.
"""

import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from policies import names
from policies.annotations import BoardInventory, PlacedSlice, read_inventory
from policies.boards import Board, inventory_model
from policies.catalogue import by_product
from policies.model import Node, ObjectMeta
from policies.placement import size_of
from policies.view import view_node
from reconciler.agent.driver import Slice, device_id
from reconciler.agent.node import NodeState
from reconciler.agent.rules import rejection

# Boards whose MIG mode changes only with a reset, for which a person stops what runs on them. Hopper and later switch live.
_BY_RESET: Final = ("NVIDIA-A100", "NVIDIA-A30", "NVIDIA-A800")


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a node when its agent starts.

    Attributes:
        boards: what it has.
        fault: why its boards are not known; "" if they are.
        slices: what exists, by UUID of the board.
        announced: resource -> device id -> healthy.
        allocated: device id -> pod that holds it.
    """

    boards: tuple[BoardInventory, ...]
    fault: str = ""
    slices: dict[str, tuple[Slice, ...]] = {}
    announced: dict[str, dict[str, bool]] = {}
    allocated: dict[str, str] = {}


def recall(node: NodeState) -> Memory:
    """Return what a node remembers; one that has reported nothing is fresh, with the boards that its labels name."""
    reported, fault = read_inventory(node.annotations, []), ""
    if not reported:
        reported, fault = _fresh_boards(node)
    boards = tuple(map(_as_made, reported))
    slices: dict[str, tuple[Slice, ...]] = {}
    announced: dict[str, dict[str, bool]] = {}
    allocated: dict[str, str] = {}
    for board in boards:
        found = _restore(board, node.reported.get(board.index, ()))
        slices[board.uuid] = tuple(item for item, _ in found)
        for item, was in found:
            device = device_id(board.uuid, item)
            if not was.withdrawn:
                announced.setdefault(item.resource, {})[device] = True
            if was.used and was.pod:
                allocated[device] = was.pod
    return Memory(boards=boards, fault=fault, slices=slices, announced=announced, allocated=allocated)


def _as_made(board: BoardInventory) -> BoardInventory:
    """Return a board as it was before anything was said of it: of one with a fixed layout not all profiles are reported."""
    model = by_product(board.model) if board.fixed else None
    profiles = model.profiles if model else board.profiles
    return msgspec.structs.replace(board, fault=None, fixed=False, mode=None, profiles=profiles)


def _fresh_boards(node: NodeState) -> tuple[tuple[BoardInventory, ...], str]:
    view = view_node(Node(metadata=ObjectMeta(name=node.name, labels=dict(node.labels))))
    return tuple(_fresh_board(node.name, board) for board in view.boards), "; ".join(view.faults)


def _fresh_board(node: str, board: Board) -> BoardInventory:
    model = board.model
    return BoardInventory(
        index=board.index,
        uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{board.index}.{node}')}",
        model=model.name,
        memory_mib=model.memory_mib,
        profiles=model.profiles,
        mig_capable=bool(model.profiles),
        mig=board.mode == names.MIG and bool(model.profiles),
        switch="admin" if model.name.startswith(_BY_RESET) else "live",
        compute_slices=model.compute,
        memory_units=model.memory_units,
    )


def _restore(board: BoardInventory, reported: Iterable[PlacedSlice]) -> list[tuple[Slice, PlacedSlice]]:
    """Return the slices of a report; a report that the board cannot be in was not ours, and what is wrong is left out."""
    restored: list[tuple[Slice, PlacedSlice]] = []
    ordinals: Counter[str] = Counter()
    for was in reported:
        if not size_of(was.profile)[0]:
            continue  # no slice: the board itself, or slices under another name, which its files tell anew
        error = rejection(inventory_model(board), [item.placement for item, _ in restored], was.placement)
        if error or (was.start is not None) is not board.mig:
            structlog.get_logger().warning(
                "slice_not_restored",
                board=board.uuid,
                profile=was.profile,
                start=was.start,
                error=str(error or "wrong mode"),
            )
            continue
        restored.append((Slice(was.profile, was.start, ordinals[was.profile] if was.start is None else 0), was))
        ordinals[was.profile] += 1
    return restored
