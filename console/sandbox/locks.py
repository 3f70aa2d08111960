"""Locks on directories, between processes of one user. The kernel frees them when their holder ends, however it ends."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(directory: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a directory during the block; call `on_wait` once if another process holds it first."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not try_lock(descriptor):
            if on_wait is not None:
                on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open directory if nobody has it; return whether it is ours now.

    A shared one is for a look: others may look at the same time.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
