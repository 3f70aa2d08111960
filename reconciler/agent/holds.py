"""Which pods hold what of our boards: under ids of ours, and under those by which other device plugins give the same hardware.

The kubelet counts by ids, hardware does not: a pod that got a MIG device from NVIDIA's plugin, or from nos's, before we took
the node over still has it. Whatever the resource, what is held is what the id names: a MIG device or a board stands in it by
its UUID, with `::<n>` behind it where that plugin shares it, or as `MIG-<UUID of the board>/<GPU instance>/<compute instance>`
under drivers before R470.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from reconciler.agent.driver import DriverError, GpuDriver, Slice, device_id, is_ours
from reconciler.agent.kubelet import Holder
from reconciler.agent.node import NodeState
from reconciler.agent.remembered import known_boards


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod holds by a device that another plugin gave it.

    Attributes:
        holder: the pod.
        device: the id under which the kubelet knows it.
        board: UUID of our board that it is, or is of.
        item: the slice that it is; None: no slice that the driver knows, so all of the board is taken to be held.
    """

    holder: Holder
    device: str
    board: str
    item: Slice | None = None

    def __str__(self) -> str:
        what = "it" if self.item is None else str(self.item)
        return f"pod {self.holder} holds {what} as {self.device}, which another device plugin gave it: drain this pod"


class Holds(msgspec.Struct, frozen=True):
    """What pods hold.

    Attributes:
        allocated: id of ours -> pod, for every slice that is held, under whatever id.
        foreign: what is held under ids that are not ours: nobody else is to get it, and the kubelet cannot know that.
    """

    allocated: Mapping[str, Holder]
    foreign: tuple[Foreign, ...] = ()


class Holders:
    """Finds out who holds what. Used by one thread at a time.

    Remembers the UUIDs of MIG devices, since a board that does not answer cannot tell which of them are its own. Of one that has
    not answered since we started, what we reported last tells what its pods hold.

    Args:
        driver: which knows the UUIDs.
    """

    def __init__(self, driver: GpuDriver) -> None:
        self._driver = driver
        self._known: dict[tuple[str, Slice], str] = {}

    def look(self, held: Mapping[str, Holder], node: NodeState) -> Holds:
        """Return what pods hold. Raises DriverError.

        Args:
            held: what the kubelet says: id of whatever plugin -> pod.
            node: with what we reported last.
        """
        allocated = {device: holder for device, holder in held.items() if is_ours(device)}
        others = sorted(device for device in held.keys() - allocated if "GPU-" in device or "MIG-" in device)
        if not others:
            return Holds(allocated)
        boards = [board.uuid for board in known_boards(self._driver.boards(), node.inventory)]
        silent = self._learn(boards)
        named = {device: found for device in others if (found := self._named(device, held[device], boards))}
        nameless = {device: held[device] for device in others if device not in named and "MIG-" in device}
        foreign = (*named.values(), *_as_reported(nameless, node, silent, allocated))
        for found in foreign:
            if found.item is not None:
                allocated.setdefault(device_id(found.board, found.item), found.holder)
        return Holds(allocated, foreign)

    def _learn(self, boards: Iterable[str]) -> list[str]:
        """Ask boards for the UUIDs of their MIG devices; return those that do not answer."""
        silent = list[str]()
        for board in boards:
            try:
                self._known |= {(board, item): uuid for item, uuid in self._driver.device_uuids(board).items()}
            except DriverError:  # its fault tells of that
                silent.append(board)
        return silent

    def _named(self, device: str, holder: Holder, boards: list[str]) -> Foreign | None:
        for (board, item), uuid in self._known.items():
            if uuid in device:
                return Foreign(holder=holder, device=device, board=board, item=item)
        whole = next((uuid for uuid in boards if uuid in device), None)
        return Foreign(holder=holder, device=device, board=whole) if whole else None


def _as_reported(
    nameless: Mapping[str, Holder], node: NodeState, silent: Iterable[str], allocated: Collection[str]
) -> Iterator[Foreign]:
    """Yield what pods hold of boards that do not answer by MIG devices that nobody can name: what we last said they hold there."""
    devices = defaultdict[Holder, list[str]](list)
    for device, holder in nameless.items():
        devices[holder].append(device)
    for board in silent:
        for placed in node.reported_of(board):
            item = Slice(placed.profile, placed.start)
            of_pod = devices.get(placed.pod or "")
            if of_pod and item.start is not None and device_id(board, item) not in allocated:
                yield Foreign(holder=placed.pod or "", device=of_pod.pop(0), board=board, item=item)
