"""One pass over one node: observe, decide, carry out, announce, report. Everything that happens to boards happens here.

A pass looks at everything afresh and may be run at any time, any number of times. What it cannot finish, because the
kubelet has not taken over an announcement or a board has failed, it asks to be run for again.
"""

import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
import structlog

from policies import names
from policies.annotations import BoardInventory
from reconciler.agent.boards import Boards, BoardState
from reconciler.agent.driver import DriverError, GpuDriver
from reconciler.agent.fixed.announced import offered
from reconciler.agent.fixed.layouts import FixedLayouts
from reconciler.agent.holds import Holders, Holds
from reconciler.agent.kubelet import Devices, Holder, Kubelet, KubeletBehind, KubeletError
from reconciler.agent.neighbours import unheeded
from reconciler.agent.node import NodeState
from reconciler.agent.pace import KUBELET_PATIENCE_S, Pace, next_poll_s
from reconciler.agent.pods import Pods
from reconciler.agent.report import Patch, report, report_away, report_failed, report_no_boards, report_verdict
from reconciler.agent.statefile import StateError
from reconciler.agent.steps import Keep, Recut, Refuse, Step, Withdraw, Work, carry_out, next_steps
from reconciler.agent.tenants import Tenants
from reconciler.agent.verdict import NOT_OURS, Verdict, verdict

ROUNDS: Final = 4  # no more MPS, MIG mode, what was lost, what is ordered; then nothing is left to do
LOOK_AGAIN_S: Final = 5.0  # for a driver or a kubelet that does not answer

_NAMED: Final = 3  # devices in a message; with one of them one can look for the others

_log: Final = structlog.get_logger()


NameDevices = Callable[[Iterable[str], Collection[str]], None]
"""Takes the ids of all devices that exist, and of those that pods hold. Raises StateError if no container can be told them."""


class Outcome(msgspec.Struct, frozen=True):
    """What is left to do after a pass.

    Attributes:
        patch: for nodes/status; None if the node says all that already.
        again_s: seconds after which another pass is due, whatever happens; None if none is.
    """

    patch: Patch | None
    again_s: float | None = None


