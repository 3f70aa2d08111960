"""One pass over one node: observe, decide, carry out, announce, report. Everything that happens to boards happens here.

A pass looks at everything afresh and may be run at any time, any number of times. What it cannot finish, because the
kubelet has not taken over an announcement or a board has failed, it asks to be run for again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import Final

import msgspec
import structlog

from policies import names
from policies.annotations import BoardInventory
from policies.placement import bin_gb
from reconciler.agent.apply import (
    BoardState,
    Keep,
    Recut,
    Refuse,
    Step,
    Withdraw,
    Work,
    carry_out,
    mode_fault,
    next_steps,
)
from reconciler.agent.driver import DriverError, GpuDriver, Slice, base_id, device_id, read_device_id
from reconciler.agent.fixed.announced import Announced, announced, in_force, offered, with_whole
from reconciler.agent.fixed.layout import Fixture
from reconciler.agent.fixed.layouts import FixedLayouts
from reconciler.agent.fixed.target import SETTLE_S, Target, lacking, layout_of, still_held
from reconciler.agent.kubelet import Devices, Holder, Kubelet, KubeletBehind, KubeletError
from reconciler.agent.neighbours import neighbours, unheeded
from reconciler.agent.node import NodeState
from reconciler.agent.pods import Pods
from reconciler.agent.report import Patch, Verdict, report, report_away, report_no_boards, report_verdict
from reconciler.agent.restore import missing
from reconciler.agent.tenants import Tenants

ROUNDS: Final = 4  # no more MPS, MIG mode, what was lost, what is ordered; then nothing is left to do
LOOK_AGAIN_S: Final = 5.0  # for a driver or a kubelet that does not answer
FIRST_PAUSE_S: Final = 1.0  # after a failure of a board; doubles with each that follows
LONGEST_PAUSE_S: Final = 60.0
FORGOTTEN_S: Final = 120.0  # a failure that nothing has followed for so long is no news any more
POLL_S: Final = 0.02  # how soon the kubelet is asked again; then after an eighth of what it has taken so far
KUBELET_PATIENCE_S: Final = 10.0  # a kubelet that takes longer is reported

_DISAGREES: Final = "the kubelet does not offer what is announced, or still offers what is withdrawn"

_log: Final = structlog.get_logger()


NameDevices = Callable[[Iterable[str], Collection[str]], None]
"""Takes the ids of all devices that exist, and of those that pods hold. Raises DriverError."""


class Outcome(msgspec.Struct, frozen=True):
    """What is left to do after a pass.

    Attributes:
        patch: for nodes/status; None if the node says all that already.
        again_s: seconds after which another pass is due, whatever happens; None if none is.
    """

    patch: Patch | None
    again_s: float | None = None


class _Failure(msgspec.Struct, frozen=True):
    """The last failure of a board: it is left alone until then, and longer after the next."""

    why: str
    until: float
    pause_s: float


class NodeAgent:
    """The agent of one node, of a driver and a kubelet; used by one thread at a time.

    Between passes it remembers only how to pace itself. `tenants` looks after the pods that hold slices, where what they
    were told can grow old. `fixed` says which layouts people have given to boards; `pods` returns the pods that are bound to
    the node, of which the kubelet may not know yet. `name_devices` is told of all devices before they are announced.
    """

    def __init__(
        self,
        driver: GpuDriver,
        kubelet: Kubelet,
        tenants: Tenants | None = None,
        *,
        fixed: FixedLayouts | None = None,
        pods: Pods = tuple,
        name_devices: NameDevices | None = None,
    ) -> None:
        self._driver = driver
        self._kubelet = kubelet
        self._tenants = tenants
        self._fixed = fixed or FixedLayouts()
        self._pods = pods
        self._name = name_devices
        # Of boards with a fixed layout: since when the API server has known of all that is withdrawn.
        self._told_since: dict[str, float] = {}
        self._failures: dict[str, _Failure] = {}
        self._disagrees_since: float | None = None

    def act(self, node: NodeState, now: float) -> Outcome:
        """Bring the boards as far towards the order as can be now, at `now` seconds since the epoch."""
        if not node.mode:
            return Outcome(self._not_ours(node, now))
        try:
            return self._act(node, now)
        except DriverError as error:
            patch = report_no_boards(node, Verdict(ok=False, reason=names.NO_BOARDS, message=str(error)), now)
        except KubeletBehind as error:
            return self._wait_for_kubelet(node, str(error), now)
        except KubeletError as error:
            patch = report_away(node, Verdict(ok=False, reason=names.KUBELET_DISAGREES, message=str(error)), now)
        return Outcome(patch, again_s=LOOK_AGAIN_S)

    def _act(self, node: NodeState, now: float) -> Outcome:
        allocated = self._kubelet.allocated()
        boards, steps = self._work(node, allocated, now)
        asks = {pod.key: frozenset(name for name, _ in pod.slices) for pod in self._pods()}
        devices = _devices(node, boards.values(), steps, allocated, asks)
        if self._name:
            self._name([one.id for board in boards.values() for one in _announced(board, allocated)], allocated)
        self._kubelet.announce(devices)
        listed = self._kubelet.allocatable()
        self._note_told(boards.values(), steps, now)
        verdict = self._verdict(node, boards.values(), devices)
        if listed != _healthy(devices):
            return self._wait_for_kubelet(node, _DISAGREES, now)
        self._disagrees_since = None
        plan = node.annotations.get(names.STATUS_PLAN, "")
        if node.order and all(_dealt_with(boards.get(index), steps[index]) for index in node.order.target):
            plan = node.order.plan
            _log_refusals(node, steps)
        patch = report(
            node,
            boards=boards.values(),
            devices=devices,
            listed=listed,
            allocated=allocated,
            stale=self._tenants.look(allocated, boards.values()) if self._tenants else {},
            plan=plan,
            verdict=verdict,
            now=now,
        )
        return Outcome(patch, again_s=self._next_look(now))

    def _not_ours(self, node: NodeState, now: float) -> Patch | None:
        """Return what to say of a node that is not labelled for partitioning: nothing, unless it is labelled wrongly."""
        message = "; ".join((*node.faults, *unheeded(node)))
        return (
            report_verdict(node, Verdict(ok=False, reason=names.NODE_UNREADABLE, message=message), now)
            if message
            else None
        )

    def _work(
        self, node: NodeState, allocated: Mapping[str, Holder], now: float
    ) -> tuple[dict[int, BoardState], dict[int, Step]]:
        """Carry out what can be done now; return the boards as they are then, and what remains to be waited for.

        A driver that claims success and changes nothing is not asked for ever: then the board has failed.
        """
        for done in count():
            boards = self._observe(node, allocated, now)
            steps = next_steps(node.order, boards)
            work = [(boards[index], step) for index, step in steps.items() if isinstance(step, Work)]
            if not work:
                break
            for board, step in work:
                if done < ROUNDS:
                    self._carry_out(node, board.inventory, step, now)
                else:
                    self._fail(node, board.inventory, "the driver reports success, but nothing has changed", now)
        return boards, steps

    def _observe(self, node: NodeState, allocated: Mapping[str, Holder], now: float) -> dict[int, BoardState]:
        listed = self._kubelet.allocatable()
        boards = {}
        entries = self._driver.boards()
        fixtures = self._fixed.of(node.labels, node.mode, entries)
        for entry in entries:
            fault, reported = entry.fault, node.reported_of(entry.uuid)
            try:
                slices, orphans = self._driver.slices(entry.uuid), self._driver.orphans(entry.uuid)
                mps = self._driver.mps_enabled(entry.uuid)
            except DriverError as error:
                slices, orphans, mps, fault = (), (), False, str(error)
            fixture = in_force(entry, fixtures.get(entry.index), allocated)
            slices = with_whole(entry, slices, fixture, allocated)
            mode = fixture.mode if fixture else entry.mode or node.mode
            failure = self._failures.get(entry.uuid)
            if failure and now < failure.until:
                fault = fault or failure.why
            boards[entry.index] = BoardState(
                inventory=msgspec.structs.replace(entry, fault=fault or mode_fault(entry, mode)),
                mode=mode,
                healthy=entry.fault is None and (mps or not any(bin_gb(item.profile) for item in slices)),
                mps=mps,
                slices=slices,
                orphans=orphans,
                used=_of_board(entry, slices, allocated),
                listed=_of_board(entry, slices, listed),
                withdrawn=tuple(item.placement for item in reported if item.withdrawn),
                missing=missing(entry, mode, slices, _held(entry, allocated), reported),
                fixed=self._target(entry, fixture, slices, allocated, now) if fixture else None,
            )
        return boards

    def _target(
        self,
        board: BoardInventory,
        fixture: Fixture,
        slices: tuple[Slice, ...],
        allocated: Mapping[str, Holder],
        now: float,
    ) -> Target:
        since = self._told_since.get(board.uuid)
        return Target(
            fixture=fixture,
            layout=layout_of(board, fixture, slices, _of_board(board, slices, allocated)),
            lacking=lacking(self._pods(), frozenset(allocated.values())),
            settled=since is not None and now - since >= SETTLE_S,
        )

    def _note_told(self, boards: Iterable[BoardState], steps: Mapping[int, Step], now: float) -> None:
        """Remember since when the API server knows of all that is withdrawn from boards with a fixed layout."""
        for board in boards:
            step, uuid = steps[board.inventory.index], board.inventory.uuid
            if board.fixed and isinstance(step, Withdraw) and board.fixed.is_told(step.slices, board.withdrawn):
                self._told_since.setdefault(uuid, now)
            else:
                self._told_since.pop(uuid, None)

    def _carry_out(self, node: NodeState, board: BoardInventory, step: Work, now: float) -> None:
        log = _log.bind(node=node.name, board=board.uuid, plan=node.order.plan if node.order else "")
        try:
            carry_out(step, board.uuid, self._driver)
        except DriverError as error:
            self._fail(node, board, str(error), now)
            return
        self._failures.pop(board.uuid, None)
        if isinstance(step, Recut):
            log.info("board_recut", destroyed=[*map(str, step.destroy)], created=[*map(str, step.create)])
        else:
            log.info("board_switched", step=str(step))

    def _fail(self, node: NodeState, board: BoardInventory, why: str, now: float) -> None:
        before = self._failures.get(board.uuid)
        pause_s = min(LONGEST_PAUSE_S, 2 * before.pause_s) if before else FIRST_PAUSE_S
        self._failures[board.uuid] = _Failure(why, now + pause_s, pause_s)
        _log.warning("board_failed", node=node.name, board=board.uuid, error=why, again_s=pause_s)

    def _verdict(self, node: NodeState, boards: Iterable[BoardState], devices: Devices) -> Verdict:
        """Return all that is wrong, with the reason of what stands first."""
        faults = [(names.NODE_UNREADABLE, fault) for fault in node.faults]
        pending = []
        for board in boards:
            entry = board.inventory
            failure = self._failures.get(entry.uuid)
            if why := entry.fault or (failure and failure.why):
                faults.append((names.BOARD_FAILED, f"GPU {entry.index} ({entry.uuid}): {why}"))
            if board.fixed and (held := still_held(board.fixed, board.slices, board.used)):
                why = f"waits for the pods that hold {', '.join(map(str, held))} to end"
                pending.append((names.LAYOUT_PENDING, f"GPU {entry.index} ({entry.uuid}): {why}"))
        faults += [(names.LAYOUT_INVALID, fault) for fault in self._fixed.faults]
        faults += neighbours(node, devices)
        faults += pending
        if not faults:
            return Verdict(ok=True, reason=names.BOARDS_READY, message="")
        return Verdict(ok=False, reason=faults[0][0], message="; ".join(message for _, message in faults))

    def _wait_for_kubelet(self, node: NodeState, why: str, now: float) -> Outcome:
        """Return what to do while the kubelet does not agree: nothing is reported that it does not say as well."""
        if self._disagrees_since is None:
            self._disagrees_since = now
        waited_s = max(0.0, now - self._disagrees_since)
        patch = None
        if waited_s >= KUBELET_PATIENCE_S:
            patch = report_verdict(node, Verdict(ok=False, reason=names.KUBELET_DISAGREES, message=why), now)
        return Outcome(patch, again_s=max(POLL_S, min(1.0, waited_s / 8)))

    def _next_look(self, now: float) -> float | None:
        """Return in how many seconds a board may be worked on again, of which that is known; None if there is none."""
        self._failures = {
            board: failure for board, failure in self._failures.items() if now < failure.until + FORGOTTEN_S
        }
        coming = [failure.until - now for failure in self._failures.values() if now < failure.until]
        coming += [since + SETTLE_S - now for since in self._told_since.values() if now < since + SETTLE_S]
        return min(coming, default=None)


def _dealt_with(board: BoardState | None, step: Step) -> bool:
    """Return whether nothing more will come of an order for a board; of one for a fixed layout nothing ever does."""
    return isinstance(step, Keep | Refuse) or bool(board and board.fixed)


def _devices(
    node: NodeState,
    boards: Iterable[BoardState],
    steps: Mapping[int, Step],
    allocated: Mapping[str, Holder],
    asks: Mapping[Holder, Collection[str]],
) -> Devices:
    """Return what is to be announced: all that exists but for what is withdrawn; and no more of what is gone."""
    devices: dict[str, dict[str, bool]] = {resource: {} for resource in node.resources}
    for board in boards:
        step = steps[board.inventory.index]
        withdrawn = step.slices if isinstance(step, Withdraw) else ()
        fixture = board.fixed.fixture if board.fixed else None
        for item in board.slices:
            if item not in withdrawn:
                for device in offered(board.inventory.uuid, item, fixture, allocated, asks):
                    devices.setdefault(device.resource, {})[device.id] = board.healthy
    return devices


def _announced(board: BoardState, allocated: Mapping[str, Holder]) -> Iterator[Announced]:
    """Yield all devices of a board, announced or not."""
    fixture = board.fixed.fixture if board.fixed else None
    for item in board.slices:
        yield from announced(board.inventory.uuid, item, fixture, allocated)


def _healthy(devices: Devices) -> frozenset[str]:
    return frozenset(device for found in devices.values() for device, healthy in found.items() if healthy)


def _of_board(board: BoardInventory, slices: Iterable[Slice], devices: Iterable[str]) -> frozenset[Slice]:
    present = frozenset(map(base_id, devices))
    return frozenset(item for item in slices if device_id(board.uuid, item) in present)


def _held(board: BoardInventory, allocated: Iterable[str]) -> frozenset[Slice]:
    """Return the slices of a board that pods hold, whether they exist or not."""
    return frozenset(read_device_id(device)[1] for device in allocated if device.startswith(f"{board.uuid}/"))


def _log_refusals(node: NodeState, steps: Mapping[int, Step]) -> None:
    for index, step in steps.items():
        if node.order and isinstance(step, Refuse):
            _log.info("plan_refused", node=node.name, gpu=index, plan=node.order.plan, why=step.why)
