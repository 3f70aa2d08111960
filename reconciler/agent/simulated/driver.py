"""A GPU driver in memory: NVML's rules and errors, and those of a control daemon's MPS slices."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from policies.annotations import BoardInventory
from policies.boards import inventory_model
from reconciler.agent.driver import WHOLE, InUse, InvalidArgument, NotSupported, Slice, device_id
from reconciler.agent.rules import rejection

LIST: Final = "list slices"
CREATE_GPU_INSTANCE: Final = "create GPU instance"
CREATE_COMPUTE_INSTANCE: Final = "create compute instance"
DESTROY_COMPUTE_INSTANCE: Final = "destroy compute instance"
DESTROY_GPU_INSTANCE: Final = "destroy GPU instance"
CREATE_BIN: Final = "create MPS slice"
DESTROY_BIN: Final = "destroy MPS slice"
ENABLE_MIG: Final = "enable MIG mode"
SWITCH_MPS: Final = "switch MPS on or off"

Interrupt = Callable[[str, str, Slice | None], None]
"""Called before each operation, by its name above, with the board and the slice; what it raises happens instead."""


def never(_operation: str, _board: str, _item: Slice | None) -> None:
    """Interrupt nothing."""


class SimulatedDriver:
    """The boards of one simulated node. Used by one thread at a time, as all of a node's agent.

    Args:
        boards: what there is.
        present: slices that exist from the start, by UUID of their board.
        unavailable: why there is no driver; "" if there is one.
        in_use: tells whether a process holds the device of this id.
        call_s: what making or removing an instance takes, in seconds.
        sleep: how that time passes.
        interrupt: injects faults.
    """

    def __init__(
        self,
        boards: Iterable[BoardInventory],
        *,
        present: Mapping[str, Iterable[Slice]] | None = None,
        unavailable: str = "",
        in_use: Callable[[str], bool] = lambda _: False,
        call_s: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
        interrupt: Interrupt = never,
    ) -> None:
        self._boards = {board.uuid: board for board in boards}
        # Slice -> whether it is complete: a GPU instance without compute instance is not.
        self._on = {uuid: dict.fromkeys((present or {}).get(uuid, ()), True) for uuid in self._boards}
        self._mps: dict[str, bool] = {}  # boards with a control daemon, and whether it is for good
        self._unavailable = unavailable
        self._in_use = in_use
        self._call_s, self._sleep = call_s, sleep
        self._interrupt = interrupt

    def boards(self) -> tuple[BoardInventory, ...]:
        """Return the boards, by index. Raises NotSupported without a driver."""
        if self._unavailable:
            raise NotSupported(self._unavailable)
        return tuple(sorted(self._boards.values(), key=lambda board: board.index))

    def slices(self, board: str) -> tuple[Slice, ...]:
        """Return the complete slices. Raises InvalidArgument."""
        self._interrupt(LIST, board, None)
        return tuple(item for item, complete in self._of(board).items() if complete)

    def orphans(self, board: str) -> tuple[Slice, ...]:
        """Return GPU instances without a compute instance. Raises InvalidArgument."""
        return tuple(item for item, complete in self._of(board).items() if not complete)

    def create(self, board: str, item: Slice) -> None:
        """Make a slice. Raises NotSupported in the wrong mode, InvalidArgument, InsufficientResources."""
        present, entry, mig = self._of(board), self._boards[board], item.start is not None
        if mig is not entry.mig:
            raise NotSupported(f"MIG mode of GPU {entry.index} is {'on' if entry.mig else 'off'}")
        if not (mig or board in self._mps):
            raise NotSupported(f"no MPS control daemon is kept for GPU {entry.index}")
        if item in present:
            raise InvalidArgument(f"{item} exists already")
        if error := rejection(inventory_model(entry), [one.placement for one in present], item.placement):
            raise error
        self._work(CREATE_GPU_INSTANCE if mig else CREATE_BIN, board, item)
        present[item] = not mig
        if mig:
            try:
                self._interrupt(CREATE_COMPUTE_INSTANCE, board, item)
            except Exception:
                del present[item]
                raise
            present[item] = True

    def destroy(self, board: str, item: Slice) -> None:
        """Remove a slice or an orphan. Raises InUse, InvalidArgument."""
        present = self._of(board)
        if item not in present:
            raise InvalidArgument(f"there is no {item}")
        if present[item] and self._in_use(device_id(board, item)):  # no process runs where there is no compute instance
            raise InUse(f"{item} is in use by another client")
        if item.start is None:
            self._work(DESTROY_BIN, board, item)
        else:
            if present[item]:
                self._interrupt(DESTROY_COMPUTE_INSTANCE, board, item)
                present[item] = False
            self._work(DESTROY_GPU_INSTANCE, board, item)
        del present[item]

    def enable_mig(self, board: str) -> None:
        """Switch MIG mode on. Raises NotSupported where that needs a reset, InUse if the board has slices."""
        present, entry = self._of(board), self._boards[board]
        if entry.switch != "live" or not entry.profiles:
            raise NotSupported(f"{entry.model} cannot switch MIG mode on without a reset")
        if present:
            raise InUse(f"GPU {entry.index} is in use by another client")
        self._work(ENABLE_MIG, board, None)
        self._boards[board] = msgspec.structs.replace(entry, mig=True)

    def mps_enabled(self, board: str) -> bool | None:
        """Return whether the board has a control daemon for good; None: slices without one, or one without. Raises InvalidArgument."""
        left = any(item.start is None for item in self._of(board))
        return self._mps.get(board) or (None if left is not (board in self._mps) else False)

    def enable_mps(self, board: str) -> None:
        """Give the board a control daemon. Raises NotSupported in MIG mode."""
        if self._of(board) is not None and self._boards[board].mig:
            raise NotSupported(f"MIG mode of GPU {self._boards[board].index} is on")
        self._work(SWITCH_MPS, board, None)
        self._mps[board] = True

    def disable_mps(self, board: str) -> None:
        """Take the control daemon from the board when it has no MPS slices any more. Raises InvalidArgument."""
        if any(item.start is None for item in self._of(board)):
            self._mps[board] = False
            return
        self._work(SWITCH_MPS, board, None)
        self._mps.pop(board, None)

    def device_uuid(self, board: str, item: Slice) -> str:
        """Return a UUID that goes by board and placement; of a MIG slice made again a real one differs. Raises InvalidArgument."""
        if not self._of(board).get(item, item == WHOLE):
            raise InvalidArgument(f"there is no {item}")
        return board if item.start is None else f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, device_id(board, item))}"

    def device_uuids(self, board: str) -> dict[Slice, str]:
        """Return the UUIDs of all MIG slices of a board. Raises InvalidArgument."""
        whole = [item for item, complete in self._of(board).items() if complete and item.start is not None]
        return {item: self.device_uuid(board, item) for item in whole}

    def fail(self, board: str, fault: str | None) -> None:
        """Let a board become unable to serve (an XID error, a dead daemon), or recover: None."""
        self._boards[board] = msgspec.structs.replace(self._boards[board], fault=fault)

    def _work(self, operation: str, board: str, item: Slice | None) -> None:
        self._interrupt(operation, board, item)
        if self._call_s:
            self._sleep(self._call_s)

    def _of(self, board: str) -> dict[Slice, bool]:
        if board not in self._on:
            raise InvalidArgument(f"there is no board {board}")
        return self._on[board]
