"""Options that several verbs of the sandbox share."""

from collections.abc import Callable
from typing import Final, TypeVar

import click

from console.sandbox.nodes import NodeGroup, NodesFault, parse_nodes

_Function = TypeVar("_Function", bound=Callable[..., object])

DEFAULT_NAME: Final = "default"
# One board of each kind of partitioning: MIG and MPS.
DEFAULT_NODES: Final = "a100-40=1,t4=1"


def name_option(function: _Function) -> _Function:
    """Add `--name`: which of the sandboxes on this machine."""
    return click.option(
        "--name", default=DEFAULT_NAME, show_default=True, help="Which sandbox; several run side by side."
    )(function)


def nodes_option(default: str = DEFAULT_NODES) -> Callable[[_Function], _Function]:
    """Return the option `--nodes`: which simulated nodes there are from the beginning."""
    return click.option(
        "--nodes",
        callback=_parsed,
        metavar="MODEL[xBOARDS][:MODE]=COUNT,...",
        default=default,
        show_default=True,
        help="Simulated GPU nodes, such as a100-40x8=2,a30=1,t4:timeslicing=1: BOARDS of each node (1 unless given), "
        "MODE mig where the board has it, else mps. An empty text: none.",
    )


def _parsed(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[NodeGroup, ...]:
    try:
        return parse_nodes(value)
    except NodesFault as fault:
        raise click.BadParameter("".join(f"\n  {line}" for line in fault.faults)) from fault
