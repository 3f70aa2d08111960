"""`apportion explain`: what the webhook would do with pods in files, and why."""

import json
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import click

from console.manifests import files_option, load
from console.output import TABLE, output_option, show
from console.reviewing import Reviewed, Reviewer, namespace_labels, written


@click.command()
@files_option
@output_option
@click.pass_context
def explain(context: click.Context, files: Sequence[BinaryIO], output: str) -> None:
    """Show what the webhook would do with pods in YAML files, and why.

    No cluster is asked: give the nodes and namespaces along with the pods. Every pod is reviewed as newly created.

    Exit status: 0 if all pods are admitted, 1 if one is denied, 2 if the input cannot be read.

    \b
    Example:
      kubectl get nodes,namespaces -o yaml > cluster.yaml
      apportion explain -f cluster.yaml -f pod.yaml
    """
    manifests = load(files)
    reviewer = Reviewer.of(written(manifests), namespace_labels(manifests))
    answers = {pod.key: reviewer.review(pod) for pod in manifests.pods}
    if output == TABLE:
        click.echo("\n".join(_lines(answers)))
    else:
        show({"pods": answers}, output)
    context.exit(1 if any(answer.denied is not None for answer in answers.values()) else 0)


def _lines(answers: Mapping[str, Reviewed]) -> list[str]:
    """Return the answers for a terminal: one paragraph a pod."""
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
    return lines or ["no pods in the input"]
