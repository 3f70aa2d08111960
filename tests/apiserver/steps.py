"""Ready-made steps: lists, watches with their ends, refusals, and a watch that the test feeds while it is open."""

import queue
from collections.abc import Iterable, Mapping

from tests.apiserver.server import PATIENCE_S, Request, Step, Wire

Object = Mapping[str, object]


def pod(name: str, version: int, *, node: str = "", uid: str = "", namespace: str = "ns") -> Object:
    """Return a pod of this resourceVersion; its uid is the name if none is given."""
    metadata = {"name": name, "namespace": namespace, "uid": uid or name, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"nodeName": node}}


def status(code: int, reason: str = "", **details: object) -> Object:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no", "details": details}


def listing(items: Iterable[Object], version: int, more: str = "") -> Step:
    """Answer with a (page of a) list; `more` is the continue token."""
    body = {"kind": "PodList", "metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}
    return lambda _, wire: wire.json(200, body)


def refusal(code: int, reason: str = "", headers: Mapping[str, str] | None = None) -> Step:
    return lambda _, wire: wire.json(code, status(code, reason), headers)


def events(*pairs: tuple[str, Object], then: str = "hold") -> Step:
    """Send these events, then `hold` the stream open in silence, `end` it in good order, or `cut` it."""

    def play(_: Request, wire: Wire) -> None:
        wire.open()
        for kind, obj in pairs:
            wire.event(kind, obj)
        getattr(wire, then)()

    return play


def bookmark(version: int) -> tuple[str, Object]:
    return ("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version), "creationTimestamp": None}})


class Live:
    """A watch that stays open and sends what the test tells it to."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[str, Object] | None] = queue.Queue()

    def __call__(self, _: Request, wire: Wire) -> None:
        wire.open()
        while item := self._queue.get(timeout=PATIENCE_S):
            wire.event(*item)
        wire.end()

    def send(self, kind: str, obj: Object) -> None:
        self._queue.put((kind, obj))

    def end(self) -> None:
        """End the stream in good order; a test that uses one must, or its server waits at its end."""
        self._queue.put(None)
