"""What is undone when the agent ends on a node that is not ours any more: nobody comes after it."""

from typing import Final

import structlog

from policies.placement import bin_gb
from reconciler.agent.driver import DriverError, GpuDriver, device_id
from reconciler.agent.holds import Holders, Holds
from reconciler.agent.kubelet import Kubelet, KubeletError
from reconciler.agent.node import NodeState

HELD: Final = (
    "pods hold it, so its MPS control daemon still serves them, and nobody ends it: give the node its label back, drain these "
    "pods, and take the label away again"
)

_log: Final = structlog.get_logger()


def retreat(driver: GpuDriver, kubelet: Kubelet, node: NodeState) -> tuple[str, ...]:
    """Give up MPS on the boards of which no pod holds anything: daemon, compute mode, slices.

    Return, for people, what is left of it and why: where a pod holds a slice, or the board by another plugin's device, all
    stays for it. Raises nothing.
    """
    try:
        holds, boards = Holders(driver).look(kubelet.allocated(), node), driver.boards()
    except (DriverError, KubeletError) as error:
        left = [f"whether anything of MPS is left is not known: {error}"]
    else:
        found = {f"GPU {board.index} ({board.uuid})": _give_up(driver, board.uuid, holds) for board in boards}
        left = [f"{board}: {why}" for board, why in found.items() if why]
    for why in left:
        _log.warning("mps_not_given_up", error=why)
    return tuple(left)


def _give_up(driver: GpuDriver, uuid: str, holds: Holds) -> str:
    """Give up MPS on a board; return why that cannot be, or ""."""
    try:
        bins = [item for item in driver.slices(uuid) if bin_gb(item.profile)]
        if driver.mps_enabled(uuid) is False and not bins:
            return ""
        ours = any(device_id(uuid, item) in holds.allocated for item in bins)
        if ours or any(held.board == uuid for held in holds.foreign):
            return HELD
        for item in bins:
            driver.destroy(uuid, item)
        driver.disable_mps(uuid)
    except DriverError as error:
        return str(error)
    _log.info("mps_given_up", board=uuid)
    return ""
