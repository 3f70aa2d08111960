"""What a pass finds of the boards of its node: by driver, kubelet, our own last report, and the files that fix layouts."""

from collections.abc import Collection, Iterable

import msgspec

from policies import names
from policies.annotations import BoardInventory, Placement
from policies.placement import bin_gb
from reconciler.agent.driver import DriverError, GpuDriver, Slice, base_id, device_id, order_key, read_device_id
from reconciler.agent.fixed.announced import Announced, announced, in_force, with_whole
from reconciler.agent.fixed.layout import Fixture
from reconciler.agent.fixed.layouts import FixedLayouts
from reconciler.agent.fixed.target import Target, lacking, layout_of
from reconciler.agent.holds import Foreign, Holds
from reconciler.agent.kubelet import Kubelet
from reconciler.agent.node import NodeState
from reconciler.agent.pace import Pace
from reconciler.agent.pods import Pods
from reconciler.agent.remembered import known_boards, known_slices
from reconciler.agent.restore import missing


class BoardState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of one board.

    Attributes:
        inventory: what it is; its `fault`, if any, keeps us, and the leader, from working on it.
        mode: how it is to be used: `mig`, `mps` or `timeslicing`.
        answers: whether the driver could tell of it; if not, it is shown as it was known last.
        healthy: whether its slices can serve.
        mps: whether it is kept for MPS: a control daemon serves it, or is being started again; None: a part of that is there.
        switching: whether MPS is to be off, with what no pod holds of it, or on again, whatever its fault: that may be the daemon's.
        slices: what the driver has, complete.
        orphans: what the driver has, incomplete.
        used: slices that pods hold, by the kubelet.
        listed: slices that the kubelet may give to pods now, or has given.
        withdrawn: what we have told the leader is withdrawn.
        foreign: what pods hold by devices of other plugins: nobody else is to get it.
        missing: what has gone without having been withdrawn, by a reboot or a reset, and can be made again (`restore`).
        fixed: the layout that a person has given it, which no order changes; None if the leader decides.
    """

    inventory: BoardInventory
    mode: str
    answers: bool = True
    healthy: bool = True
    mps: bool | None = False
    switching: bool = False
    slices: tuple[Slice, ...] = ()
    orphans: tuple[Slice, ...] = ()
    used: frozenset[Slice] = frozenset()
    listed: frozenset[Slice] = frozenset()
    withdrawn: tuple[Placement, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    missing: tuple[Slice, ...] = ()
    fixed: Target | None = None

    @property
    def fixture(self) -> Fixture | None:
        """Return what it is to be, if a person has fixed that."""
        return self.fixed.fixture if self.fixed else None

    def is_foreign(self, item: Slice) -> bool:
        """Return whether a pod holds a slice, or all of the board, by a device that another plugin gave it."""
        return any(held.item in (None, item) for held in self.foreign)

    def devices(self, allocated: Collection[str]) -> tuple[Announced, ...]:
        """Return the devices of all its slices, offered or not; `allocated`: ids of those that pods hold."""
        slices = sorted(self.slices, key=order_key)
        return tuple(one for item in slices for one in announced(self.inventory.uuid, item, self.fixture, allocated))


class Boards:
    """Looks at the boards of one node.

    Remembers what slices each had when it last answered.

    Args:
        driver: which knows what is on them.
        kubelet: which knows what of that is offered.
        fixed: the layouts that people have given to boards.
        pods: the pods of the node.
        pace: which boards are left alone, and how long ago something was told.
    """

    def __init__(self, driver: GpuDriver, kubelet: Kubelet, fixed: FixedLayouts, pods: Pods, pace: Pace) -> None:
        self._driver, self._kubelet, self._fixed, self._pods, self._pace = driver, kubelet, fixed, pods, pace
        self._slices: dict[str, tuple[Slice, ...]] = {}

    def look(self, node: NodeState, holds: Holds) -> dict[int, BoardState]:
        """Return the boards by index; what one cannot say is its fault. Raises DriverError, KubeletError."""
        listed = self._kubelet.allocatable()
        entries = known_boards(self._driver.boards(), node.inventory)
        fixtures = self._fixed.of(node.labels, node.mode, entries) if node.mode else {}
        found = {entry.index: self._board(node, entry, fixtures.get(entry.index), listed, holds) for entry in entries}
        # Of a node that is not ours any more only what is left of MPS is our concern.
        return {index: board for index, board in found.items() if node.mode or board.switching}

    def bear_mps(self) -> bool:
        """Return whether any board bears something of MPS: a daemon, slices, or what was set for it. Raises DriverError."""
        return any(self._driver.mps_enabled(board.uuid) is not False for board in self._driver.boards())

    def _board(
        self,
        node: NodeState,
        entry: BoardInventory,
        fixture: Fixture | None,
        listed: frozenset[str],
        holds: Holds,
    ) -> BoardState:
        fault, reported, allocated = entry.fault, node.reported_of(entry.uuid), holds.allocated
        foreign = tuple(held for held in holds.foreign if held.board == entry.uuid)
        try:
            slices, orphans = self._driver.slices(entry.uuid), self._driver.orphans(entry.uuid)
            mps = self._driver.mps_enabled(entry.uuid)
        except DriverError as error:  # that it cannot be asked is no sign that anything has gone
            known = self._slices.get(entry.uuid)
            slices = known_slices(_held(entry, allocated), reported) if known is None else known
            orphans, mps, fault, answers = (), False, fault or str(error), False
        else:
            self._slices[entry.uuid], answers = slices, True
        fixture = in_force(entry, fixture, allocated)
        slices = with_whole(entry, slices, fixture, allocated)
        mode = fixture.mode if fixture else entry.mode or node.mode
        serves = fault is None
        # A board that is held as a whole is left as it is, by us and by the leader; on it, nobody else is given anything.
        taken = next((str(held) for held in foreign if held.item is None), None)
        fault = fault or taken
        alone, of_mode = self._pace.left_alone(entry.uuid), mode_fault(entry, mode)
        fault = fault or alone or of_mode
        free = answers and not taken and not alone and not (fixture and fixture.kept)
        switching = free and _switches_mps(mode, mps, slices, of_mode)
        if switching and fixture is None and mode != names.MPS:
            fixture = Fixture(mode=mode, passing=True)
        used = _of_board(entry, slices, allocated)
        return BoardState(
            inventory=msgspec.structs.replace(entry, fault=fault),
            mode=mode,
            answers=answers,
            healthy=serves and (mps is not None or not any(bin_gb(item.profile) for item in slices)),
            mps=mps,
            switching=switching,
            slices=slices,
            orphans=orphans,
            used=used,
            listed=_of_board(entry, slices, listed),
            withdrawn=tuple(item.placement for item in reported if item.withdrawn),
            foreign=foreign,
            missing=missing(entry, mode, slices, _held(entry, allocated), reported),
            fixed=Target(
                fixture=fixture,
                layout=layout_of(entry, fixture, slices, used),
                lacking=lacking(self._pods(), frozenset(allocated.values())),
                settled=self._pace.has_settled(entry.uuid),
            )
            if fixture
            else None,
        )


def _switches_mps(mode: str, mps: bool | None, slices: Iterable[Slice], of_mode: str | None) -> bool:
    """Return whether MPS is to be switched by us whatever the fault; `of_mode`: what a person must do for the mode.

    Slices of a board that we can switch ourselves are for the leader to take away (docs/adr/0020); it plans nothing for a
    board that waits for a person, nor for one that is not ours any more. A daemon that was only to serve out what is left
    is called back when the mode is MPS again.
    """
    left = any(bin_gb(item.profile) for item in slices)
    if mode == names.MPS:
        return left and mps is False and of_mode is None
    return (of_mode is not None or not mode) if left else mps is not False


def mode_fault(board: BoardInventory, mode: str) -> str | None:
    """Return what a person must do before a board can be used in a mode; None if nothing."""
    if not mode:  # it is not ours
        return None
    if mode != names.MIG and board.mig:
        use = "MPS" if mode == names.MPS else "time-slicing"
        return f"MIG mode is on; for {use} run nvidia-smi -i {board.index} -mig 0"
    if mode != names.MIG or board.mig:
        return None
    if not (board.profiles if board.mig_capable is None else board.mig_capable):
        return f"{board.model} cannot do MIG; label the node {names.PARTITIONING_LABEL}={names.MPS}"
    if board.switch != "live":
        return f"MIG mode is off; stop what runs on it, run nvidia-smi -i {board.index} -mig 1 and reset it"
    return None


def _of_board(board: BoardInventory, slices: Iterable[Slice], devices: Iterable[str]) -> frozenset[Slice]:
    present = frozenset(map(base_id, devices))
    return frozenset(item for item in slices if device_id(board.uuid, item) in present)


def _held(board: BoardInventory, allocated: Iterable[str]) -> frozenset[Slice]:
    """Return the slices of a board that pods hold, whether they exist or not."""
    return frozenset(read_device_id(device)[1] for device in allocated if device.startswith(f"{board.uuid}/"))
