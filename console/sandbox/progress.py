"""Lines for a person who waits: kept ones, and on a terminal passing ones that the next line overwrites."""

import shutil
import sys
from typing import TextIO


class Progress:
    """Writes to `stream` (standard error by default: standard output is for data)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._passing = False

    def line(self, text: str) -> None:
        """Write a line that stays."""
        self._clear()
        self._stream.write(text + "\n")
        self._stream.flush()

    def passing(self, text: str) -> None:
        """Show a line until the next one, on a terminal only: a log would keep each of thousands."""
        if not self._live:
            return
        self._clear()
        self._stream.write(text[: shutil.get_terminal_size().columns - 1])
        self._stream.flush()
        self._passing = True

    def _clear(self) -> None:
        if self._passing:
            self._stream.write("\r\x1b[K")
            self._passing = False
