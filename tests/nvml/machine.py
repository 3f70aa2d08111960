"""A machine with boards: the directory from which the mock NVML reads what there is and what goes wrong, and where its state is.

Tables are written from what is published (tests/policies/facts.py), not from ours.
"""

import ctypes
import os
import re
import uuid

import pynvml

from tests.nvml.library import library
from tests.policies.facts import BOARDS, COMPUTE, TABLES, UNITS, name_of

PASCAL, TURING, AMPERE, HOPPER, BLACKWELL = 4, 6, 7, 9, 10

# product: (NVML's name, architecture, compute capability, MiB that the driver reports, processors of 1g, 1g double, 2g, 3g, 4g, all)
HARDWARE = {
    "NVIDIA-A30": ("NVIDIA A30", AMPERE, "8.0", 24576, (14, 14, 28, 42, 56, 56)),
    "NVIDIA-A100-SXM4-40GB": ("NVIDIA A100-SXM4-40GB", AMPERE, "8.0", 40960, (14, 14, 28, 42, 56, 98)),
    "NVIDIA-A100-SXM4-80GB": ("NVIDIA A100-SXM4-80GB", AMPERE, "8.0", 81920, (14, 14, 28, 42, 56, 98)),
    "NVIDIA-H100-80GB-HBM3": ("NVIDIA H100 80GB HBM3", HOPPER, "9.0", 81559, (16, 26, 32, 60, 64, 132)),
    "NVIDIA-H100-NVL": ("NVIDIA H100 NVL", HOPPER, "9.0", 95830, (16, 26, 32, 60, 64, 132)),
    "NVIDIA-H200": ("NVIDIA H200", HOPPER, "9.0", 143771, (16, 26, 32, 60, 64, 132)),
    "NVIDIA-B200": ("NVIDIA B200", BLACKWELL, "10.0", 183359, (18, 30, 36, 70, 72, 148)),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": (
        "NVIDIA RTX PRO 6000 Blackwell Server Edition", BLACKWELL, "12.0", 97887, (46, 46, 94, 188, 188, 188),
    ),
    "Tesla-T4": ("Tesla T4", TURING, "7.5", 15360, ()),
    "Tesla-P40": ("Tesla P40", PASCAL, "6.1", 24576, ()),
}  # fmt: skip
ENUMS = {
    "1g": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4, "1g+me": 7, "2g+me": 8, "1gD": 9, "1g+gfx": 10, "2g+gfx": 11, "4g+gfx": 12,
    "1g-me": 13, "2g-me": 14, "1g+me.all": 15, "2g+me.all": 16,
}  # fmt: skip
CHANGING = re.compile("Create(GpuInstance|ComputeInstance)|Destroy|DeviceSet")
IN_USE, INSUFFICIENT_RESOURCES, NO_PERMISSION, NOT_SUPPORTED, LOST, UNKNOWN = 19, 23, 4, 3, 15, 999


