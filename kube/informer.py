"""Keeps a `Store` true to one kind of objects: lists once, then watches, and lists again whenever it may have missed one.

Owns one thread and at most one connection. Every list is compared with what was known, so that a deletion that
happened during a gap is seen (and handlers are told). The watch resumes at the resourceVersion of the list or of the
last event or bookmark, never at that of a listed item (pain R03). After a failure the store stays as it was and
readable; the informer goes on trying, with pauses that double and are jittered, and recovers by itself.

Objects are decoded by `project` into what the process needs of them, off the store's lock, a page or a line at a time:
memory grows with the projections, not with what the API server sends (pain R08).
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, Literal, TypeVar

import msgspec
import structlog

from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Gone, NotFound, TimedOut, Unreachable, read_status_event
from kube.paging import pages
from kube.resource import Meta, Resource, read_meta
from kube.store import Change, Entry, Store
from kube.stream import Stream

T = TypeVar("T")

WATCH_S: Final = 300  # the server ends a watch after this much to twice that: connections spread over its replicas
SILENCE_S: Final = 90.0  # the server sends a bookmark every minute (measured: 60 s), whether or not there is news
LIST_S: Final = 60.0  # one page of a list
STOP_S: Final = 5.0  # a thread that waits for a server that does not answer is left to end by itself
HEALTHY_S: Final = 10.0  # a watch that has lasted this long is no failure when it ends
BACKOFF: Final = Backoff(base_s=0.2, cap_s=15.0)


class _Event(msgspec.Struct, frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_EVENT: Final = msgspec.json.Decoder(_Event)


class Informer(Generic[T]):
    """A live copy of the objects of a kind, of one namespace or all, by selectors.

    `project` turns a raw object into what is kept of it, or None: not kept (it leaves the store if it was there). If it
    raises, the last readable state is kept and the fault is logged, with its traceback unless it is a msgspec.DecodeError.
    Handlers run on the informer's thread, in the order of the watch, once for each change of what is kept:
    `handler(key, old, new)`, `old` being what it was told last. What a handler raises is logged and does no further harm.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        project: Callable[[bytes], T | None],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        backoff: Backoff = BACKOFF,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        pause: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self.store: Store[T] = Store(indexes)
        self.synced = threading.Event()
        self._client, self._resource = client, resource
        self._path = resource.path(namespace)
        self.project = project
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: value for name, value in selectors.items() if value}
        self._backoff, self._silence_s = backoff, silence_s
        self._clock, self._chance, self._pause = clock, chance, pause
        self._handlers: list[Callable[[str, T | None, T | None], None]] = []
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._resume: str | None = None  # the resourceVersion to watch from; None: list first
        self._thread = threading.Thread(target=self._run, name=f"informer {resource.plural}", daemon=True)
        self._log = structlog.get_logger().bind(resource=resource.plural)

    def on_change(self, handler: Callable[[str, T | None, T | None], None]) -> None:
        """Call `handler(key, old, new)` for every change from now on; before `start`, to be told of all objects."""
        self._handlers.append(handler)

    def start(self) -> None:
        """Begin to list and watch. `synced` is set when the first list is in the store and the handlers know it."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch and the thread; the store stays readable. Not to be called by a handler."""
        self._stopped.set()
        if stream := self._stream:
            stream.interrupt()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def lay_over(self, raw: bytes) -> None:
        """Show the API server's answer to a write of ours at once, until the watch has passed it; tells no handler."""
        self.store.lay_over(read_meta(raw), self.project(raw))

    def lay_over_deleted(self, key: str, uid: str) -> None:
        """Hide an object that the API server has removed (not: begun to remove) at our request, at once."""
        self.store.lay_over_deleted(key, uid)

    def read_again(self, key: str, uid: str, *, timeout_s: float) -> bool:
        """Lay over the object of this key as the API server has it now, or that the one of this uid is gone.

        Return whether that could be had; if not, the watch will tell.
        """
        namespace, _, name = key.rpartition("/")
        path = self._resource.path(namespace or None, name)
        try:
            self.lay_over(self._client.request("GET", path, timeout_s=timeout_s))
        except NotFound:
            self.lay_over_deleted(key, uid)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            self._log.warning("not_read_again", object=key, error=str(error))
            return False
        return True

    def read_afresh(self, *, timeout_s: float, field_selector: str = "") -> bool:
        """Lay over all objects, or those of a selector, as the API server has them now; each page within `timeout_s`.

        What is gone stays until the watch tells. Return whether all could be had.
        """
        selectors = {**self._selectors, **({"fieldSelector": field_selector} if field_selector else {})}
        try:
            for page in pages(self._client, self._path, selectors, timeout_s=timeout_s):
                for item in page.items:
                    self.lay_over(bytes(item))
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            self._log.warning("not_read_afresh", selectors=selectors, error=str(error))
            return False
        return True

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            started = self._clock()
            pause_s = self._round()
            if self._clock() - started >= HEALTHY_S:
                failures = 0
            else:
                failures += 1
                pause_s = max(pause_s, self._backoff.delay_s(failures, self._chance()))
            self._pause(self._stopped, pause_s)

    def _round(self) -> float:
        """List if need be, and watch until that ends; return the pause that the server asks for, in seconds."""
        resuming = self._resume is not None
        try:
            if self._resume is None:
                self._resume = self._list()
            self._watch(self._resume)
        except Gone as error:
            self._resume = None
            self._log.warning("watch_expired", error=str(error))
            # A server that has just come back often cannot resume: then no further pause, but only once.
            return self._round() if resuming else error.retry_after_s
        except ApiError as error:
            self._log.warning("watch_refused", error=str(error))
            return error.retry_after_s
        except TimedOut as error:
            # A dead connection, or a blind one: if etcd was restored from a backup, our version lies in the future, and
            # the server says nothing, not even by a bookmark, until it has come that far.
            self._resume = None
            self._log.warning("watch_silent", error=str(error))
        except Unreachable as error:
            if not self._stopped.is_set():
                self._log.warning("watch_broken", error=str(error))
        except msgspec.DecodeError as error:
            self._resume = None  # what that line told is lost
            self._log.warning("watch_unreadable", error=str(error))
        except Exception:  # noqa: BLE001 (the thread must outlive our own faults: a store that silently stands still is worse)
            self._resume = None
            self._log.exception("watch_failed")
        return 0.0

    def _list(self) -> str:
        """Fill the store from a paged list and return the resourceVersion of the list."""
        entries: dict[str, Entry[T]] = {}
        version = ""
        for page in pages(self._client, self._path, self._selectors, timeout_s=LIST_S):
            version = page.resource_version
            for item in page.items:
                meta = read_meta(item)
                entry = self._entry(meta, bytes(item))
                if entry.value is not None:
                    entries[meta.key] = entry
        changes = self.store.replace(entries, version)
        self._log.info("listed", objects=len(entries), changes=len(changes), resource_version=version)
        for change in changes:
            self._tell(change)
        self.synced.set()
        return version

    def _watch(self, resource_version: str) -> None:
        query = {
            **self._selectors,
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(WATCH_S * (1 + self._chance()))),
        }
        with self._client.watch(self._path, query, self._silence_s) as stream:
            self._stream = stream
            if self._stopped.is_set():  # in between: stop() has found no stream to end
                return
            for line in stream:
                event = _EVENT.decode(line)
                self._take(event.type, bytes(event.object))

    def _take(self, kind: str, raw: bytes) -> None:
        if kind == "ERROR":
            raise read_status_event(raw)
        meta = read_meta(raw)
        change: Change[T] | None = None
        if kind == "BOOKMARK":
            self.store.passed(meta.resource_version)
        elif kind == "DELETED":
            change = self.store.remove(meta.key, meta.uid, meta.resource_version)
        else:
            change = self.store.observe(meta.key, self._entry(meta, raw))
        self._resume = meta.resource_version
        if change:
            self._tell(change)

    def _entry(self, meta: Meta, raw: bytes) -> Entry[T]:
        try:
            value = self.project(raw)
        except Exception as error:  # noqa: BLE001 (one object that cannot be read must not keep all others from being read)
            # An object that vanished from the store because we cannot read it would look like free room.
            known = self.store.watched(meta.key)
            value = known.value if known and known.uid == meta.uid else None
            self._log.error(
                "object_unreadable",
                object=meta.key,
                uid=meta.uid,
                error=str(error),
                kept=value is not None,
                exc_info=not isinstance(error, msgspec.DecodeError),
            )
        return Entry(meta.uid, meta.resource_version, value)

    def _tell(self, change: Change[T]) -> None:
        for handler in self._handlers:
            try:
                handler(change.key, change.old, change.new)
            except Exception:  # noqa: BLE001 (one reader's fault must not blind the others)
                self._log.exception("handler_failed", object=change.key)
