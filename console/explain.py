"""`apportion explain`: what the webhook would do with pods and workloads in files, and why."""

import json
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import click

from console.manifests import Manifests, files_option, load
from console.output import TABLE, output_option, show
from console.reviewing import Reviewed, Reviewer, namespace_labels, overlaid, written
from console.workloads import planned


@click.command()
@files_option
@click.option("--cluster", is_flag=True, help="Take nodes, namespaces, quotas and policies from the cluster too.")
@click.option("--kubeconfig", help="The same, of this kubeconfig; else $KUBECONFIG or ~/.kube/config.")
@output_option
@click.pass_context
def explain(
    context: click.Context, files: Sequence[BinaryIO], cluster: bool, kubeconfig: str | None, output: str
) -> None:
    """Show what the webhook would do with pods in YAML files, and why.

    Every object of the files is reviewed as newly created, so one that runs on a slice is denied: it names its node. Of a
    workload (Deployment, Job and the like) also the first pod of its template is reviewed, here called NAME-0. Nodes,
    namespaces, quotas and policies are those of the files; with --cluster or --kubeconfig those of a cluster, in which
    those of the files take the place of their namesakes.

    Exit status: 0 if all are admitted, 1 if one is denied, 2 if the input cannot be read, be it files or the cluster.

    \b
    Examples:
      apportion explain -f pod.yaml --cluster
      kubectl get nodes,namespaces,gpupolicies -A -o yaml > cluster.yaml
      apportion explain -f cluster.yaml -f pod.yaml
    """
    manifests = load(files)
    reviewer = _on_cluster(manifests, kubeconfig) if cluster or kubeconfig else _offline(manifests)
    plans = planned(manifests)
    workloads = {plan.title: plan.answer for plan in plans}
    pods = {pod.key: reviewer.review(pod) for pod in (*manifests.pods, *(plan.pod for plan in plans)) if pod}
    if output == TABLE:
        click.echo("\n".join(_lines(workloads) + _lines(pods)) or "no pods in the input")
    else:
        show({"workloads": workloads, "pods": pods}, output)
    denied = any(answer.denied is not None for answer in (*workloads.values(), *pods.values()))
    context.exit(1 if denied else 0)


def _offline(manifests: Manifests) -> Reviewer:
    return Reviewer.of(written(manifests), namespace_labels(manifests))


def _on_cluster(manifests: Manifests, kubeconfig: str | None) -> Reviewer:
    from console.snapshot import connected, namespaces, read  # a quarter of a second, which no file needs

    with connected(kubeconfig) as client:
        view, labels = read(client).view, namespaces(client)
    return Reviewer.of(overlaid(view, written(manifests)), labels | namespace_labels(manifests))


def _lines(answers: Mapping[str, Reviewed]) -> list[str]:
    """Return the answers for a terminal: one paragraph an object."""
    lines = []
    for key, answer in answers.items():
        if answer.denied is not None:
            outcome = "denied"
        else:
            outcome = "admitted, changed" if answer.patch else "admitted as it is"
        lines.append(f"{key}: {outcome}")
        lines += [f"  fault    {line}" for line in (answer.denied or "").splitlines()]
        lines += [f"  reason   {reason}" for reason in answer.reasons]
        said = [
            warning for warning in answer.warnings if not any(reason.endswith(warning) for reason in answer.reasons)
        ]
        lines += [f"  warning  {warning}" for warning in said]
        for operation in answer.patch:
            value = f" {json.dumps(operation['value'])}" if "value" in operation else ""
            lines.append(f"  patch    {operation['op']} {operation['path']}{value}")
    return lines
