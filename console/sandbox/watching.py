"""Watch the pods of one namespace of a sandbox, and wait until they are what they should become."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from console.sandbox.lifecycle import Sandbox
from kube.client import Client
from kube.informer import Informer
from kube.resource import PODS
from policies.model import Pod
from policies.view import PodView, view_pod


class PodWatch:
    """The pods of a namespace as they are now, and when each was first seen running.

    Attributes:
        namespace: the one that is watched.
        ran: name -> seconds of the monotonic clock at which it was first seen running.
    """

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        """Name what to watch; the watch begins with the `with` block."""
        self.ran: dict[str, float] = {}
        self.namespace = namespace
        self._changed = threading.Condition()
        self._client = Client.load(str(sandbox.kubeconfig), user_agent="apportion-sandbox")
        self._informer = Informer(self._client, PODS, _project, namespace=namespace)
        self._informer.on_change(self._note)

    def __enter__(self) -> Self:
        self._informer.start()
        if not self._informer.synced.wait(30):
            raise TimeoutError(f"the API server does not list the pods of {self.namespace}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._informer.stop()
        self._client.close()

    def create(self, pod: dict[str, object]) -> None:
        """Create a pod, of which only metadata and spec need be given. Raises kube.errors.ApiError if it is refused."""
        self._client.create(PODS.path(self.namespace), {"apiVersion": "v1", "kind": "Pod", **pod})

    def delete(self, name: str) -> None:
        """Delete a pod, without grace."""
        self._client.delete(PODS.path(self.namespace, name), {"gracePeriodSeconds": 0})

    def get(self, name: str) -> PodView | None:
        """Return a pod as it is now, or None if there is none."""
        return self._informer.store.get(f"{self.namespace}/{name}")

    def all(self) -> tuple[PodView, ...]:
        """Return all pods as they are now, by name."""
        return tuple(sorted(self._informer.store.list(), key=lambda pod: pod.name))

    def wait_for(self, what: str, become: Callable[[tuple[PodView, ...]], bool], timeout_s: float) -> None:
        """Return as soon as the pods of the namespace have become so. Raises TimeoutError, naming `what` did not happen."""
        with self._changed:
            if not self._changed.wait_for(lambda: become(self.all()), timeout_s):
                raise TimeoutError(f"pods of {self.namespace} after {timeout_s:.0f} s: {what} has not happened")

    def wait(self, name: str, become: Callable[[PodView | None], bool], timeout_s: float) -> None:
        """Return as soon as the pod (None: there is none) has become so. Raises TimeoutError, with what it is instead."""
        with self._changed:
            if not self._changed.wait_for(lambda: become(self.get(name)), timeout_s):
                pod = self.get(name)
                state = "does not exist" if pod is None else " ".join(pod.waiting) or "has not come further"
                raise TimeoutError(f"pod {self.namespace}/{name} after {timeout_s:.0f} s: {state}")

    def _note(self, _key: str, _old: PodView | None, new: PodView | None) -> None:
        now = time.monotonic()
        with self._changed:
            if new is not None and new.running:
                self.ran.setdefault(new.name, now)
            self._changed.notify_all()


def _project(raw: bytes) -> PodView:
    return view_pod(msgspec.json.decode(raw, type=Pod))
