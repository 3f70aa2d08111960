"""A sandbox with Apportion on it as in production, for tests of the whole path."""

import itertools
from collections.abc import Iterator

import pytest

from console.sandbox.lifecycle import Sandbox
from console.sandbox.watching import PodWatch
from tests.sandbox.waiting import create_namespace

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sandbox]:
    """One A100-40 cut by MIG, one T4 shared by MPS."""
    with Sandbox.start({"a100-40": 1, "t4": 1}) as sandbox:
        yield sandbox


@pytest.fixture
def team(cluster) -> Iterator[PodWatch]:
    """The pods of a namespace of the test's own; they are gone afterwards, so that the boards are free again."""
    namespace = f"team-{next(_numbers)}"
    create_namespace(cluster, namespace)
    with PodWatch(cluster, namespace) as pods:
        yield pods
        cluster.kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=0", "--force", "--wait=true")
