"""A process that is told to end does, whatever it is at."""

import signal
import subprocess
import sys

import pytest

from tests.apiserver.server import PATIENCE_S

WAITS = """
import signal, sys, threading
from kube.stopping import stop_on_signals

def interrupt(frame, event, _):
    if event == "call" and frame.f_code.co_filename == threading.__file__:
        signal.raise_signal(int(sys.argv[1]))

stop = stop_on_signals()
sys.setprofile(interrupt)
while not stop.wait(0.01):
    pass
sys.setprofile(None)
print("ended")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_any_step_of_a_wait_ends_it(number):
    """Set by the handler, the event waited for the lock that the interrupted wait held: the agent stayed until SIGKILL."""
    command = [sys.executable, "-c", WAITS, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "ended\n"
