"""Finding the processes of a sandbox, and only those, after whoever started them has gone.

Every process of a sandbox carries the sandbox's id in its environment, which its children inherit. That identifies it
where a process id cannot: the kernel gives ids of ended processes to new ones.
"""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

VARIABLE: Final = "APPORTION_SANDBOX_ID"
NOTICE_S: Final = 1.0  # within which a person's Ctrl-C is noticed at the latest


def marked(sandbox_id: str) -> list[int]:
    """Return the ids of the running processes that belong to a sandbox; zombies are not running."""
    return [pid for pid in _process_ids() if bears(pid, sandbox_id)]


def bears(pid: int, sandbox_id: str) -> bool:
    """Return whether a process belongs to a sandbox; false if it has ended or is somebody else's."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # Ended, or another user's: not ours in either case.
        return False
    return f"{VARIABLE}={sandbox_id}".encode() in environment.split(b"\0")


def signal_process(pid: int, sandbox_id: str, number: signal.Signals, *, timeout_s: float) -> bool:
    """Send a signal to a process of a sandbox and wait for its end; return whether it has ended.

    The process is held by a descriptor from before it is recognised, so that no other one is ever hit.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor, "rb"):
        if not bears(pid, sandbox_id):
            return True
        signal.pidfd_send_signal(descriptor, number)
        return bool(select.select([descriptor], [], [], timeout_s)[0])


def wait_for_end(pid: int, sandbox_id: str) -> None:
    """Return once a process of a sandbox has ended; at once if there is none."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor, "rb"):
        if bears(pid, sandbox_id):
            # Not without end: a Ctrl-C just before the wait would be noticed only at the next one.
            while not select.select([descriptor], [], [], NOTICE_S)[0]:
                pass


def kill_marked(sandbox_id: str, *, timeout_s: float = 10.0) -> list[int]:
    """Kill all processes of a sandbox, wait for their end and return their ids.

    Repeats until none is found, since one may start another while it is looked for. Raises TimeoutError if some
    cannot be ended, which the kernel allows only in uninterruptible waits.
    """
    killed: list[int] = []
    deadline = time.monotonic() + timeout_s
    while running := marked(sandbox_id):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {running} do not end")
        with ExitStack() as held:
            descriptors = []
            for pid in running:
                try:
                    descriptor = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                held.callback(os.close, descriptor)
                if bears(pid, sandbox_id):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    descriptors.append(descriptor)
                    killed.append(pid)
            for descriptor in descriptors:
                select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    return killed


def _process_ids() -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            yield int(entry.name)
