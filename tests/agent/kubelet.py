"""A stand-in for a kubelet: a real gRPC server that speaks both of its services on unix sockets, and calls plugins as it does.

It knows devices, and which pods hold them, but no pods: a test says when one arrives. Like the real one it removes every socket when it
starts, remembers devices and holders over a restart (its checkpoint), offers a resource only while its plugin is connected, and gives a
resource to the plugin that registered last.
"""
# ruff: noqa: N802

import contextlib
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from reconciler.agent.proto import deviceplugin_pb2 as pb
from reconciler.agent.proto import podresources_pb2 as rpb
from reconciler.agent.proto.deviceplugin_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from reconciler.agent.proto.podresources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from tests.apiserver.server import PATIENCE_S


class Rejected(Exception):  # noqa: N818
    """A pod cannot be admitted: it has failed for good."""


class KubeletServer:
    """A kubelet in a directory of its own."""

    def __init__(self):
        # Not in pytest's directory: the path of a unix socket has at most 107 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="kubelet-"))
        self.plugins, self.resources = self.directory / "device-plugins", self.directory / "pod-resources"
        self.devices = {}  # resource -> id -> healthy, as last heard
        self.holders = {}  # id -> (pod, resource)
        self.registered = []  # (resource, endpoint), in order
        self.refuses = {}  # resource -> (status, details) of Register
        self.answers = None  # an event that Register waits for, after it has called back
        self.refuses_reading = []  # (status, details) of the next calls of pod-resources; None: it is answered
        self.knows_pods = True  # whether it has its pods from the API server
        self.asked = []  # methods of pod-resources
        self._endpoints = {}  # resource -> _Endpoint
        self._changed = threading.Condition()
        self._servers, self._starts = [], 0
        for directory in (self.plugins, self.resources):
            directory.mkdir()

    # Life.

    def start(self, *, resources=True):
        """Start, or start again: with the devices of its checkpoint, none of which is offered before its plugin has registered."""
        self.devices = {name: dict.fromkeys(found, False) for name, found in self.devices.items()}
        for path in self.plugins.iterdir():
            path.unlink()
        self._serve(self.plugins, lambda server: add_RegistrationServicer_to_server(_Registration(self), server))
        if resources:
            self._serve(self.resources, lambda server: add_PodResourcesListerServicer_to_server(_Lister(self), server))
        return self

    def stop(self):
        """Stop as when it is killed: its sockets stay, and nobody serves them."""
        for server, pool in self._servers:
            server.stop(None).wait()
            pool.shutdown()
        self._servers = []
        for endpoint in self._endpoints.values():
            endpoint.hang_up()
        self._endpoints = {}

    def restart(self):
        self.stop()
        self.start()

    def close(self):
        self.stop()
        shutil.rmtree(self.directory)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    # What pods do.

    def admit(self, pod, resource, count=1):
        """Give a pod devices, as when it arrives; return what its container gets. Raises Rejected."""
        with self._changed:
            free = [
                device for device, ok in self.devices.get(resource, {}).items() if ok and device not in self.holders
            ]
            endpoint = self._endpoints.get(resource)
        if len(free) < count or endpoint is None:
            raise Rejected(f"Requested: {count}, Available: {len(free)}")
        if endpoint.options.get_preferred_allocation_available and len(free) > count:
            chosen = endpoint.prefer(free, count)
            assert set(chosen) <= set(free)
            free = chosen or free
        ids = sorted(free)[:count]
        answer = self.allocate(resource, *ids)
        with self._changed:
            self.holders |= dict.fromkeys(ids, (pod, resource))
            self._changed.notify_all()
        return answer

    def allocate(self, resource, *ids):
        """Call Allocate for these devices, whatever is known of them. Raises Rejected with the plugin's message."""
        try:
            return self._endpoints[resource].allocate(ids)
        except grpc.RpcError as error:
            raise Rejected(f"{error.code().name}: {error.details()}") from error

    def end(self, pod):
        """Take back what a pod holds."""
        self.holders = {device: holder for device, holder in self.holders.items() if holder[0] != pod}

    # What can be seen.

    def healthy(self):
        return {device for found in self.devices.values() for device, ok in found.items() if ok}

    def counts(self):
        """Return resource -> (capacity, allocatable), as it writes them into the node's status every ten seconds."""
        return {name: (len(found), sum(found.values())) for name, found in self.devices.items()}

    def wait(self, condition):
        """Wait until this holds of what it knows; it is asked whenever that has changed."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), PATIENCE_S), self.devices

    # Inside.

    def _serve(self, directory, add):
        pool = ThreadPoolExecutor(8)
        server = grpc.server(pool)
        add(server)
        self._starts += 1
        made = directory / f"{self._starts}.sock"  # which this server removes, perhaps late
        server.add_insecure_port(f"unix:{made}")
        server.start()
        made.replace(directory / "kubelet.sock")
        self._servers.append((server, pool))

    def _register(self, request):
        endpoint = _Endpoint(self, request.resource_name, self.plugins / request.endpoint)
        with self._changed:
            before = self._endpoints.get(request.resource_name)
            self._endpoints[request.resource_name] = endpoint
            self.registered.append((request.resource_name, request.endpoint))
        if before:
            before.hang_up()
        endpoint.listen()

    def _heard(self, endpoint, devices):
        with self._changed:
            if self._endpoints.get(endpoint.resource) is endpoint:
                self.devices = self.devices | {endpoint.resource: devices}
            self._changed.notify_all()

    def _lost(self, endpoint):
        self._heard(endpoint, dict.fromkeys(self.devices.get(endpoint.resource, {}), False))


class _Endpoint:
    """One plugin, as the kubelet knows it."""

    def __init__(self, kubelet, resource, path):
        self.resource = resource
        self._kubelet = kubelet
        self._channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])
        grpc.channel_ready_future(self._channel).result(PATIENCE_S)
        self._stub = DevicePluginStub(self._channel)
        self.options = self._stub.GetDevicePluginOptions(pb.Empty(), timeout=PATIENCE_S)
        self._thread = threading.Thread(target=self._run)

    def listen(self):
        self._stream = self._stub.ListAndWatch(pb.Empty())
        self._thread.start()

    def prefer(self, available, size, must=()):
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        answer = self._stub.GetPreferredAllocation(
            pb.PreferredAllocationRequest(container_requests=[asked]), timeout=PATIENCE_S
        )
        return [*answer.container_responses[0].deviceIDs]

    def allocate(self, ids):
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        return self._stub.Allocate(request, timeout=PATIENCE_S).container_responses[0]

    def hang_up(self):
        self._channel.close()
        if self._thread.ident is not None:  # else it never comes to listen
            self._thread.join(PATIENCE_S)

    def _run(self):
        with contextlib.suppress(grpc.RpcError, ValueError):  # ValueError: the channel was closed
            for answer in self._stream:
                self._kubelet._heard(self, {device.ID: device.health == "Healthy" for device in answer.devices})
        self._kubelet._lost(self)


class _Registration(RegistrationServicer):
    def __init__(self, kubelet):
        self._kubelet = kubelet

    def Register(self, request, context):
        assert request.version == "v1beta1"
        if refusal := self._kubelet.refuses.get(request.resource_name):
            context.abort(*refusal)
        self._kubelet._register(request)
        if self._kubelet.answers:
            self._kubelet.answers.wait(PATIENCE_S)
        return pb.Empty()


class _Lister(PodResourcesListerServicer):
    def __init__(self, kubelet):
        self._kubelet = kubelet

    def List(self, request, context):
        self._note("List", context)
        pods = {}
        for device, (pod, resource) in self._kubelet.holders.items() if self._kubelet.knows_pods else ():
            pods.setdefault(pod, {}).setdefault(resource, []).append(device)
        return rpb.ListPodResourcesResponse(
            pod_resources=[
                rpb.PodResources(
                    namespace=pod.partition("/")[0],
                    name=pod.partition("/")[2],
                    containers=[rpb.ContainerResources(name="main", devices=_devices(resources))],
                )
                for pod, resources in pods.items()
            ]
        )

    def GetAllocatableResources(self, request, context):
        self._note("GetAllocatableResources", context)
        healthy = {name: [one for one, ok in found.items() if ok] for name, found in self._kubelet.devices.items()}
        return rpb.AllocatableResourcesResponse(devices=_devices(healthy))

    def _note(self, method, context):
        with self._kubelet._changed:
            self._kubelet.asked.append(method)
            self._kubelet._changed.notify_all()
        if self._kubelet.refuses_reading and (refusal := self._kubelet.refuses_reading.pop(0)):
            context.abort(*refusal)


def _devices(resources):
    return [rpb.ContainerDevices(resource_name=name, device_ids=ids) for name, ids in resources.items()]
