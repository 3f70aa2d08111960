"""Whether the pods that hold slices can still use them: after a reboot, or the reset of a board, some cannot.

What follows is not ours to do. A pod that was told of a device which has been made anew has to go, since the kubelet tells
each restart of its containers the same; the leader evicts it (docs/adr/0023). A pod whose device does not exist is named in
an Event: the board may come back, and who deletes the pod decides that it will not.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from policies import names
from policies.view import PodView
from reconciler.agent.boards import BoardState
from reconciler.agent.driver import DriverError, GpuDriver, mig_uuids, read_device_id
from reconciler.agent.handed import Handed
from reconciler.agent.kubelet import Holder
from reconciler.agent.pods import Pods, Tell

_log: Final = structlog.get_logger()


class Tenants:
    """The pods that hold slices of one node; used by one thread at a time.

    Args:
        driver: which knows the UUIDs that devices have now.
        handed: which UUIDs the pods were told.
        pods: the pods of the node.
        tell: called once for each pod and device that does not exist.
    """

    def __init__(self, driver: GpuDriver, handed: Handed, pods: Pods, tell: Tell) -> None:
        self._driver, self._handed, self._pods, self._tell = driver, handed, pods, tell
        self._told: set[tuple[str, str]] = set()

    def look(self, allocated: Mapping[str, Holder], boards: Iterable[BoardState]) -> dict[str, str]:
        """Return device id -> uid of its holder, for each pod that was told of a device which is not there any more.

        Tells of devices that do not exist. What cannot be known now is no reason to send anybody away.
        """
        by_uuid = {board.inventory.uuid: board for board in boards}
        pods = {pod.key: pod for pod in self._pods()}
        held = {device: pods[holder] for device, holder in allocated.items() if holder in pods}
        self._tell_of({device: pod for device, pod in held.items() if not _exists(device, by_uuid)}, by_uuid)
        there = mig_uuids(self._driver, by_uuid.keys() & {read_device_id(device)[0] for device in held})
        told = self._uuids_told() if there else {}
        return {
            device: pod.uid
            for device, pod in held.items()
            if device in told and told[device] != there.get(read_device_id(device), told[device])
        }

    def _uuids_told(self) -> Mapping[str, str]:
        try:
            return self._handed.uuids()
        except DriverError as error:
            _log.error("uuids_told_not_known", error=str(error))
            return {}

    def _tell_of(self, gone: Mapping[str, PodView], boards: Mapping[str, BoardState]) -> None:
        for device, pod in gone.items():
            if (pod.uid, device) not in self._told:
                self._tell(pod, names.DEVICE_GONE, f"its device {device} is not there: {_why(device, boards)}")
        self._told = {(pod.uid, device) for device, pod in gone.items()}


def _exists(device: str, boards: Mapping[str, BoardState]) -> bool:
    uuid, item = read_device_id(device)
    return uuid in boards and item in boards[uuid].slices


def _why(device: str, boards: Mapping[str, BoardState]) -> str:
    uuid, item = read_device_id(device)
    if uuid not in boards:
        return "the node does not have this board any more"
    inventory = boards[uuid].inventory
    return inventory.fault or f"GPU {inventory.index} has no room for {item}"
