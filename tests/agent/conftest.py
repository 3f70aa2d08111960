import pytest

from tests.agent.hardware import NvmlHardware
from tests.agent.world import World


@pytest.fixture(scope="module")
def nvml():
    """Let the worlds of a module have the real driver, which calls the mock NVML."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(World, "hardware", NvmlHardware)
        NvmlHardware.install(patched)
        yield
    NvmlHardware.leave()
