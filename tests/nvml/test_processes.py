"""The driver in a process of its own, for which the loader finds a library, an old one, half of one, or none (pains A14, A15).

And one that is killed: what it has made is there for the next.
"""

import os
import subprocess
import sys
import textwrap

import pytest

from reconciler.agent.driver import Slice
from tests.nvml.library import NAME, library, needs_gcc
from tests.nvml.machine import Machine

pytestmark = needs_gcc

A100 = "NVIDIA-A100-SXM4-40GB"


def run(machine, code, path):
    """Run code, which has a driver, where the loader looks at a path; return exit status and what it printed."""
    script = (
        "from reconciler.agent.driver import *\nfrom reconciler.agent.nvml import NvmlDriver\ndriver = NvmlDriver()\n"
    )
    environment = {**os.environ, **machine.environment, "LD_LIBRARY_PATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", script + textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.strip()


ASK_TWICE = """
    for _ in range(2):
        try:
            print([board.profiles[0].name for board in driver.boards()])
        except DriverError as error:
            print(type(error).__name__, error)
"""


def without_driver(directory):
    """Nothing is there."""


def not_a_library(directory):
    (directory / NAME).write_text("this is not a library\n" * 100)


def with_undefined_symbol(directory):
    """A library that needs what nobody has."""
    source = directory / "x.c"
    source.write_text(
        "int nvmlSomewhereElse(void); int nvmlInitWithFlags(unsigned f) { (void)f; return nvmlSomewhereElse(); }"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-z,now", "-o", directory / NAME, source], check=True)


def without_symbols(directory):
    """A library, but another one."""
    source = directory / "x.c"
    source.write_text("int something(void) { return 0; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", directory / NAME, source], check=True)


@pytest.mark.parametrize(
    ("install", "said"),
    [
        pytest.param(without_driver, "cannot open shared object file", id="no-library"),
        pytest.param(not_a_library, "invalid ELF header", id="no-library-at-all"),
        pytest.param(with_undefined_symbol, "undefined symbol: nvmlSomewhereElse", id="undefined-symbol"),
        pytest.param(without_symbols, "Function Not Found; this driver is too old for it", id="missing-function"),
    ],
)
def test_a_node_without_a_usable_library_is_told_why_and_the_agent_asks_again(tmp_path, install, said):
    directory = tmp_path / "lib"
    directory.mkdir()
    install(directory)
    status, text = run(Machine(tmp_path, A100), ASK_TWICE, directory)
    lines = text.splitlines()
    assert status == 0
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert lines[0].startswith("DriverError open NVML: ")
    assert said in lines[0]


def test_a_library_that_is_installed_later_is_found(tmp_path):
    code = f"""
        import os
        try:
            driver.boards()
        except DriverError as error:
            print("open NVML" in str(error))
        os.symlink({str(library())!r}, {str(tmp_path / NAME)!r})
        print(len(driver.boards()))
    """
    assert run(Machine(tmp_path, A100, A100), code, tmp_path) == (0, "True\n2")


@pytest.mark.parametrize("driver", ["450.80.02", "470.57.02"])
def test_a_driver_without_versioned_profiles_is_asked_in_the_old_way(tmp_path, driver):
    """A15: the newer functions are missing from the library, as they are in old ones."""
    machine = Machine(tmp_path, A100, named=False, driver=driver)
    code = """
        board = driver.boards()[0]
        print(board.profiles[0].name, board.profiles[1].name, len(board.profiles))
        driver.create(board.uuid, Slice("7g.40gb", 0))
        print(*driver.slices(board.uuid))
    """
    status, text = run(machine, code, library("OLD_DRIVER").parent)
    assert (status, text.splitlines()) == (0, ["1g.5gb 1g.5gb+me 7", "7g.40gb at 0"])


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        pytest.param(
            "fail nvmlInitWithFlags 9 *", "open NVML: Driver Not Loaded; load NVIDIA's kernel modules", id="not-loaded"
        ),
        pytest.param(
            "fail nvmlInitWithFlags 18 *",
            "open NVML: RM has detected an NVML/RM version mismatch.; library and kernel modules are of different drivers: "
            "load the modules of the new one and restart the agent, or reboot the node",
            id="driver-updated-under-us",
        ),
        pytest.param("fail nvmlDeviceGetCount_v2 999 *", "count the GPUs: Unknown Error", id="no-count"),
    ],
)
def test_a_driver_that_does_not_answer_is_told_and_asked_again(tmp_path, codes, said):
    machine = Machine(tmp_path, A100)
    (tmp_path / "control").write_text(codes + "\n")
    code = f"""
        import os
        try:
            driver.boards()
        except DriverError as error:
            print(error)
        os.remove({str(tmp_path / "control")!r})
        print(len(driver.boards()))
    """
    assert run(machine, code, library().parent) == (0, f"{said}\n1")


def test_a_driver_that_knows_no_board_is_no_reason_to_die(tmp_path):
    status, text = run(Machine(tmp_path), ASK_TWICE, library().parent)
    assert (status, text.splitlines()) == (0, ["NotSupported the driver knows no GPU on this node"] * 2)


@pytest.mark.parametrize(
    ("before", "call", "doing", "slices", "orphans"),
    [
        pytest.param(
            (), "nvmlDeviceCreateGpuInstanceWithPlacement", "create", (), ("3g.20gb at 4",), id="after-the-gpu-instance"
        ),
        pytest.param(
            (), "nvmlGpuInstanceCreateComputeInstance", "create", ("3g.20gb at 4",), (), id="after-the-compute-instance"
        ),
        pytest.param(
            ("create",), "nvmlComputeInstanceDestroy", "destroy", (), ("3g.20gb at 4",), id="after-half-of-the-removal"
        ),
        pytest.param(("create",), "nvmlGpuInstanceDestroy", "destroy", (), (), id="after-the-removal"),
    ],
)
def test_a_killed_process_leaves_what_it_had_done_to_the_next(tmp_path, before, call, doing, slices, orphans):
    """A03: killed at once after a call of NVML has taken effect; the next process sees what is there, and removes it."""
    machine = Machine(tmp_path, A100)
    board, item = machine.uuids[0], Slice("3g.20gb", 4)
    for step in before:
        assert run(machine, f"driver.{step}({board!r}, {item!r})", library().parent)[0] == 0
    machine.die(call)
    assert run(machine, f"driver.{doing}({board!r}, {item!r})", library().parent)[0] == 137
    machine.mend()
    code = f"""
        board = {board!r}
        slices, orphans = driver.slices(board), driver.orphans(board)
        for item in slices + orphans:
            driver.destroy(board, item)
        print("slices", *slices)
        print("orphans", *orphans)
        print("left", *driver.slices(board), *driver.orphans(board))
    """
    status, text = run(machine, code, library().parent)
    assert (status, text.splitlines()) == (0, [" ".join(("slices", *slices)), " ".join(("orphans", *orphans)), "left"])
