"""A kubelet's device manager in memory: gives devices to bound pods as the kubelet does when they arrive.

In one point it is kinder than a real one. A pod for which no device is left when it arrives has failed for good there
(UnexpectedAdmissionError); here kwok runs it all the same, so the manager says what would have happened, and gives the
pod its device as soon as there is one.
"""

import time
from collections.abc import Callable, Mapping

from policies import names
from policies.catalogue import BoardModel
from policies.needs import is_slice
from policies.view import PodView
from reconciler.agent.driver import base_id
from reconciler.agent.kubelet import Devices, Holder, preferred
from reconciler.agent.pods import Pods, Tell


class SimulatedKubelet:
    """The device manager of one simulated node. Used by one thread at a time, as all of a node's agent.

    Args:
        pods: the pods of the node.
        announced: devices that it knows from the start.
        allocated: device id -> pod that holds it from the start.
        tell: called once of each pod that a real kubelet would fail, with its message.
        delay_s: what it takes to take over an announcement, in seconds.
        clock: monotonic, in seconds.
        models: the models of its boards, by UUID.
    """

    def __init__(
        self,
        pods: Pods,
        *,
        announced: Devices | None = None,
        allocated: Mapping[str, Holder] | None = None,
        tell: Tell = lambda _pod, _reason, _message: None,
        delay_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        models: Mapping[str, BoardModel] | None = None,
    ) -> None:
        self._pods, self._models = pods, models or {}
        self._known: Devices = announced or {}
        self._announced = self._known
        self._coming: list[tuple[float, Devices]] = []
        self._holders: dict[str, tuple[Holder, str]] = {
            device: (holder, "") for device, holder in (allocated or {}).items()
        }
        self._tell = tell
        self._rejected: set[str] = set()
        self._delay_s, self._clock = delay_s, clock

    def announce(self, devices: Devices) -> Mapping[str, str]:
        """Take these devices over after the delay; none is refused."""
        if devices != self._announced:
            self._announced = devices
            self._coming.append((self._clock() + self._delay_s, devices))
        return {}

    def allocatable(self) -> frozenset[str]:
        """Return the ids of the healthy devices that it knows by now."""
        while self._coming and self._coming[0][0] <= self._clock():
            _, self._known = self._coming.pop(0)
        return frozenset(device for devices in self._known.values() for device, healthy in devices.items() if healthy)

    def allocated(self) -> Mapping[str, Holder]:
        """Return which pod holds which device; pods that have come or ended since the last call are seen to first."""
        pods = {pod.key: pod for pod in self._pods() if pod.holds and pod.slices}
        self._release(pods)
        served = {holder for holder, _ in self._holders.values()}
        for pod in sorted(pods.values(), key=lambda pod: (pod.created, pod.key)):
            if pod.key not in served:
                self._admit(pod)
        self._rejected &= {pod.uid for pod in pods.values()}
        return {device: holder for device, (holder, _) in self._holders.items()}

    def holds(self, device: str) -> bool:
        """Return whether a pod holds this device, or a turn on it."""
        return any(base_id(held) == device for held in self._holders)

    def _release(self, pods: Mapping[Holder, PodView]) -> None:
        """Take devices back from pods that are gone; a uid that was not remembered is that of the pod of this name."""
        self._holders = {
            device: (holder, pod.uid)
            for device, (holder, uid) in self._holders.items()
            if (pod := pods.get(holder)) is not None and uid in ("", pod.uid)
        }

    def _admit(self, pod: PodView) -> None:
        known = self.allocatable()
        chosen: list[str] = []
        for resource, count in pod.slices:
            if not (is_slice(resource) or resource in self._known):
                continue  # no device plugin has to do with it
            free = [
                device for device in self._known.get(resource, ()) if device in known and device not in self._holders
            ]
            devices = preferred(free, count, self._holders, models=self._models)
            if len(devices) < count:
                if pod.uid not in self._rejected:
                    self._rejected.add(pod.uid)
                    self._tell(
                        pod,
                        names.ADMISSION_ERROR,
                        f"Allocate failed due to requested number of devices unavailable for {resource}. "
                        f"Requested: {count}, Available: {len(devices)}, which is unexpected",
                    )
                return
            chosen += devices
        self._holders |= dict.fromkeys(chosen, (pod.key, pod.uid))
