"""The kubelet's pod-resources service: which devices it may give to pods, and which pods hold which."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import grpc

from reconciler.agent.kubelet import Holder, KubeletError
from reconciler.agent.proto import podresources_pb2 as pb
from reconciler.agent.proto.podresources_pb2_grpc import PodResourcesListerStub

SOCKET: Final = "kubelet.sock"
MINIMUM: Final = "Apportion needs a kubelet of Kubernetes 1.30 or later"
ANSWER_S: Final = 5.0
# The kubelet answers 100 calls a second, and ten at once; beyond that it refuses at once.
REFUSED_S: Final = 0.05
_RATE: Final = "rate limit"  # of its words, unlike those of an answer that is too large

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 16 << 20),  # as the kubelet's own client has it
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),  # instead of two minutes: kubelets come back
)

Answer = TypeVar("Answer")


class PodResources:
    """The service; any thread may ask. Connects, and connects again, by itself.

    Args:
        directory: where its socket is; not the socket, which a kubelet that starts makes anew.
        sleep: how a pause passes, in seconds.
    """

    def __init__(self, directory: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._socket = directory / SOCKET
        self._sleep = sleep
        self._channel = grpc.insecure_channel(f"unix:{self._socket}", options=_OPTIONS)
        self._stub = PodResourcesListerStub(self._channel)

    def allocatable(self) -> Iterator[tuple[str, str]]:
        """Yield (resource, id) of every healthy device, held or not, of whatever plugin. Raises KubeletError."""
        answer: pb.AllocatableResourcesResponse = self._ask(
            "GetAllocatableResources", self._stub.GetAllocatableResources, pb.AllocatableResourcesRequest()
        )
        return ((found.resource_name, device) for found in answer.devices for device in found.device_ids)

    def pods(self) -> dict[Holder, list[str]]:
        """Return every pod that the kubelet knows, with its devices of whatever plugin. Raises KubeletError."""
        answer: pb.ListPodResourcesResponse = self._ask("List", self._stub.List, pb.ListPodResourcesRequest())
        return {
            f"{pod.namespace}/{pod.name}": [
                device for container in pod.containers for found in container.devices for device in found.device_ids
            ]
            for pod in answer.pod_resources
        }

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def _ask(self, method: str, call: Callable[..., Answer], request: object) -> Answer:
        patience_s = ANSWER_S
        while True:
            try:
                return call(request, timeout=ANSWER_S)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _RATE in error.details() and patience_s > 0:
                    patience_s -= REFUSED_S
                    self._sleep(REFUSED_S)
                    continue
                raise KubeletError(self._explain(method, error.code(), error.details())) from error

    def _explain(self, method: str, code: grpc.StatusCode, details: str) -> str:
        if not self._socket.exists():
            return f"there is no {self._socket}: does the agent see this directory? {MINIMUM}, with pod-resources"
        if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
            return f"the kubelet does not answer on {self._socket}: {details}"
        return f"the kubelet does not serve pod-resources {method} ({code.name}: {details}); {MINIMUM}"
