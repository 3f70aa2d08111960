"""Waiting for what other processes bring about."""

import os
import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Return once a condition holds that other processes bring about; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        os.sched_yield()
