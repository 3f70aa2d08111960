"""Builds the mock `libnvidia-ml.so.1`, once per run and variant."""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("mock.c")
NAME = "libnvidia-ml.so.1"
needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="gcc is not installed, with which the mock NVML is built"
)


@cache
def library(*defines):
    """Return the path of the library; `OLD_DRIVER` leaves out what drivers before 510 do not have."""
    directory = Path(tempfile.mkdtemp(prefix="mock-nvml-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / NAME
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{NAME}"]
    subprocess.run(["gcc", *flags, *(f"-D{name}" for name in defines), "-o", path, SOURCE], check=True)
    return path
