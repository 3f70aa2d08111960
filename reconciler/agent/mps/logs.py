"""What a control daemon writes: its last words, and servers that it says have failed; kept short, since nobody else does."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST: Final = 1 << 20  # bytes that a file may have: it may lie in memory
LAST: Final = 300  # characters of a daemon's last words: they go into a condition

_EXIT: Final = re.compile(r"Server \d+ exited with status [1-9]\d*")


class Logs:
    """The files of one daemon.

    Args:
        files: to which it prints and logs, in the order of their weight; those that do not exist are empty.
        others: files that are only kept short.
    """

    def __init__(self, files: tuple[Path, ...], others: tuple[Path, ...] = ()) -> None:
        self._files, self._others = files, others
        self._read = dict.fromkeys(files, 0)

    def skip(self) -> None:
        """Take all that there is as read."""
        for path in self._files:
            self._read[path] = _size(path)

    def failed_server(self) -> str:
        """Return the last line since the last call by which a server has failed; "" if there is none."""
        found = [match[0] for path in self._files for match in _EXIT.finditer(self._news(path))]
        for path in (*self._files, *self._others):
            if _size(path) > MOST:
                os.truncate(path, 0)
        return found[-1] if found else ""

    def last_words(self) -> str:
        """Return the last line of the first file that has one, without its time; "" if none has."""
        for path in self._files:
            if lines := list(_lines(path)):
                return re.sub(r"^\[[^]]*\] *", "", lines[-1])[:LAST]
        return ""

    def _news(self, path: Path) -> str:
        size, before = _size(path), self._read[path]
        start = before if before <= size else 0  # it has been cut short
        self._read[path] = size
        return _text(path, max(start, size - MOST))


def _lines(path: Path) -> Iterator[str]:
    text = _text(path, max(0, _size(path) - MOST))
    return (line.strip() for line in text.splitlines() if line.strip())


def _text(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(start)
            # A file cut short under one who does not append has a hole.
            return file.read(MOST).replace(b"\0", b"").decode(errors="replace")
    except FileNotFoundError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
