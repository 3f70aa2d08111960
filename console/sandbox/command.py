"""The group `apportion sandbox`. Each verb lives in a file of its own; a new one is a line in `VERBS`."""

from collections.abc import Callable
from typing import Final, TypeVar

import click

from console.lazy import LazyGroup
from console.sandbox.errors import SandboxError

VERBS: Final = {
    "up": "console.sandbox.up:up",
    "status": "console.sandbox.status:status",
    "down": "console.sandbox.down:down",
    "demo": "console.sandbox.demo:demo",
}

_Function = TypeVar("_Function", bound=Callable[..., object])


def name_option(function: _Function) -> _Function:
    """Add `--name` to a verb: which of the sandboxes on this machine."""
    return click.option(
        "--name", default="default", show_default=True, help="Which sandbox; several run side by side."
    )(function)


class _Sandbox(LazyGroup):
    verbs = VERBS

    def invoke(self, ctx: click.Context) -> object:
        """Run a verb; what a person can mend is told in one message with exit status 1, without a traceback."""
        try:
            return super().invoke(ctx)
        except SandboxError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Sandbox)
def sandbox() -> None:
    """Run a real control plane on this machine, with simulated GPUs.

    \b
    Example:
      eval "$(apportion sandbox up --nodes a100-40=2,a30=1)"
      kubectl get nodes
      apportion sandbox down
    """
