"""What a verb prints on standard output: a table for people, or the same as JSON or YAML for programs."""

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

import click
import msgspec
import yaml

TABLE = "table"
GAP: Final = "  "
NARROW: Final = 30  # columns in which sentences can still be read

# A click option for every verb that shows something.
output_option = click.option(
    "-o", "--output", type=click.Choice([TABLE, "json", "yaml"]), default=TABLE, show_default=True
)


def show(data: object, output: str) -> None:
    """Print data as JSON or YAML, keys in their order."""
    plain = msgspec.to_builtins(data)
    if output == "json":
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120), nl=False)


def columns(rows: Sequence[Sequence[str]], *, left: int = 1, width: int | None = None) -> str:
    """Return rows with their columns below each other: so many of words, the others of numbers.

    In a terminal of `width` columns the last column goes on below itself, unless less than NARROW is left for it.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [[str.ljust, str.rjust][number >= left] for number in range(len(widths))]
    before = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    room = None if width is None or width - before < NARROW else width - before
    lines = []
    for row in rows:
        first, *more = wrapped(row[-1], room, "").split("\n")
        cells = [align(cell, wide) for align, cell, wide in zip(aligned, (*row[:-1], first), widths, strict=True)]
        lines += [GAP.join(cells).rstrip(), *(" " * before + line for line in more)]
    return "\n".join(lines)


def terminal_width() -> int | None:
    """Return how many columns the terminal has that reads us; None if it is a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, width: int | None, indent: str = "  ") -> str:
    """Return a sentence in lines that fit, all but the first indented; in one line where nobody knows what fits."""
    if width is None:
        return text
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
