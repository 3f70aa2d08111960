"""Which UUID each device had when a container was told it: device id -> UUID, kept in a file.

The kubelet asks once for a device (Allocate), keeps the answer, and gives the same to every restart of the container, even
after a reboot in which the slice has got another UUID. Nobody else knows what is in that answer, so we remember it. A
device has one holder at a time, so what was told last is what its holder has.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from policies import names
from reconciler.agent.grants import Device, Grant, Naming
from reconciler.agent.statefile import StateFile


class Handed:
    """What containers of this node were told; any thread may ask.

    Args:
        path: the file; its directory exists.
    """

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path, dict[str, str], "the UUIDs that containers were given")
        self._turn = threading.Lock()

    def remembering(self, naming: Naming) -> Naming:
        """Return a naming that does the same and keeps the UUIDs which it tells, before it tells them.

        Of names that are looked up at each start of a container (CDI) there is nothing to be kept: they never grow old.
        """

        def name(devices: Sequence[Device]) -> Grant:
            grant = naming(devices)
            told = {device.id: device.uuid if names.VISIBLE_DEVICES in grant.envs else "" for device in devices}
            with self._turn:
                before = self._file.read() or {}
                after = {device: uuid for device, uuid in {**before, **told}.items() if uuid}
                if after != before:
                    self._file.write(after)
            return grant

        return name

    def check(self) -> None:
        """Raise StateError if what containers are told could not be kept now, so that none can be told anything."""
        with self._turn:
            self._file.check()

    def uuids(self) -> Mapping[str, str]:
        """Return device id -> UUID that its last holder was told. Raises DriverError."""
        with self._turn:
            return self._file.read() or {}