class NodeAgent:
    """The agent of one node, of a driver and a kubelet; used by one thread at a time.

    Between passes it remembers only how to pace itself, and what it has announced. `tenants` looks after the pods that hold
    slices, where what they were told can grow old. `fixed` says which layouts people have given to boards; `pods` returns the
    pods that are bound to the node, of which the kubelet may not know yet. `name_devices` is told of all devices before they
    are announced. `ticks` is monotonic, in seconds.
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
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._kubelet = kubelet
        self._tenants = tenants
        self._fixed = fixed or FixedLayouts()
        self._pods = pods
        self._name = name_devices
        self._pace = Pace(ticks)
        self._announced: Devices = {}
        self._boards = Boards(driver, kubelet, self._fixed, pods, self._pace)
        self._holders = Holders(driver)

    def act(self, node: NodeState, now: float) -> Outcome:
        """Bring the boards as far towards the order as can be now, at `now` seconds since the epoch."""
        try:
            return self._act(node, now) if node.mode else self._not_ours(node, now)
        except DriverError as error:
            patch = report_no_boards(node, Verdict(ok=False, reason=names.NO_BOARDS, message=str(error)), now)
        except KubeletBehind as error:
            return self._wait_for_kubelet(node, str(error), now)
        except KubeletError as error:
            # Who mends one of the two is not to find the other then.
            message = "; ".join((str(error), *self._driver_fault()))
            patch = report_away(node, Verdict(ok=False, reason=names.KUBELET_DISAGREES, message=message), now)
        return Outcome(patch, again_s=LOOK_AGAIN_S)

    def failed(self, node: NodeState, error: Exception, now: float) -> Patch | None:
        """Return what to say of a node on which `act` has raised this: reason, place and way out, and no more on offer than is.

        Raises nothing of its own: a kubelet that does not answer offers nothing.
        """
        *_, where = traceback.extract_tb(error.__traceback__)
        message = (
            f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno}): the agent tries again, up to "
            "once a minute; if it stays, it is a fault of Apportion: report it, with pass_failed of the agent's log"
        )
        try:
            listed = self._kubelet.allocatable()
        except KubeletError:
            listed = frozenset()
        offered = {resource: len(listed.intersection(found)) for resource, found in self._announced.items()}
        return report_failed(node, Verdict(ok=False, reason=names.AGENT_FAILED, message=message), offered, now)

    def _act(self, node: NodeState, now: float) -> Outcome:
        holds = self._holders.look(self._kubelet.allocated(), node)
        allocated = holds.allocated
        boards, steps = self._work(node, holds)
        unnamed = self._name_devices(boards.values(), allocated)
        if unnamed:
            boards = {index: msgspec.structs.replace(board, healthy=False) for index, board in boards.items()}
        asks = {pod.key: frozenset(name for name, _ in pod.slices) for pod in self._pods()}
        devices = _devices(node, boards.values(), steps, allocated, asks)
        self._announced = devices
        refused = self._kubelet.announce(devices)
        listed = self._kubelet.allocatable()
        self._note_told(boards.values(), steps)
        healthy = _healthy(devices, refused)
        if listed != healthy:
            return self._wait_for_kubelet(node, _disagreement(healthy, listed), now)
        self._pace.kubelet_agrees()
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
            verdict=verdict(
                node,
                boards.values(),
                devices.keys(),
                [
                    *((names.LAYOUT_INVALID, fault) for fault in self._fixed.faults),
                    *((names.STATE_NOT_KEPT, fault) for fault in unnamed),
                    *((names.KUBELET_DISAGREES, fault) for fault in refused.values()),
                ],
                self._pace,
            ),
            now=now,
        )
        look_s = [self._pace.next_look_s(), *(LOOK_AGAIN_S for board in boards.values() if not board.answers)]
        return Outcome(patch, again_s=min((pause_s for pause_s in look_s if pause_s is not None), default=None))

    def _driver_fault(self) -> Iterator[str]:
        """Yield why the driver knows no boards, if so."""
        try:
            self._driver.boards()
        except DriverError as error:
            yield str(error)

    def _not_ours(self, node: NodeState, now: float) -> Outcome:
        """Undo what was set of a node that has lost its label; of one that never had it, or a wrong one, nothing is touched."""
        if message := "; ".join((*node.faults, *unheeded(node))):
            return Outcome(report_verdict(node, Verdict(ok=False, reason=names.NODE_UNREADABLE, message=message), now))
        if node.condition is None:
            return Outcome(None)
        if node.resources or self._boards.bear_mps():
            return self._act(msgspec.structs.replace(node, order=None), now)
        return Outcome(report_verdict(node, NOT_OURS, now))

    def _work(self, node: NodeState, holds: Holds) -> tuple[dict[int, BoardState], dict[int, Step]]:
        """Carry out what can be done now; return the boards as they are then, and what remains to be waited for.

        A driver that claims success and changes nothing is not asked for ever: then the board has failed.
        """
        for done in count():
            boards = self._boards.look(node, holds)
            steps = next_steps(node.order, boards)
            work = [(boards[index], step) for index, step in steps.items() if isinstance(step, Work)]
            if not work:
                break
            for board, step in work:
                if done < ROUNDS:
                    self._carry_out(node, board.inventory, step)
                else:
                    self._fail(node, board.inventory, "the driver reports success, but nothing has changed")
        return boards, steps

    def _name_devices(self, boards: Iterable[BoardState], allocated: Mapping[str, Holder]) -> list[str]:
        """Tell of all devices before they are announced; return why no container can be told any, if so."""
        try:
            if self._name:
                self._name([one.id for board in boards for one in board.devices(allocated)], allocated)
        except StateError as error:
            return [str(error)]
        return []

    def _note_told(self, boards: Iterable[BoardState], steps: Mapping[int, Step]) -> None:
        """Note of which boards with a fixed layout the API server knows all that is withdrawn."""
        for board in boards:
            step, uuid = steps[board.inventory.index], board.inventory.uuid
            if board.fixed and isinstance(step, Withdraw) and board.fixed.is_told(step.slices, board.withdrawn):
                self._pace.told(uuid)
            else:
                self._pace.not_told(uuid)

    def _carry_out(self, node: NodeState, board: BoardInventory, step: Work) -> None:
        log = _log.bind(node=node.name, board=board.uuid, plan=node.order.plan if node.order else "")
        try:
            carry_out(step, board.uuid, self._driver)
        except DriverError as error:
            self._fail(node, board, str(error))
            return
        self._pace.succeeded(board.uuid)
        if isinstance(step, Recut):
            log.info("board_recut", destroyed=[*map(str, step.destroy)], created=[*map(str, step.create)])
        else:
            log.info("board_switched", step=str(step))

    def _fail(self, node: NodeState, board: BoardInventory, why: str) -> None:
        pause_s = self._pace.failed(board.uuid, why)
        _log.warning("board_failed", node=node.name, board=board.uuid, error=why, again_s=pause_s)

    def _wait_for_kubelet(self, node: NodeState, why: str, now: float) -> Outcome:
        """Return what to do while the kubelet does not agree: nothing is reported that it does not say as well."""
        waited_s = self._pace.kubelet_behind_s()
        patch = None
        if waited_s >= KUBELET_PATIENCE_S:
            patch = report_verdict(node, Verdict(ok=False, reason=names.KUBELET_DISAGREES, message=why), now)
        return Outcome(patch, again_s=next_poll_s(waited_s))


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
    """Return what is to be announced, and whether it can serve: all that exists but for what is withdrawn.

    What a pod holds by a device of another plugin cannot: it is announced as Unhealthy, which neither takes a slice from a
    pod of ours on the same board nor tells anybody that it is to go. Of a resource that has no devices any more, that it has none.
    """
    devices: dict[str, dict[str, bool]] = {resource: {} for resource in node.resources}
    for board in boards:
        step = steps[board.inventory.index]
        withdrawn = step.slices if isinstance(step, Withdraw) else ()
        for item in board.slices:
            if item not in withdrawn:
                serves = board.healthy and not board.is_foreign(item)
                for device in offered(board.inventory.uuid, item, board.fixture, allocated, asks):
                    devices.setdefault(device.resource, {})[device.id] = serves
    return devices


def _healthy(devices: Devices, refused: Collection[str]) -> frozenset[str]:
    """Return the devices that pods can get, but for those of resources that the kubelet refuses."""
    taken = (found for resource, found in devices.items() if resource not in refused)
    return frozenset(device for found in taken for device, healthy in found.items() if healthy)


def _disagreement(announced: frozenset[str], listed: frozenset[str]) -> str:
    """Return in what the kubelet differs, by the ids of devices."""
    kinds = (("does not offer", announced - listed), ("offers, without or against our word,", listed - announced))
    found = [f"{how} {_few(sorted(devices))}" for how, devices in kinds if devices]
    return f"the kubelet {' and '.join(found)}"


def _few(devices: Sequence[str]) -> str:
    more = len(devices) - _NAMED
    return ", ".join(devices[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _log_refusals(node: NodeState, steps: Mapping[int, Step]) -> None:
    for index, step in steps.items():
        if node.order and isinstance(step, Refuse):
            _log.info("plan_refused", node=node.name, gpu=index, plan=node.order.plan, why=step.why)
