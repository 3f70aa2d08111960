"""What a verb prints on standard output: a table for people, or the same as JSON or YAML for programs."""

import json

import click
import msgspec
import yaml

TABLE = "table"

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
