"""The MPS slices of a node's boards, kept in a file, since no hardware remembers them: a bin is a share that we promise.

One writer: the agent of the node. Whether a bin may be is for the caller to ask (`rules.rejection`).
"""

import os
from pathlib import Path

import msgspec

from reconciler.agent.driver import DriverError, Slice


class Bins:
    """The bins of all boards of a node.

    Args:
        path: the file; its directory exists. A missing file means that there are none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, board: str) -> tuple[Slice, ...]:
        """Return the bins of the board of this UUID, in the order of their making. Raises DriverError."""
        return self._read().get(board, ())

    def add(self, board: str, item: Slice) -> None:
        """Keep one more. Raises DriverError."""
        self._write(board, (*self.of(board), item))

    def remove(self, board: str, item: Slice) -> None:
        """Keep one no longer. Raises DriverError."""
        self._write(board, tuple(other for other in self.of(board) if other != item))

    def _read(self) -> dict[str, tuple[Slice, ...]]:
        try:
            return _DECODER.decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise DriverError(f"the MPS slices of this node cannot be read from {self._path}: {error}") from error

    def _write(self, board: str, items: tuple[Slice, ...]) -> None:
        """Replace the file in one step, so that a crash leaves the old one or the new one."""
        bins = {**self._read(), board: items}
        beside = self._path.with_suffix(".new")
        try:
            with beside.open("wb") as file:
                file.write(msgspec.json.encode(bins))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            raise DriverError(f"the MPS slices of this node cannot be kept in {self._path}: {error}") from error


_DECODER = msgspec.json.Decoder(dict[str, tuple[Slice, ...]])
