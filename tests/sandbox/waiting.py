"""Waiting for what other processes bring about."""

import os
import time
from collections.abc import Callable

from console.sandbox.lifecycle import Sandbox


def eventually(condition: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Return once a condition holds that other processes bring about; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        os.sched_yield()


def create_namespace(sandbox: Sandbox, name: str) -> None:
    """Create a namespace, and wait for its service account: pods are refused without one."""
    sandbox.kubectl("create", "namespace", name)
    account = ("get", "serviceaccount/default", "-n", name, "--ignore-not-found", "-o", "name")
    eventually(lambda: sandbox.kubectl(*account), f"the service account of namespace {name}")
