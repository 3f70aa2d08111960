"""A world's kubelet behind sockets: the agent's real `Kubelet`, and a server to which the world's pods come.

Has the methods of the simulated kubelet. An announcement is waited for, so that a world's clock, which is not ours, has no part in it.
"""

from typing import ClassVar

from reconciler.agent.deviceplugin.kubelet import GrpcKubelet
from reconciler.agent.grants import Grants
from tests.agent.kubelet import KubeletServer, Rejected


class SocketKubelet:
    """The kubelet of a world. What its containers get is asked of the driver that the world has then."""

    opened: ClassVar = []

    def __init__(self, world, allocated):
        self._world = world
        self.server = KubeletServer().start()
        self.server.holders = {device: (pod, "") for device, pod in allocated.items()}
        self._rejected = set()
        self._kubelet = GrpcKubelet(self.server.directory, Grants(self))
        SocketKubelet.opened.append(self)

    def device_uuid(self, board, item):
        return self._world.driver.device_uuid(board, item)

    def announce(self, devices):
        refused = self._kubelet.announce(devices)
        self.server.wait(lambda server: all(server.devices.get(name) == found for name, found in devices.items()))
        return refused

    def allocatable(self):
        return self._kubelet.allocatable()

    def allocated(self):
        """Return what pods hold, after those that have come or ended since the last call were seen to."""
        pods = {pod.key: pod for pod in self._world.pods.values() if pod.holds and pod.slices}
        for gone in {holder for holder, _ in self.server.holders.values()} - pods.keys():
            self.server.end(gone)
        served = {holder for holder, _ in self.server.holders.values()}
        for key in sorted(pods.keys() - served, key=lambda key: (pods[key].created, key)):
            self._admit(pods[key])
        return self._kubelet.allocated()

    @property
    def _holders(self):
        return self.server.holders

    def holds(self, device):
        return device in self.server.holders

    def close(self):
        self._kubelet.close()
        self.server.close()

    @classmethod
    def close_all(cls):
        while cls.opened:
            cls.opened.pop().close()

    def _admit(self, pod):
        for resource, count in pod.slices:
            try:
                self.server.admit(pod.key, resource, count)
            except Rejected as error:
                if pod.uid not in self._rejected:
                    self._rejected.add(pod.uid)
                    self._world.rejected.append((pod.key, str(error)))
