"""What an MPS slice is worth, and what a container gets with it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from policies.annotations import BoardInventory
from policies.boards import inventory_model
from policies.placement import bin_gb
from reconciler.agent.driver import InvalidArgument, Slice
from reconciler.agent.grants import Device, Grant, Mount
from reconciler.agent.mps.site import PIPES, MpsSite

LIMIT: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
FIRST: Final = 0  # the board that a container sees, whichever it is on the node: another number limits nothing (A01)
SHM: Final = Path("/dev/shm")  # noqa: S108 (no file of ours: clients and servers exchange data in the node's)


def limit_mib(board: BoardInventory, profile: str) -> int:
    """Return the memory that a client may have by an MPS slice, in MiB, rounded down: its part of what is usable.

    So all slices of a board together are never more than it has: two of 20 GB on a board of 40 GB with 40536 MiB get
    20268 MiB each. Raises InvalidArgument for a profile of another kind.
    """
    gigabytes = bin_gb(profile)
    if gigabytes is None:
        raise InvalidArgument(f"{profile} is no MPS slice")
    return gigabytes * board.memory_mib // inventory_model(board).nominal_gb


def backstop_mib(board: BoardInventory, slices: Iterable[Slice]) -> int | None:
    """Return the memory that no client of a board may exceed, in MiB: that of its largest slice; of 1 GB where none is.

    None before Volta, where MPS knows no limits: NVIDIA gives none there, and clients were seen to fail with one.
    """
    if not inventory_model(board).volta:
        return None
    return max((limit_mib(board, item.profile) for item in slices), default=limit_mib(board, "1gb"))


class Sharing:
    """Gives containers what they need to share a board by MPS, by `grants.Sharing`.

    Args:
        site: where the daemons live.
        boards: returns the boards of the node; raises DriverError.
    """

    def __init__(self, site: MpsSite, boards: Callable[[], Iterable[BoardInventory]]) -> None:
        self._site, self._boards = site, boards

    def __call__(self, device: Device) -> Grant:
        """Return limit, where there is one, daemon and shared memory; nothing if it is no MPS slice. Raises DriverError."""
        if bin_gb(device.item.profile) is None:
            return Grant()
        board = next((board for board in self._boards() if board.uuid == device.board), None)
        if board is None:
            raise InvalidArgument(f"there is no board {device.board}")
        # The same path as on the node: slices of two boards then ask for two daemons, which is refused.
        pipes = str(self._site.pipes(device.board))
        limited = inventory_model(board).volta
        limit = {LIMIT: f"{FIRST}={limit_mib(board, device.item.profile)}M"} if limited else {}
        return Grant(
            envs={**limit, PIPES: pipes},
            mounts=(
                Mount(host_path=pipes, container_path=pipes),
                Mount(host_path=str(SHM), container_path=str(SHM)),
            ),
        )
