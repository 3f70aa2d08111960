"""What the agent tells the API server of its node: one patch of nodes/status, or none if nothing differs.

One patch carries the slice resources in capacity and allocatable, the boards, the slices with their use, and the plan
that has been dealt with: a reader never sees a plan done whose slices cannot be scheduled yet (pain P16). The kubelet
writes the same resources, by itself, up to ten seconds later; here they are there at once.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from policies import names
from policies.annotations import BoardInventory, PlacedSlice, stale_counts, write_inventory, write_status
from policies.boards import inventory_model
from policies.quantity import Quantity
from policies.timestamps import timestamp
from reconciler.agent.boards import BoardState
from reconciler.agent.driver import Slice
from reconciler.agent.fixed.announced import told
from reconciler.agent.kubelet import Devices, Holder
from reconciler.agent.node import NodeState
from reconciler.agent.verdict import NOT_OURS, Verdict

Patch = Mapping[str, object]
"""The body of a strategic merge patch: conditions are merged by type, null removes."""

MESSAGE_MAX: Final = 32768  # what the API server takes in a condition


def report(
    node: NodeState,
    *,
    boards: Iterable[BoardState],
    devices: Devices,
    listed: frozenset[str],
    allocated: Mapping[str, Holder],
    stale: Mapping[str, str],
    plan: str,
    verdict: Verdict,
    now: float,
) -> Patch | None:
    """Return the patch that makes the node say all this, or None if it does already.

    Args:
        node: the node as it is.
        boards: its boards as they are.
        devices: what is announced.
        listed: device ids that the kubelet may give to pods.
        allocated: device id -> holder.
        stale: device id -> uid of the holder, if that was told of a device which is not there any more.
        plan: id of the last plan that has been dealt with; "" if there was none.
        verdict: its condition.
        now: seconds since the epoch.
    """
    boards = tuple(boards)
    announced = frozenset(device for found in devices.values() for device in found)
    placed = {board.inventory.index: _placed(board, announced, allocated, stale) for board in boards}
    written = write_inventory(map(_inventory, boards)) | write_status(placed, plan)
    wanted: dict[str, str | None] = {**written, **stale_counts(names.STATUS_GPU, node.annotations, written)}
    if not plan:
        wanted[names.STATUS_PLAN] = None
    annotations = {key: value for key, value in wanted.items() if node.annotations.get(key) != value}
    status = {
        "capacity": _changed(node.capacity, {name: len(found) for name, found in devices.items()}),
        "allocatable": _changed(
            node.allocatable, {name: len(listed.intersection(found)) for name, found in devices.items()}
        ),
        "conditions": _conditions(node, verdict, now),
    }
    return _patch(node, annotations, status)


def report_verdict(node: NodeState, verdict: Verdict, now: float) -> Patch | None:
    """Return the patch that sets nothing but the condition, or None if it is so already."""
    return _patch(node, {}, {"conditions": _conditions(node, verdict, now)})


def report_away(node: NodeState, verdict: Verdict, now: float) -> Patch | None:
    """Return the patch that says why the kubelet gives nobody a slice now, or None if the node says so already.

    Nothing is offered then: a pod that is bound all the same fails for good (docs/adr/0028).
    """
    return report_failed(node, verdict, {}, now)


def report_failed(node: NodeState, verdict: Verdict, offered: Mapping[str, int], now: float) -> Patch | None:
    """Return the patch that says why a pass came to no end, or None if the node says so already.

    `offered` is what the kubelet gives of each resource; no more is on offer than that.
    """
    counts = {name: offered.get(name, 0) for name in node.resources & node.allocatable.keys()}
    status = {"allocatable": _changed(node.allocatable, counts), "conditions": _conditions(node, verdict, now)}
    return _patch(node, {}, status)


def report_stopped(node: NodeState, now: float) -> Patch | None:
    """Return the patch that takes all slices out of offer, since the device plugins that give them are about to end."""
    return report_away(node, Verdict(ok=False, reason=names.AGENT_STOPPED, message="its agent has ended"), now)


def report_given_up(node: NodeState, left: Iterable[str], now: float) -> Patch | None:
    """Return the patch that says that the node is not ours any more, and what of us is left on it; it offers nothing of ours."""
    return report_away(node, replace(NOT_OURS, message="; ".join((NOT_OURS.message, *left))), now)


def report_hung(where: str, silent: Iterable[int], node: NodeState, now: float) -> Patch | None:
    """Return the patch that says where the agent hangs, and offers nothing: nobody can be given a device, and it may be ended.

    Args:
        where: in the code.
        silent: the indices of boards that owe it an answer.
        node: the node as it is.
        now: seconds since the epoch.
    """
    boards = ", ".join(f"GPU {index}" for index in silent) or "a call"
    message = (
        f"a pass waits for {boards} ({where}), and all boards of the node with it: look for a GPU that does not answer "
        "nvidia-smi, and reset it or reboot the node; after two minutes the agent is started again"
    )
    return report_away(node, Verdict(ok=False, reason=names.AGENT_FAILED, message=message), now)


def report_no_boards(node: NodeState, verdict: Verdict, now: float) -> Patch | None:
    """Return the patch that says why the driver knows no boards, or None if the node says so already.

    A node that has never reported any then says with an empty inventory that it has none to cut, whatever its labels
    say. What was reported earlier stays: slices that exist go on to serve.
    """
    unknown = {} if names.INVENTORY in node.annotations else write_inventory(())
    return _patch(node, unknown, {"conditions": _conditions(node, verdict, now)})


def _placed(
    board: BoardState, announced: frozenset[str], allocated: Mapping[str, Holder], stale: Mapping[str, str]
) -> tuple[PlacedSlice, ...]:
    return tuple(
        PlacedSlice(
            profile=device.placement.profile,
            start=device.placement.start,
            used=device.id in allocated,
            withdrawn=device.id not in allocated and device.id not in announced,
            pod=allocated.get(device.id),
            stale=stale.get(device.id),
        )
        for device in board.devices(allocated)
    )


def _inventory(board: BoardState) -> BoardInventory:
    """Return what is told of a board: of one with a fixed layout only the profiles that it has, for it will make no others."""
    entry = board.inventory
    if board.fixed is None or board.fixed.fixture.passing:
        return entry
    layout = board.fixed.layout if not board.fixed.fixture.kept else tuple(item.placement for item in board.slices)
    made = {told(Slice(item.profile, item.start), board.fixed.fixture.share(item.profile)) for item in layout}
    model = inventory_model(entry)
    return replace(
        entry,
        fixed=True,
        mode=board.mode,
        profiles=tuple(each for each in entry.profiles if any(each.name == item.profile for item in made)),
        compute_slices=model.compute,
        memory_units=model.memory_units,
    )


def _changed(present: Mapping[str, Quantity], counts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items() if str(present.get(name)) != str(count)}


def _conditions(node: NodeState, verdict: Verdict, now: float) -> list[Mapping[str, str]]:
    """Return the condition if it has changed; the time of its last transition is that of its last change of status."""
    status, message = "True" if verdict.ok else "False", verdict.message[:MESSAGE_MAX]
    old = node.condition
    if old and (old.status, old.reason, old.message or "") == (status, verdict.reason, message):
        return []
    since = old.last_transition_time if old and old.status == status else None
    return [
        {
            "type": names.PARTITIONING_CONDITION,
            "status": status,
            "reason": verdict.reason,
            "message": message,
            "lastTransitionTime": since or timestamp(now),
        }
    ]


def _patch(node: NodeState, annotations: Mapping[str, str | None], status: Mapping[str, object]) -> Patch | None:
    changed = {key: value for key, value in status.items() if value}
    if not annotations and not changed:
        return None
    # The uid keeps the patch from a node that was made anew under the same name.
    return {"metadata": {"uid": node.uid, "annotations": annotations}, "status": changed}
