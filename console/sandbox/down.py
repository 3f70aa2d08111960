"""`apportion sandbox down`: end a control plane and remove its files."""

import click

from console.sandbox import lifecycle
from console.sandbox.command import name_option


@click.command()
@name_option
def down(name: str) -> None:
    """End a sandbox and remove its files, also if it crashed.

    \b
    Example:
      apportion sandbox down --name mine
    """
    ended = lifecycle.stop(name)
    click.echo(f"sandbox {name}: " + ("ended" if ended else "not running, nothing to do"), err=True)
