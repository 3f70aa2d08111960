"""docs/nvml.md names every function of NVML that the agent calls and no other; the mock has them all."""

import inspect
import re
from pathlib import Path

import pynvml
import pytest

import reconciler.agent.nvml
from reconciler.agent.driver import InUse, Slice
from tests.nvml.library import needs_gcc

PACKAGE = Path(reconciler.agent.nvml.__file__).parent
ROWS = re.findall(
    r"^\| `(nvml\w+)`", (Path(__file__).parents[2] / "docs" / "nvml.md").read_text(encoding="utf-8"), re.MULTILINE
)


@needs_gcc
def test_everything_that_the_driver_does_calls_what_the_table_names(machine, driver):
    one = machine("NVIDIA-H100-80GB-HBM3", "Tesla-T4", mig=False)
    board, item = one.uuids[0], Slice("3g.40gb", 4)
    one.record()
    one.fail("nvmlDeviceGetGpuInstanceProfileInfoV", 13)
    driver.boards()
    driver.close()
    one.mend()
    driver.boards()
    driver.enable_mig(board)
    driver.create(board, item)
    driver.device_uuid(board, item)
    one.hold(board, one.numbers(board)[9, 4], 4711)
    with pytest.raises(InUse):
        driver.destroy(board, item)
    one.mend()
    driver.destroy(board, item)
    assert driver.slices(board) == driver.orphans(board) == ()
    driver.enable_mps(one.uuids[1])
    assert driver.mps_enabled(one.uuids[1])
    assert driver.clients(one.uuids[1]) == ()
    driver.close()
    of_the_test = {"nvmlDeviceGetHandleByUUID", "nvmlDeviceGetGpuInstanceById"}
    assert sorted(set(one.calls()) - of_the_test) == sorted(ROWS)


def test_no_function_is_called_that_the_table_does_not_name():
    """By the text of the driver, for what the test above does not come to; the bindings choose versions themselves."""
    text = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.py"))
    functions = {name for name in re.findall(r"pynvml\.(nvml\w+)", text) if callable(getattr(pynvml, name))}
    unnamed = {name for name in functions if not any(row in reachable(name) for row in ROWS)}
    assert unnamed == set()


def reachable(binding):
    """Return the functions of the library to which a function of the bindings leads."""
    source = inspect.getsource(inspect.unwrap(getattr(pynvml, binding)))
    found = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', source))
    for other in re.findall(r"^    (?:return )?(nvml\w+)\(", source, re.MULTILINE):
        found |= reachable(other)
    return found
