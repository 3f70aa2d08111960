"""The MPS slices of a node's boards, kept in a file, since no hardware remembers them: a bin is a share that we promise.

Boards that are in the file are those that we have set up for MPS: what was set of them is to be undone some day, by
whichever agent. Whether a bin may be is for the caller to ask (`rules.rejection`).
"""

from pathlib import Path

from reconciler.agent.driver import Slice
from reconciler.agent.statefile import StateFile


class Bins:
    """The bins of all boards of a node.

    Args:
        path: the file; its directory exists. A missing file means that there are none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = StateFile(path, dict[str, tuple[Slice, ...]], "the MPS slices of this node")

    def of(self, board: str) -> tuple[Slice, ...]:
        """Return the bins of the board of this UUID, in the order of their making. Raises DriverError."""
        return self._read().get(board, ())

    def boards(self) -> frozenset[str]:
        """Return the UUIDs of the boards that are set up for MPS, with or without bins. Raises DriverError."""
        return frozenset(self._read())

    def take_up(self, board: str) -> None:
        """Note that a board is set up for MPS from now on. Raises DriverError."""
        if board not in self._read():
            self._write(board, ())

    def forget(self, board: str) -> None:
        """Note that it is not any more, and keep none of its bins. Raises DriverError."""
        left = self._read()
        if left.pop(board, None) is not None:
            self._file.write(left)

    def add(self, board: str, item: Slice) -> None:
        """Keep one more. Raises DriverError."""
        self._write(board, (*self.of(board), item))

    def remove(self, board: str, item: Slice) -> None:
        """Keep one no longer. Raises DriverError."""
        self._write(board, tuple(other for other in self.of(board) if other != item))

    def _read(self) -> dict[str, tuple[Slice, ...]]:
        return self._file.read() or {}

    def _write(self, board: str, items: tuple[Slice, ...]) -> None:
        self._file.write({**self._read(), board: items})