class Machine:
    """Boards of these products.

    The mock serves the machine whose `environment` its process has; `enter` makes that this process, for one at a time.

    Args:
        directory: an empty one of its own.
        products: of the boards, by index.
        mig: whether MIG mode is on, for all or for each of them.
        named: whether the driver names its profiles, as those since 510 do.
        uuids: of the boards.
    """

    def __init__(self, directory, *products, mig=True, named=True, uuids=(), driver="570.133.20"):
        self.directory = directory
        self.uuids = list(uuids) or [f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{n}')}" for n in range(len(products))]
        modes = [mig] * len(products) if isinstance(mig, bool) else mig
        self._control = []
        lines = [f"driver {driver}"]
        for board, product, on in zip(self.uuids, products, modes, strict=True):
            lines += list(_board(board, product, on, named))
        (directory / "boards").write_text("\n".join(lines) + "\n")
        (directory / "xids").write_text("")

    @property
    def environment(self):
        return {"MOCK_NVML": str(self.directory)}

    def enter(self):
        """Let this process's NVML be this machine's; by its name the loader finds what is loaded already."""
        os.environ |= self.environment
        self._library = ctypes.CDLL(str(library()))
        return self

    def leave(self):
        """Close NVML, however often it was opened, so that another machine can be entered."""
        while self._library.nvmlShutdown() == 0:
            pass
        os.environ.pop("MOCK_NVML", None)

    # What goes wrong.

    def fail(self, function, code, board="*"):
        self._add(f"fail {function} {code} {board}")

    def lose(self, board):
        self._add(f"lost {board}")

    def forbid(self):
        self._add("unprivileged")

    def switch_only_unwatched(self):
        """Let a board's mode be switched only while no event set of this process watches it."""
        self._add("exclusive")

    def hold(self, board, instance, pid, mib=512):
        """Let a process hold a GPU instance, by its number; -1: the board."""
        self._add(f"process {board} {instance} {pid} {mib}")

    def use_by_mps(self, board, pid, mib):
        """Let a process use a board by MPS."""
        self._add(f"client {board} {pid} {mib}")

    def die(self, function):
        self._add(f"die {function}")

    def mend(self):
        """Let nothing go wrong any more."""
        self._control.clear()
        self._write()

    def xid(self, board, number):
        with (self.directory / "xids").open("a") as file:
            file.write(f"{board} {number}\n")

    def reboot(self, *, renumbered=False):
        """Lose all instances; keep MIG mode, with what was pending. NVML may number the boards anew: the last is the first then."""
        self._library.mock_reboot()
        if renumbered:
            self._library.mock_renumber()
            self.uuids.reverse()

    # What can be seen.

    def record(self):
        """Note from now on which functions are called, and on which boards."""
        (self.directory / "calls").write_text("")

    def calls(self):
        return [line.split()[0] for line in self._lines()]

    def changes(self):
        """Return, of those, which changed boards, in order: (function, UUID of the board)."""
        return [(name, board) for name, board in map(str.split, self._lines()) if CHANGING.search(name)]

    def closed(self):
        """Return whether nobody in this process has NVML open."""
        return self._library.nvmlShutdown() == 1

    def numbers(self, board):
        """Return (profile's id, start) -> number of the GPU instances of a board, by NVML itself."""
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(board)
        found = [pynvml.nvmlGpuInstanceGetInfo(instance) for instance in _instances(handle)]
        pynvml.nvmlShutdown()
        return {(info.profileId, info.placement.start): info.id for info in found}

    def _lines(self):
        return (self.directory / "calls").read_text().splitlines()

    def _add(self, line):
        self._control.append(line)
        self._write()

    def _write(self):
        # By renaming, so that a call in another process never reads half of it.
        new = self.directory / "control.new"
        new.write_text("".join(f"{line}\n" for line in self._control))
        new.replace(self.directory / "control")


def _instances(handle):
    for number in range(16):
        try:
            yield pynvml.nvmlDeviceGetGpuInstanceById(handle, number)
        except pynvml.NVMLError_NotFound:
            continue


def _board(board, product, mig, named):
    name, architecture, capability, total, processors = HARDWARE[product]
    table, _, gib = BOARDS.get(product, (None, None, None))
    compute = COMPUTE[table] if table else 0
    live = "live" if architecture >= HOPPER else "admin"
    yield f"board {board} {total} 600 {compute} {architecture} {capability} {live} {int(mig and compute > 0)} {name}"
    for kind, (slices, units, starts, most, identifier) in (TABLES[table] if table else {}).items():
        # Printed GiB are eighths and sixteenths, rounded to two decimals.
        mib = round(float(gib[units]) * 16) * 64 if units in gib else total * units // UNITS[table]
        media = 3 if kind.endswith("+me.all") else 2 if kind.endswith("+me") else 0 if kind.endswith("-me") else 1
        sm = processors[5 if slices == compute else (0, 2, 3, 4)[slices - 1] if kind != "1gD" else 1]
        at = ",".join(map(str, starts))
        called = name_of(product, kind) if named else "-"
        yield f"profile {ENUMS[kind]} {identifier} {slices} {units} {most} {mib} {sm} {media} {at} {called}"
