"""A small JSON file of what neither the hardware nor the kubelet remembers for us; on the node, so that it survives a reboot."""

import os
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from reconciler.agent.driver import DriverError

T = TypeVar("T")


class StateError(DriverError):
    """What must outlive the agent cannot be read, or not be kept; the message says where."""


class StateFile(Generic[T]):
    """One value in a file, with one writer: the agent of the node.

    Args:
        path: the file; its directory exists.
        form: the type of the value.
        what: what it is, for messages.
    """

    def __init__(self, path: Path, form: type[T], what: str) -> None:
        self._path, self._what = path, what
        self._decoder = msgspec.json.Decoder(form)

    def read(self) -> T | None:
        """Return the value; None if there is no file yet. Raises StateError."""
        try:
            return self._decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            why = f"{self._what} cannot be read from {self._path}: {error}"
            raise StateError(f"{why}: mend the file, or remove it if no pod holds a slice") from error

    def write(self, value: T) -> None:
        """Replace the file. Raises StateError."""
        try:
            replace(self._path, msgspec.json.encode(value))
        except OSError as error:
            raise self._not_kept(error) from error

    def check(self) -> None:
        """Raise StateError if it cannot be read, or could not be replaced now."""
        value = self.read()
        try:
            _beside(self._path).write_bytes(msgspec.json.encode(value))
        except OSError as error:
            raise self._not_kept(error) from error

    def _not_kept(self, error: OSError) -> StateError:
        return StateError(
            f"{self._what} cannot be kept in {self._path}: {error.strerror}: make room, or the directory writable"
        )


def replace(path: Path, content: bytes) -> None:
    """Write a file in one step, so that a crash leaves the old one or the new one. Raises OSError."""
    beside = _beside(path)
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _beside(path: Path) -> Path:
    return path.with_suffix(".new")
