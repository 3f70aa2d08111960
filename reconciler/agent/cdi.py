"""Names devices to containers by CDI: Allocate answers a name only, and a file of ours says what it stands for.

The kubelet asks once for a device and replays the answer to each restart of a container. A name is looked up by the
container runtime at each start, so what it stands for may change: after a reboot a MIG slice has another UUID, and the
containers that hold it go on with that. Source: cncf-tags/container-device-interface, SPEC.md, version 0.6.0.
"""

import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from policies import names
from reconciler.agent.driver import GpuDriver, mig_uuids, read_device_id
from reconciler.agent.grants import Device, Grant
from reconciler.agent.statefile import StateError, StateFile, replace

KIND: Final = "nos.nebuly.com/slice"
_VERSION: Final = "0.6.0"
_FILE: Final = "nos.nebuly.com-slice.json"


class CdiDevices:
    """The file of CDI devices of this node; a `Naming` that any thread may call.

    Two devices of one container would each set the variable, and one would win. So they get a name together.

    Args:
        driver: which knows the UUIDs.
        state: a file that outlives a reboot, for devices that have a name together; its directory exists.
        directory: where the container runtime looks for the file.
    """

    def __init__(self, driver: GpuDriver, state: Path, directory: Path) -> None:
        self._driver, self._path = driver, directory / _FILE
        self._kept = StateFile(state, list[tuple[str, ...]], "the devices that containers have together")
        self._uuids: dict[str, str] = {}
        self._groups: set[tuple[str, ...]] | None = None
        self._turn = threading.Lock()

    def __call__(self, devices: Sequence[Device]) -> Grant:
        """Name the devices of a container, in a file that says so already. Raises DriverError."""
        ids = tuple(sorted(device.id for device in devices))
        with self._turn:
            self._uuids |= {device.id: device.uuid for device in devices}
            groups = self._known()
            if len(ids) > 1 and ids not in groups:
                self._kept.write(sorted({*groups, ids}))
                groups.add(ids)
            self._write()
        return Grant(cdi_devices=(f"{KIND}={cdi_name(ids)}",))

    def refresh(self, ids: Iterable[str], held: Collection[str]) -> None:
        """Say of devices what they stand for now; to be called before they are announced. Raises DriverError.

        Args:
            ids: all that there are, announced or not: one may have been given away since anybody looked.
            held: what pods hold.
        """
        with self._turn:
            if self._groups is None:  # nothing is being allocated before the first announcement
                self._groups = {group for group in self._known() if held and set(group) <= set(held)}
            devices = {one: read_device_id(one) for one in (*ids, *held)}
            migs = mig_uuids(self._driver, {board for board, _ in devices.values()})
            # What is not there has no name, so its containers cannot start: `Tenants` says so.
            self._uuids = {
                one: migs[board, item] if item.start is not None else board
                for one, (board, item) in devices.items()
                if item.start is None or (board, item) in migs
            }
            self._write()

    def _known(self) -> set[tuple[str, ...]]:
        return set(self._kept.read() or ()) if self._groups is None else self._groups

    def _write(self) -> None:
        singly = [(one,) for one in self._uuids]
        together = [group for group in self._known() if all(one in self._uuids for one in group)]
        text = spec({ids: [self._uuids[one] for one in ids] for ids in sorted((*singly, *together))})
        try:
            if self._path.exists() and self._path.read_bytes() == text:
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace(self._path, text)  # by way of a name that the runtime does not read
        except OSError as error:
            raise StateError(
                f"the CDI devices cannot be written to {self._path}: {error.strerror}: see --cdi-directory"
            ) from error


def spec(devices: dict[tuple[str, ...], list[str]]) -> bytes:
    """Return the file for devices that are named, alone or together: ids -> UUIDs."""
    return msgspec.json.format(
        msgspec.json.encode(
            {
                "cdiVersion": _VERSION,
                "kind": KIND,
                "devices": [
                    {
                        "name": cdi_name(ids),
                        "containerEdits": {"env": [f"{names.VISIBLE_DEVICES}={','.join(dict.fromkeys(uuids))}"]},
                    }
                    for ids, uuids in devices.items()
                ],
            }
        )
    )


def cdi_name(ids: Sequence[str]) -> str:
    """Return the name of devices in CDI, which allows letters, digits and `_-.:`; no two sets of ours have the same."""
    return "--".join(one.replace("/", "_").replace("+", ".") for one in ids)
