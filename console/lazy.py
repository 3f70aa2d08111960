"""Groups of commands whose modules are imported when they are used, so that every other verb starts quickly."""

import importlib
from collections.abc import Mapping
from typing import ClassVar

import click


class LazyGroup(click.Group):
    """A group whose commands are named in `verbs`: verb -> `module:attribute`, listed in this order by `--help`."""

    verbs: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs in the order of the table, which is the order in which people need them."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a verb and return it; None if the table has no such verb."""
        if cmd_name not in self.verbs:
            return None
        module, _, attribute = self.verbs[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.verbs[cmd_name]}: not a click command")
        return command
