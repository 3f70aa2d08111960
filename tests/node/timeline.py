"""When what happens to a pod on its way from its creation to its container: seen in the API, told by agent and containerd."""

import itertools
import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from console.sandbox.lifecycle import Sandbox
from console.sandbox.watching import PodWatch
from kube.resource import PODS
from policies.view import PodView
from tests.node.containers import container_of
from tests.node.gpus import GpuNode
from tests.node.image import IMAGE

# What the agent logs on the way, and what it is called here.
_OF_AGENT: Final = {
    "board_recut": "board recut",
    "device_plugins_registered": "device plugin registered",
    "allocated": "device allocated",
}


RUN_S: Final = 30.0


class Pods(PodWatch):
    """The pods of a namespace, and when each was first seen to be something.

    Attributes:
        seen: name -> what -> seconds since the epoch.
    """

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        super().__init__(sandbox, namespace)
        self.seen: dict[str, dict[str, float]] = {}

    def run(self, name: str, *, limits: dict[str, str] | None = None, **annotations: str) -> None:
        """Create a pod and wait until it is seen running; see `add`."""
        self.add(name, limits=limits, **annotations)
        self.wait(name, lambda pod: pod is not None and pod.running, RUN_S)

    def add(self, name: str, *, limits: dict[str, str] | None = None, **annotations: str) -> None:
        """Create a pod of one container that waits, with annotations of ours: `gpu_fraction="0.25"`."""
        self.seen[name] = {"created": time.time()}
        container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}
        keys = {f"nos.nebuly.com/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.create(
            {
                "metadata": {"name": name, "annotations": keys},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{**container, "resources": {"limits": limits or {}}}],
                },
            }
        )

    def remove(self, name: str) -> None:
        """Delete a pod and wait until it is gone: its container has ended, and the kubelet has said so."""
        self.end(name)
        self.wait(name, lambda pod: pod is None, 30)

    def end(self, name: str) -> None:
        """Let a pod be deleted, with its own grace."""
        self._client.delete(PODS.path(self.namespace, name))

    def status(self, name: str) -> str:
        """Return the status of a pod as the API server has it, for a message."""
        return self._client.get(PODS.path(self.namespace, name, "status")).decode()

    def _note(self, key: str, old: PodView | None, new: PodView | None) -> None:
        if new is not None:
            seen, now = self.seen.setdefault(new.name, {}), time.time()
            for what, true in (
                ("gate removed", not new.gated),
                ("bound", bool(new.node)),
                ("seen running", new.running),
            ):
                if true:
                    seen.setdefault(what, now)
        super()._note(key, old, new)


def way_of(pods: Pods, name: str, gpus: GpuNode, sandbox: Sandbox) -> dict[str, float]:
    """Return what -> seconds after the creation of a pod that now runs, in the order in which it happened."""
    seen = pods.seen[name]
    created = seen["created"]
    container = container_of(sandbox, pods.namespace, name)
    moments = {**seen, "container started": gpus.node.started_at(container.id)}
    for what, at in _told_by_agent(gpus):
        if created <= at <= moments["container started"]:
            moments.setdefault(what, at)
    return {what: at - created for what, at in sorted(moments.items(), key=lambda item: item[1])}


def recuts(pods: Pods, gpus: GpuNode, sandbox: Sandbox, count: int) -> list[float]:
    """Run pods one after another on an A100-40 with a 3g.20gb in use; return the seconds until each one's container starts.

    Each finds the other half of the board taken by the slice of the one before it, which has to go first.
    """
    took = []
    for number, profile in zip(range(count), itertools.cycle(("4g.20gb", "2g.10gb")), strict=False):
        name = f"recut-{number}"
        pods.run(name, limits={f"nvidia.com/mig-{profile}": "1"})
        took.append(way_of(pods, name, gpus, sandbox)["container started"])
        pods.remove(name)
    return took


def _told_by_agent(gpus: GpuNode) -> Iterator[tuple[str, float]]:
    for line in gpus.agent.log.read_text().splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # half a line, or not of ours
        if entry.get("event") in _OF_AGENT:
            yield _OF_AGENT[entry["event"]], datetime.fromisoformat(entry["timestamp"]).timestamp()
