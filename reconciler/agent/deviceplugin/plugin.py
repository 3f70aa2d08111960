"""The device plugin of one resource: what it answers to the kubelet.

It gives only what it announces at that moment: a device that was withdrawn is refused, even if the kubelet has not
heard of it yet. Names and arguments of the methods are those of the protocol.
"""
# ruff: noqa: N802, ARG002

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import grpc
import structlog

from reconciler.agent.driver import DriverError, InvalidArgument
from reconciler.agent.grants import Grant, Grants
from reconciler.agent.kubelet import Models, preferred
from reconciler.agent.proto import deviceplugin_pb2 as pb
from reconciler.agent.proto.deviceplugin_pb2_grpc import DevicePluginServicer

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
OPTIONS: Final = pb.DevicePluginOptions(get_preferred_allocation_available=True)

_log: Final = structlog.get_logger()


class DevicePlugin(DevicePluginServicer):
    """Answers for one resource; any thread may call.

    Args:
        resource: its name.
        grants: what containers get.
        held: devices of any resource that pods hold, as far as is known.
        dropped: called when the kubelet has hung up.
        models: the models of the boards by UUID, as far as they are known.
    """

    def __init__(
        self,
        resource: str,
        grants: Grants,
        held: Callable[[], Collection[str]],
        dropped: Callable[[], None],
        models: Models = dict,
    ) -> None:
        self.resource = resource
        self._grants, self._held, self._dropped, self._models = grants, held, dropped, models
        self._devices: Mapping[str, bool] = {}
        self._changed = threading.Condition()
        self._listener: object | None = None  # the stream that began last

    def announce(self, devices: Mapping[str, bool]) -> None:
        """Make these its devices, id -> healthy, and tell the kubelet, if it listens, when they are others."""
        with self._changed:
            if devices != self._devices:
                self._devices = dict(devices)
                self._changed.notify_all()

    @property
    def listened_to(self) -> bool:
        """Return whether the kubelet listens."""
        return self._listener is not None

    def forget(self) -> None:
        """Count on no listener that there was: we hang up."""
        self._listener = None

    def GetDevicePluginOptions(self, request: pb.Empty, context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        """Return that we are to be asked which devices are preferred."""
        return OPTIONS

    def ListAndWatch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        """Yield all devices, now and after each change, until the kubelet or we hang up, or it listens anew."""
        with self._changed:
            self._listener = context
            self._changed.notify_all()
        if not context.add_callback(partial(self._ended, context)):
            self._ended(context)
        told: Mapping[str, bool] | None = None
        while (told := self._next(told, context)) is not None:
            yield pb.ListAndWatchResponse(
                devices=[
                    pb.Device(ID=device, health=HEALTHY if healthy else UNHEALTHY)
                    for device, healthy in sorted(told.items())
                ]
            )

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        """Return which of the available devices a container should get, those that it has already among them."""
        held, models = self._held(), self._models()
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(
                    deviceIDs=preferred(
                        asked.available_deviceIDs, asked.allocation_size, held, asked.must_include_deviceIDs, models
                    )
                )
                for asked in request.container_requests
            ]
        )

    def Allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        """Return what containers get with their devices; the pod fails with our message if they cannot have them."""
        try:
            answers = [_answer(self._grant(asked.devices_ids)) for asked in request.container_requests]
        except DriverError as error:
            _log.warning("allocation_refused", resource=self.resource, error=str(error))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise
        return pb.AllocateResponse(container_responses=answers)

    def _grant(self, ids: Iterable[str]) -> Grant:
        devices = self._devices
        for one in ids:
            if one not in devices:
                raise InvalidArgument(f"{one} is not, or no longer, announced as {self.resource}")
            if not devices[one]:
                raise InvalidArgument(f"{one} cannot serve now: its board has failed")
        grant = self._grants.grant(ids)
        _log.info("allocated", resource=self.resource, devices=[*ids])
        return grant

    def _next(self, told: Mapping[str, bool] | None, context: grpc.ServicerContext) -> Mapping[str, bool] | None:
        """Wait for devices other than those that were told, and return them; None when the stream has ended."""
        with self._changed:
            while context.is_active() and self._listener is context:
                if self._devices is not told:
                    return self._devices
                self._changed.wait()
        return None

    def _ended(self, context: grpc.ServicerContext) -> None:
        """Note that a stream has ended: told by gRPC, which then need not ask for more of what is yielded."""
        with self._changed:
            self._changed.notify_all()
        if self._listener is context:
            self._listener = None
            self._dropped()


def _answer(grant: Grant) -> pb.ContainerAllocateResponse:
    return pb.ContainerAllocateResponse(
        envs=grant.envs,
        mounts=[
            pb.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in grant.mounts
        ],
        cdi_devices=[pb.CDIDevice(name=name) for name in grant.cdi_devices],
    )
