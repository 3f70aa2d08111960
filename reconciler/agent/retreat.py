"""What is undone when the agent ends on a node that is not ours any more: nobody comes after it."""

from typing import Final

import structlog

from policies.placement import bin_gb
from reconciler.agent.driver import DriverError, GpuDriver, device_id
from reconciler.agent.kubelet import Kubelet, KubeletError

_log: Final = structlog.get_logger()


def retreat(driver: GpuDriver, kubelet: Kubelet) -> None:
    """Give up MPS on the boards of which no pod holds a slice: daemon, compute mode, slices. Raises nothing.

    Where a pod holds one, all stays for it; the log says what a person is to do when it has ended.
    """
    try:
        held, boards = kubelet.allocated().keys(), driver.boards()
    except (DriverError, KubeletError) as error:
        _log.warning("mps_not_given_up", error=str(error))
        return
    for uuid in (board.uuid for board in boards):
        try:
            bins = [item for item in driver.slices(uuid) if bin_gb(item.profile)]
            if driver.mps_enabled(uuid) is False and not bins:
                continue
            if any(device_id(uuid, item) in held for item in bins):
                todo = f"when its pods have ended: echo quit to its MPS control daemon, and nvidia-smi -i {uuid} -c DEFAULT"
                _log.warning("mps_not_given_up", board=uuid, error=f"pods hold slices of it; {todo}")
                continue
            for item in bins:
                driver.destroy(uuid, item)
            driver.disable_mps(uuid)
            _log.info("mps_given_up", board=uuid)
        except DriverError as error:
            _log.warning("mps_not_given_up", board=uuid, error=str(error))
