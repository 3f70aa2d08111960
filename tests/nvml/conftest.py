import pytest

from reconciler.agent.mps.bins import Bins
from reconciler.agent.nvml import NvmlDriver
from reconciler.agent.nvml.mps import MpsBoards
from tests.mps.daemons import NoProcesses
from tests.nvml.machine import Machine


@pytest.fixture
def machine(tmp_path):
    """Return a function that makes this process's NVML that of a machine with boards of these products."""
    entered = []

    def machine(*products, **options):
        entered.append(Machine(tmp_path, *products, **options).enter())
        return entered[-1]

    yield machine
    for one in entered:
        one.leave()


@pytest.fixture
def driver(tmp_path):
    return NvmlDriver(MpsBoards(Bins(tmp_path / "bins.json"), NoProcesses()))
