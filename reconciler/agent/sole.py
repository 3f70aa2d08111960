"""One agent per node: whoever holds the node's state directory works on its boards, in whichever pod it runs.

Two would take each other's place at the kubelet for ever. The lock is on the directory itself: there is nothing to be made
on a file system that is full or can only be read, and the kernel lets go of it when a process ends, however it ends. Who
removes the directory takes the lock with it, and what was kept there: then the agent ends, and the next one makes both anew.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

LOOK_S: Final = 1.0  # how soon an agent that waits takes over

_log: Final = structlog.get_logger()


class Hold:
    """A directory that is held.

    Args:
        held: its file descriptor.
        directory: its path.
    """

    def __init__(self, held: int, directory: Path) -> None:
        self._held, self._directory = held, directory

    def lasts(self) -> bool:
        """Return whether it is still the directory at its path; if not, another agent may hold that one.

        Where it is mounted, as in a container, its path goes on to lead to it after the node has removed it: it has no links then.
        """
        held = os.fstat(self._held)
        try:
            return held.st_nlink > 0 and os.path.samestat(held, self._directory.stat())
        except OSError:
            return False


@contextlib.contextmanager
def sole(directory: Path, stop: threading.Event, look_s: float = LOOK_S) -> Iterator[Hold | None]:
    """Wait until no other agent holds a directory, then hold it until the context ends; yield None if `stop` was set first.

    Raises OSError if it cannot be opened.
    """
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Hold(held, directory) if _taken(held, directory, stop, look_s) else None
    finally:
        os.close(held)


def _taken(held: int, directory: Path, stop: threading.Event, look_s: float) -> bool:
    told = False
    while not stop.is_set():
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                _log.warning(
                    "another_agent", holds=str(directory), hint="this one does nothing until that one has ended"
                )
                told = True
            stop.wait(look_s)
        else:
            return True
    return False
