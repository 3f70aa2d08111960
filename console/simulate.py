"""`apportion simulate`: what would happen to these objects, without a cluster."""

from collections.abc import Sequence
from typing import BinaryIO

import click

from console.manifests import Manifests, files_option, load
from console.output import TABLE, output_option, show
from console.reviewing import Reviewer, in_turn, namespace_labels
from console.simulation.report import report, table
from console.simulation.story import play
from console.simulation.world import World
from policies.view import View


@click.command()
@files_option
@output_option
def simulate(files: Sequence[BinaryIO], output: str) -> None:
    """Play out what becomes of nodes and pods in YAML files.

    Shown are the pods that run and on which slices, why others wait, and how the boards are cut in the end.

    Admission and planning are the real ones; no cluster is asked. An object appears later with the annotation
    `simulate.apportion/at: 30s`; a pod ends with `simulate.apportion/duration: 5m`. Quotas, policies,
    PodDisruptionBudgets and PriorityClasses count; an evicted pod with an owner comes back. Workloads (Deployment, Job
    and the like) are left out, which is said: write their pods.

    Exit status: 0 whatever comes out, 2 if the input cannot be read.

    \b
    Example:
      apportion simulate -f cluster.yaml -f pods.yaml -o json
    """
    manifests = load(files)
    world = simulated(manifests)
    if output == TABLE:
        click.echo(table(world, manifests))
    else:
        show(report(world, manifests), output)


def simulated(manifests: Manifests) -> World:
    """Return the cluster at the end of the story that these manifests tell. Raises UnreadableManifests."""
    return play(manifests, in_turn(Reviewer.of(View(), namespace_labels(manifests))))
