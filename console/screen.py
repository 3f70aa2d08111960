"""Where a verb that goes on shows one state after another: over the last one on a terminal, below it in a pipe."""

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Final

import click
import msgspec
import yaml

from console.output import TABLE

_CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"  # to the corner, clear the screen and what scrolled off it


class Screen:
    """Shows states in one form, each once: a state that is as the last one is not shown again."""

    def __init__(self, output: str, now: Callable[[], datetime] = datetime.now) -> None:
        """Take a form of output; `now` is the time that stands above text."""
        self._output, self._now = output, now
        self._last: str | None = None

    def show(self, state: object) -> None:
        """Show text, or data as one line of JSON or one document of YAML, unless it stands there already."""
        said = _written(state, self._output)
        if said == self._last:
            return
        self._last = said
        if self._output != TABLE:
            click.echo(said, nl=False)
        elif sys.stdout.isatty():
            click.echo(f"{_CLEAR}{self._time()}  (Ctrl-C ends)\n\n{said}")
        else:
            click.echo(f"{self._time()}\n\n{said}\n")

    def _time(self) -> str:
        return self._now().strftime("%H:%M:%S")


def _written(state: object, output: str) -> str:
    if output == TABLE:
        return str(state)
    plain = msgspec.to_builtins(state)
    if output == "json":
        return f"{json.dumps(plain, ensure_ascii=False)}\n"
    return f"---\n{yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)}"
