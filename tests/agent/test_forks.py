"""Children of the agent, such as the control program of MPS, become another program at once: grpc must not touch them before."""

import subprocess
import sys

SCRIPT = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import reconciler.agent.deviceplugin.endpoint
import grpc
server = grpc.server(ThreadPoolExecutor(1))
server.add_insecure_port(f"unix:{sys.argv[1]}/socket")
server.start()
child = os.fork()
if child == 0:
    os._exit(len(os.listdir("/proc/self/task")))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
server.stop(None)
"""


def test_a_child_has_one_thread_and_none_of_grpcs(tmp_path):
    """With any, 1 of some 300 died by SIGSEGV before it became the program, and its board was said not to serve."""
    command = [sys.executable, "-c", SCRIPT, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
