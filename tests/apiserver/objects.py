"""Objects with a memory: create, read, merge and delete, with resourceVersions that forbid lost updates.

Give it to a server as `otherwise`, and routes play faults in front of it.
"""

import json
import threading
from typing import Any

from tests.apiserver.server import Request, Wire
from tests.apiserver.steps import status


class Objects:
    """What an API server would keep in etcd, by path."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Any]] = {}
        self._version = 0
        self.taken: list[Request] = []  # in the order in which they had effect, not in that of their arrival

    def __call__(self, request: Request, wire: Wire) -> None:
        with self._lock:
            self.taken.append(request)
            code, body = getattr(self, request.method.lower())(request)
        wire.json(code, body)

    def __getitem__(self, path: str) -> dict[str, Any]:
        return self._objects[path]

    def patch(self, request: Request) -> tuple[int, object]:
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        old = self._objects.get(request.path)
        if old is None:
            return 404, status(404, "NotFound")
        new = _merge(old, json.loads(request.body))
        if new["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
            return 409, status(409, "Conflict")
        return 200, self._keep(request.path, new)

    def get(self, request: Request) -> tuple[int, object]:
        found = self._objects.get(request.path)
        return (200, found) if found else (404, status(404, "NotFound"))

    def post(self, request: Request) -> tuple[int, object]:
        new = json.loads(request.body)
        path = f"{request.path}/{new['metadata']['name']}"
        if path in self._objects:
            return 409, status(409, "AlreadyExists")
        return 201, self._keep(path, new)

    def delete(self, request: Request) -> tuple[int, object]:
        return (200, self._objects.pop(request.path)) if request.path in self._objects else self.get(request)

    def _keep(self, path: str, new: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        self._objects[path] = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self._version)}}
        return self._objects[path]


def _merge(old: Any, new: Any) -> Any:
    """RFC 7386."""
    if not isinstance(new, dict):
        return new
    old = old if isinstance(old, dict) else {}
    merged = {key: value for key, value in old.items() if key not in new}
    return merged | {key: _merge(old.get(key), value) for key, value in new.items() if value is not None}
