"""Speaks to a control daemon, by its own program: the protocol of its socket is NVIDIA's and not published.

Every call starts a program, which takes milliseconds, and has a time limit: a daemon that hangs must not hang the agent.
"""

import os
import subprocess
from typing import Final

from policies import names
from reconciler.agent.driver import DriverError
from reconciler.agent.mps.site import PROGRAM, MpsSite

DEVICE: Final = "0"  # a daemon sees one board, so that is its number

ACTIVE: Final = "ACTIVE"
STARTING: Final = "INITIALIZING"
FAULTY: Final = "FAULT"


class Control:
    """The control daemon of one board, as it is spoken to.

    Args:
        site: where it lives.
        board: its UUID.
        answer_s: how long an answer may take, in seconds.
    """

    def __init__(self, site: MpsSite, board: str, answer_s: float) -> None:
        self._site, self._board, self._answer_s = site, board, answer_s

    def servers(self) -> tuple[int, ...]:
        """Return the PIDs of its servers. Raises DriverError if it does not answer."""
        return _pids(self._ask("get_server_list"))

    def servers_as_client(self) -> tuple[int, ...]:
        """Return the same, asked by the clients' uid, which must reach the socket for it. Raises DriverError."""
        return _pids(self._ask("get_server_list", uid=self._site.uid))

    def status(self, server: int) -> str:
        """Return ACTIVE, INITIALIZING or FAULT; what an older daemon says, which does not know. Raises DriverError."""
        return self._ask(f"get_server_status {server}").strip()

    def clients(self, server: int) -> tuple[int, ...]:
        """Return the PIDs of the programs that use a server. Raises DriverError."""
        return _pids(self._ask(f"get_client_list {server}"))

    def start_server(self) -> None:
        """Start a server for the clients' uid, which takes some 100 ms after this. Raises DriverError."""
        self._ask(f"start_server -uid {self._site.uid}")

    def limit(self, mib: int) -> None:
        """Let no client have more memory than this, whatever it sets itself. Raises DriverError.

        A default holds for servers that are yet to start, and clients that are connected keep what they have.
        """
        self._ask(f"set_default_device_pinned_mem_limit {DEVICE} {mib}M")
        for server in self.servers():
            self._ask(f"set_device_pinned_mem_limit {server} {DEVICE} {mib}M")

    def quit(self) -> None:
        """Let it end, with its servers and whatever clients they have. Raises DriverError."""
        self._ask("quit")

    def _ask(self, command: str, uid: int | None = None) -> str:
        site, what = self._site, f"MPS control daemon: {command}"
        # nsenter takes the user on itself, after it has entered; without it, the child does before the program begins.
        other = uid if uid != os.geteuid() else None
        child = None if site.on_host else other
        who = "" if uid is None else f" as uid {uid}"
        try:
            done = subprocess.run(
                site.command(uid=other),
                input=f"{command}\n",
                env=site.environment(self._board),
                cwd="/",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._answer_s,
                check=False,
                user=child,
                group=child,
                extra_groups=None if child is None else [],
            )
        except subprocess.TimeoutExpired as error:
            raise DriverError(f"{what}{who}: no answer within {self._answer_s:g} s") from error
        except OSError as error:
            raise cannot_run(site, error) from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise DriverError(f"{what}{who}: {said or f'exit status {done.returncode}'}")
        return done.stdout


def cannot_run(site: MpsSite, error: OSError) -> DriverError:
    """Return why the program cannot be run, and what a person can do (pain A21)."""
    way_out = f"label the node {names.PARTITIONING_LABEL}={names.MIG}"
    if isinstance(error, FileNotFoundError):
        missing = "nsenter" if site.on_host else site.program
        comes = "NVIDIA's driver, and into containers with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        hint = f"{PROGRAM} comes with {comes}" if missing == site.program else "it is part of util-linux"
        return DriverError(f"there is no {missing} here: {hint}; or {way_out}")
    return DriverError(f"{site.program} cannot be run: {error.strerror}; is it SELinux? Or {way_out}")


def _pids(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split() if word.isdecimal())
