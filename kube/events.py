"""Tells people what was done to an object, and why: core/v1 Events, as `kubectl describe` shows them.

`record` only notes the Event in memory; one thread writes it, so that a slow or absent API server never holds up a
decision. While an Event waits, repeats of it are counted into it; once written, repeats raise its count. What does not
fit is dropped and counted in the log: an Event that fails never fails the step that it tells of.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from kube.client import Client
from kube.errors import ApiError, NotFound, Unreachable
from kube.resource import EVENTS, read_meta

CLUSTER_NAMESPACE: Final = "default"  # where Events of cluster-scoped objects live
NAME: Final = 200  # characters of the object's name in the Event's, which ends in five of the server's; at most 253
MESSAGE_BYTES: Final = 1024  # what the API server accepts
WAITING: Final = 1000  # Events not yet written; more than that are dropped
REMEMBERED: Final = 4096  # Events written whose repeats are counted; an hour, the server's TTL, makes them anew
WRITE_S: Final = 5.0
CLOSE_S: Final = 2.0  # for writing out what waits, at the end


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an Event is about; `namespace` is empty for cluster-scoped ones."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class _What(msgspec.Struct, frozen=True):
    """What makes two Events the same."""

    ref: ObjectRef
    type: str
    reason: str
    message: str


class _Seen(msgspec.Struct):
    """How often an Event has happened, and where it is written."""

    first: str
    last: str
    count: int = 0
    name: str = ""


class EventRecorder:
    """Events of one component. Thread-safe; its thread starts with the first Event."""

    def __init__(
        self, client: Client, component: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._component, self._clock = client, component, clock
        self._changed = threading.Condition()
        self._waiting: OrderedDict[_What, _Seen] = OrderedDict()
        self._written: OrderedDict[_What, _Seen] = OrderedDict()
        self._dropped = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._log = structlog.get_logger().bind(component=component)

    def record(self, ref: ObjectRef, type_: str, reason: str, message: str) -> None:
        """Note an Event of type `Normal` or `Warning`; `reason` is PascalCase. Returns at once, and never raises."""
        what = _What(ref, type_, reason, _cut(message))
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        with self._changed:
            seen = self._waiting.get(what)
            if seen is None and (self._closed or len(self._waiting) >= WAITING):
                self._dropped += 1
                return
            if seen is None:
                seen = self._waiting[what] = self._written.get(what) or _Seen(now, now)
            seen.count += 1
            seen.last = now
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Write what waits, for two seconds at most, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while item := self._next():
            what, seen, times = item
            try:
                if not seen.name or not self._raise_count(what, seen.name, times):
                    seen.name = self._create(what, {"firstTimestamp": seen.first, **times})
            except (ApiError, Unreachable, msgspec.DecodeError) as error:
                self._log.warning("event_not_written", reason=what.reason, object=what.ref.name, error=str(error))

    def _next(self) -> tuple[_What, _Seen, dict[str, object]] | None:
        """Wait for an Event, and return it with its count and time as they are now; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._dropped:
                self._log.warning("events_dropped", count=self._dropped)
                self._dropped = 0
            if not self._waiting:
                return None
            what, seen = self._waiting.popitem(last=False)
            self._written[what] = seen
            self._written.move_to_end(what)
            if len(self._written) > REMEMBERED:
                self._written.popitem(last=False)
            return what, seen, {"count": seen.count, "lastTimestamp": seen.last}

    def _raise_count(self, what: _What, name: str, times: dict[str, object]) -> bool:
        """Count repeats into the Event that was written; False if the server has forgotten it."""
        path = EVENTS.path(what.ref.namespace or CLUSTER_NAMESPACE, name)
        try:
            self._client.merge_patch(path, times, timeout_s=WRITE_S)
        except NotFound:
            return False
        return True

    def _create(self, what: _What, times: dict[str, object]) -> str:
        """Write a new Event and return the name that the server gave it."""
        ref, namespace = what.ref, what.ref.namespace or CLUSTER_NAMESPACE
        involved = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
        event = {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {"generateName": f"{ref.name[:NAME]}.", "namespace": namespace},
            "involvedObject": involved | ({"namespace": ref.namespace} if ref.namespace else {}),
            "type": what.type,
            "reason": what.reason,
            "message": what.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            **times,
        }
        return read_meta(self._client.create(EVENTS.path(namespace), event, timeout_s=WRITE_S)).name


def _cut(message: str) -> str:
    """Return the message in at most 1024 bytes of UTF-8, with dots where it was cut."""
    raw = message.encode()
    if len(raw) <= MESSAGE_BYTES:
        return message
    return raw[: MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
