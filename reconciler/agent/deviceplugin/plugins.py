"""Our device plugins at one kubelet, one per resource: kept served and registered, whatever becomes of sockets.

A kubelet that starts removes every socket in its directory and makes its own anew. Sockets are looked at once a second,
and at once when the kubelet hangs up: a few calls of stat, which also see a directory that was made anew (inotify
watches the old one for ever) and work on every file system that can be mounted.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from reconciler.agent.deviceplugin.endpoint import KUBELET_SOCKET, Endpoint, File, RefusedError, file_at
from reconciler.agent.deviceplugin.plugin import DevicePlugin
from reconciler.agent.grants import Grants
from reconciler.agent.kubelet import Devices, KubeletError, Models

LOOK_S: Final = 1.0
STOP_S: Final = 5.0

_log: Final = structlog.get_logger()


class Plugins:
    """All plugins of this node; any thread may call.

    Args:
        directory: where the kubelet's socket is.
        grants: what containers get.
        held: devices that pods hold, as far as is known.
        models: the models of the boards by UUID, as far as they are known.
        look_s: seconds between looks at the sockets.
    """

    def __init__(
        self,
        directory: Path,
        grants: Grants,
        held: Callable[[], Collection[str]],
        *,
        models: Models = dict,
        look_s: float = LOOK_S,
    ) -> None:
        self._directory = directory
        self._grants, self._held, self._models = grants, held, models
        self._look_s = look_s
        self._endpoints: dict[str, Endpoint] = {}
        self._refused: dict[str, str] = {}
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._keeper: threading.Thread | None = None

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to look after the sockets; `changed` is called when the kubelet is gone, and when it knows us again."""
        self._keeper = threading.Thread(target=self._keep, args=(changed,), name="device plugins", daemon=True)
        self._keeper.start()

    def alive(self) -> bool:
        """Return whether the sockets are looked after."""
        return self._keeper is not None and self._keeper.is_alive()

    def announce(self, devices: Devices) -> Mapping[str, str]:
        """Make these the devices; a resource that is not among them any more has none. Raises KubeletError.

        Return resource -> why, of those that the kubelet refuses.
        """
        with self._turn:
            for resource in self._refused.keys() - devices.keys():
                self._endpoints.pop(resource).close()
                del self._refused[resource]
            for resource in sorted(devices.keys() - self._endpoints.keys()):
                self._endpoints[resource] = self._endpoint(resource)
            for resource, endpoint in self._endpoints.items():
                endpoint.plugin.announce(devices.get(resource, {}))
        self.mend()
        return dict(self._refused)

    def mend(self) -> bool:
        """Serve and register what is not, and return whether any is now. Raises KubeletError.

        What the kubelet refuses is asked for again each time: nothing says when it would take it.
        """
        with self._turn:
            if self._stopped:
                return False
            socket = self._directory / KUBELET_SOCKET
            kubelet = file_at(socket)
            if kubelet is None:
                raise KubeletError(f"there is no {socket}: does a kubelet run, and does the agent see this directory?")
            down = [resource for resource, endpoint in self._endpoints.items() if not endpoint.up(kubelet)]
            registered = [resource for resource in down if self._open(resource, kubelet)]
            if registered:
                _log.info("device_plugins_registered", resources=registered)
            return bool(registered)

    def close(self) -> None:
        """Take all plugins from the kubelet, for which their devices are unhealthy then, and end."""
        with self._turn:
            self._stopped = True
            self._wake.set()
            for endpoint in self._endpoints.values():
                endpoint.close()
        if self._keeper:
            self._keeper.join(STOP_S)

    def _open(self, resource: str, kubelet: File) -> bool:
        """Serve and register one, and return whether the kubelet takes it. Raises KubeletError."""
        try:
            self._endpoints[resource].open(kubelet)
        except RefusedError as error:
            if self._refused.get(resource) != str(error):
                _log.warning("resource_refused", resource=resource, error=str(error))
            self._refused[resource] = str(error)
            return False
        self._refused.pop(resource, None)
        return True

    def _endpoint(self, resource: str) -> Endpoint:
        plugin = DevicePlugin(resource, self._grants, self._held, partial(self._dropped, resource), self._models)
        return Endpoint(self._directory, plugin)

    def _dropped(self, resource: str) -> None:
        self._endpoints[resource].drop()
        self._wake.set()

    def _keep(self, changed: Callable[[], None]) -> None:
        fault = ""
        while not self._stopped:
            self._wake.wait(self._look_s)
            self._wake.clear()
            try:
                if self.mend():
                    changed()
                fault = ""
            except KubeletError as error:
                if str(error) != fault:
                    _log.warning("device_plugins_down", error=str(error))
                    changed()
                fault = str(error)
