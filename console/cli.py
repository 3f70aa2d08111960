"""The command `apportion`. Each verb lives in a file of its own; a new one is a line in `VERBS`."""

from typing import Final

import click

from console.lazy import LazyGroup
from policies import __version__

VERBS: Final = {
    "sandbox": "console.sandbox.command:sandbox",
    "explain": "console.explain:explain",
    "simulate": "console.simulate:simulate",
    "plan": "console.plan:plan",
    "status": "console.status:status",
    "why": "console.why:why",
}


class _Apportion(LazyGroup):
    verbs = VERBS


@click.group(cls=_Apportion, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="apportion")
def main() -> None:
    """Slice NVIDIA GPUs and lend GPU quota on Kubernetes.

    Exit status: 0 fine, 1 found a problem, 2 wrong usage, or files or a cluster that cannot be read.

    \b
    Example: a control plane on this machine with two simulated A100 nodes:
      apportion sandbox up --nodes a100-40=2
    """
