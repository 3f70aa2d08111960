"""The script of the demo: manifests as they stand in files, given to kubectl as a person would."""

import re
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

import click

from console.sandbox.kubectl import run_kubectl
from console.sandbox.lifecycle import Sandbox

_WARNING: Final = re.compile(r"^Warning: (.*)$", re.MULTILINE)


def documents(file: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each object in a file beside this one; its first paragraph is a comment on the whole."""
    text = files("console.sandbox").joinpath(file).read_text()
    for document in text.split("\n\n", 1)[1].split("---\n"):
        name = re.search(r"name: ([\w-]+)", document)
        if name is not None:
            yield name[1], document


def create(sandbox: Sandbox, namespace: str, manifest: str) -> float:
    """Create an object as a user does, and show what the webhook says. Raises KubectlError if it is refused.

    Returns when kubectl was called, in seconds of the monotonic clock.
    """
    click.echo(f"$ kubectl create -n {namespace} -f - <<EOF")
    click.echo(f"{manifest}EOF")
    called = time.monotonic()
    done = run_kubectl(sandbox.directory, "create", "-n", namespace, "-f", "-", stdin=manifest)
    for warning in _WARNING.findall(done.stderr):
        click.echo(f"  webhook: {warning}")
    return called
