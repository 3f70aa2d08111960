"""`apportion sandbox up`: start a control plane, in the background unless asked to stay."""

import shlex

import click

from console.sandbox.command import name_option
from console.sandbox.lifecycle import Sandbox, attach, hold, launch, running, wait_for_end
from console.sandbox.nodes import PRODUCTS, NodeGroup, NodesFault, parse_nodes
from console.sandbox.progress import Progress
from console.sandbox.services import ALL


def _parsed(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[NodeGroup, ...]:
    try:
        return parse_nodes(value)
    except NodesFault as fault:
        raise click.BadParameter("".join(f"\n  {line}" for line in fault.faults)) from fault


@click.command(epilog=f"Models: {', '.join(PRODUCTS)}.")
@click.option(
    "--nodes",
    callback=_parsed,
    metavar="MODEL[xBOARDS][:MODE]=COUNT,...",
    default="a100-40=1,t4=1",  # one board of each kind of partitioning: MIG and MPS
    show_default=True,
    help="Simulated GPU nodes, such as a100-40x8=2,a30=1,t4:timeslicing=1: BOARDS of each node (1 unless given), "
    "MODE mig where the board has it, else mps. An empty text: none.",
)
@name_option
@click.option("--bare", is_flag=True, help="Only the control plane and its nodes, without Apportion.")
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, then end it.")
def up(nodes: tuple[NodeGroup, ...], name: str, bare: bool, foreground: bool) -> None:
    """Start a control plane with simulated GPUs, and Apportion on it.

    The first start builds etcd, kube-apiserver and others with Go (6 to 9 minutes on 2 cores; kept in
    ~/.cache/apportion), unless KUBEBUILDER_ASSETS names a directory that holds them. Later ones need seconds. It runs
    in the background until `apportion sandbox down`.

    \b
    Standard output is for the shell:
      eval "$(apportion sandbox up)"; kubectl get nodes
    """
    progress, services = Progress(), () if bare else ALL
    if not foreground:
        launch(name, nodes, progress, services, lifeline=None)
        _tell(attach(name), progress, f"`apportion sandbox down --name {name}` ends it")
        return
    with hold(name, nodes, progress, services) as sandbox:
        try:
            _tell(sandbox, progress, "Ctrl-C ends it")
            wait_for_end(name)
        except KeyboardInterrupt:
            progress.line("ending it")


def _tell(sandbox: Sandbox, progress: Progress, how_to_end: str) -> None:
    state = running(sandbox.name)
    if state is not None:
        progress.line(f"Kubernetes {state.version} serves at {state.server} after {state.boot_s} s; {how_to_end}")
    click.echo(f"export KUBECONFIG={shlex.quote(str(sandbox.kubeconfig))}")
