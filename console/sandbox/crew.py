"""The running processes of a sandbox: started, waited for, started again when they end, and ended in order."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from console.sandbox.errors import SandboxError
from console.sandbox.processes import Command, Process, end
from console.sandbox.rooms import ProcessState

# How often readiness is asked for. Components have no way to tell it by themselves.
_POLL_S: Final = 0.03
# A slow machine under load needs several times the usual 3 s for a step; longer means that something is wrong.
_STEP_TIMEOUT_S: Final = 120.0
# A process that ended after it had worked comes back at once, one that cannot start is tried once a second.
_WORKED_S: Final = 10.0
_PAUSE_S: Final = 1.0
_SHORT_PAUSE_S: Final = 0.1

_log = structlog.get_logger()


class Stopped(Exception):  # noqa: N818 - no error: somebody wants the sandbox to end
    """Raised out of a wait when the sandbox is to end."""


class Crew:
    """All processes of one sandbox. For one thread, which must live as long as they (see `Process`)."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        *,
        pause: Callable[[float | None], bool],
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the directory that they run in.

        `pause` waits for so many seconds, or until something happens if None, but no longer than until a process
        ends; it returns whether the sandbox is to stop. `on_change` is called when processes have started or ended;
        `clock` is in seconds.
        """
        self._directory = directory
        self._logs = directory / "logs"
        self._logs.mkdir()
        self._environment = environment
        self._pause = pause
        self._on_change = on_change
        self._clock = clock
        self._commands: dict[str, Command] = {}  # In the order of their first start.
        self._running: dict[str, Process] = {}
        self._since: dict[str, float] = {}
        self._starts: dict[str, int] = {}
        self._due: dict[str, tuple[float, Command]] = {}

    def start(self, commands: Iterable[Command]) -> None:
        """Start processes. Raises SandboxError if a program cannot be executed."""
        for command in commands:
            try:
                process = Process(command, directory=self._directory, logs=self._logs, environment=self._environment)
            except OSError as error:
                raise SandboxError(f"cannot start {command.name}: {error}") from error
            self._commands[command.name] = command
            self._running[command.name] = process
            self._since[command.name] = self._clock()
            self._starts[command.name] = self._starts.get(command.name, 0) + 1
        self._on_change()

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Return once `ready` is true.

        Raises SandboxError if a process ends meanwhile or it takes longer than 2 minutes, Stopped if the sandbox is to
        end.
        """
        deadline = self._clock() + _STEP_TIMEOUT_S
        while not ready():
            for name, process in self._running.items():
                if process.has_ended():
                    del self._running[name]
                    raise SandboxError(_failure(process, f"ended with status {process.clear()}"))
            if self._clock() > deadline:
                tails = "\n".join(_failure(process, "says") for process in self._running.values())
                raise SandboxError(f"{what}: not ready after {_STEP_TIMEOUT_S:.0f} s\n{tails}")
            if self._pause(_POLL_S):
                raise Stopped

    def look_after(self) -> None:
        """Start again whatever ends, until the sandbox is to end."""
        while not self._pause(self._until_due()):
            now = self._clock()
            for process in list(self._running.values()):
                if process.has_ended():
                    self._take_down(process, now)
            due = [command for at, command in self._due.values() if at <= now]
            if due:
                for command in due:
                    del self._due[command.name]
                self.start(due)

    def states(self) -> tuple[ProcessState, ...]:
        """Return what is to be known of each process, also of those that wait to be started again."""
        return tuple(
            ProcessState(
                name=name,
                pid=self._running[name].pid if name in self._running else None,
                port=command.port,
                restarts=self._starts[name] - 1,
            )
            for name, command in self._commands.items()
        )

    def end(self, last: Sequence[str]) -> None:
        """End all processes: first, together, those that are not in `last`, then those one by one in its order."""
        end([process for name, process in self._running.items() if name not in last])
        for name in last:
            end([self._running[name]] if name in self._running else [])
        self._running.clear()

    def _take_down(self, process: Process, now: float) -> None:
        command = process.command
        lived_s = now - self._since[command.name]
        status = process.clear()
        del self._running[command.name]
        self._due[command.name] = (now + (_SHORT_PAUSE_S if lived_s > _WORKED_S else _PAUSE_S), command)
        _log.warning("process_ended", name=command.name, status=status, lived_s=round(lived_s, 1))
        self._on_change()

    def _until_due(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, min(at for at, _ in self._due.values()) - self._clock())


def _failure(process: Process, what: str) -> str:
    return f"{process.command.name} {what}; the end of its log:\n{process.last_words() or '(empty)'}"
