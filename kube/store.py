"""The objects of one kind as we last knew them, in memory: what the watch has told, with our own writes laid over it.

The informer alone writes; any thread may read. Reads never wait for the network, so a store whose watch is broken
stays readable, ageing.

**Own writes.** The API server's answer to a write of ours is newer than what the watch has delivered. `lay_over` shows
it at once, or the next decision would be made from the state before the write and, say, grant a slice twice. It is
dropped as soon as the watch has passed it, that is, has delivered a list, bookmark or event of the same or a later
resourceVersion: within one watch they come in order. An older event that is still on its way never hides it.

**resourceVersions** are compared as integers, which they are in every API server (etcd's revision), and only within
one kind: states of one object to tell a repeated old event, and a write of ours with what the watch has reached. One
that is no integer cannot be ordered; then nothing is laid over, and the precondition of the next write catches what
was decided from the older state. The watch itself always resumes at the version that the list or the last event gave.
"""

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from kube.resource import Meta

T = TypeVar("T")


class Entry(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One state of one object; `value` is None if the projection does not keep it, or if it is deleted."""

    uid: str
    resource_version: str
    value: T | None


class Change(msgspec.Struct, Generic[T], frozen=True):
    """What the watch has changed: `old` None is an addition, `new` None a removal; never both."""

    key: str
    old: T | None
    new: T | None


class Store(Generic[T]):
    """Readable by any thread. Values are shared, so they must not be changed."""

    def __init__(self, indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, Entry[T]] = {}
        self._laid: dict[str, Entry[T]] = {}
        self._awaited: list[tuple[int, str]] = []  # a heap: (resourceVersion, key) of what is laid over, stale ones too
        self._visible: dict[str, T] = {}
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._index_functions}
        self._snapshot: tuple[T, ...] | None = ()
        self._version = 0
        self._reached = 0  # the resourceVersion up to which the watch has delivered everything

    @property
    def version(self) -> int:
        """Grows with every change of what is visible; equal versions mean equal content."""
        return self._version

    def get(self, key: str) -> T | None:
        """Return the object of this key (`namespace/name`, or `name`), or None."""
        return self._visible.get(key)

    def list(self) -> tuple[T, ...]:
        """Return all objects, in no particular order: the same tuple until something changes."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = tuple(self._visible.values())
            return self._snapshot

    def items(self) -> tuple[tuple[str, T], ...]:
        """Return all objects with their keys, in no particular order."""
        with self._lock:
            return tuple(self._visible.items())

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """Return the objects for which the index function of this name yields `value`. Raises KeyError: no such index."""
        with self._lock:
            return tuple(self._indexes[name].get(value, {}).values())

    def watched(self, key: str) -> Entry[T] | None:
        """Return what the watch has last told of this object; without our own writes."""
        return self._watched.get(key)

    # What the informer writes.

    def observe(self, key: str, entry: Entry[T]) -> Change[T] | None:
        """Take an ADDED or MODIFIED event; None if it changes nothing that is kept, or repeats an older state."""
        with self._lock:
            known = self._watched.get(key)
            if known and 0 <= _number(entry.resource_version) < _number(known.resource_version):
                return None
            change = self._watch(key, entry)
            self._reach(entry.resource_version)
            return change

    def remove(self, key: str, uid: str, resource_version: str) -> Change[T] | None:
        """Take a DELETED event; None if this object was not known, or another of its name has come since."""
        with self._lock:
            if (laid := self._laid.get(key)) and laid.uid == uid:
                del self._laid[key]
            known = self._watched.get(key)
            change = self._watch(key, known if known and known.uid != uid else None)
            self._reach(resource_version)
            return change

    def replace(self, entries: Mapping[str, Entry[T]], resource_version: str) -> tuple[Change[T], ...]:
        """Take a whole list of this resourceVersion as the truth; what it lacks is gone (deletions that were missed)."""
        with self._lock:
            self._reached = 0  # may go back, if etcd was restored from a backup
            self._laid = {key: laid for key, laid in self._laid.items() if laid.resource_version != _DELETED}
            changes = [self._watch(key, entries.get(key)) for key in dict.fromkeys([*self._watched, *entries])]
            self._reach(resource_version)
            return tuple(change for change in changes if change)

    def passed(self, resource_version: str) -> None:
        """Take a bookmark: the watch has delivered everything up to this resourceVersion."""
        with self._lock:
            self._reach(resource_version)

    def lay_over(self, meta: Meta, value: T | None) -> None:
        """Show the answer to a write of ours until the watch has passed it; ignored if it already has."""
        version = _number(meta.resource_version)
        with self._lock:
            laid = self._laid.get(meta.key)
            if version > self._reached and (laid is None or version > _number(laid.resource_version)):
                self._laid[meta.key] = Entry(meta.uid, meta.resource_version, value)
                heapq.heappush(self._awaited, (version, meta.key))
                self._show(meta.key)

    def lay_over_deleted(self, key: str, uid: str) -> None:
        """Hide an object that the server has removed for us, until the watch tells so; ignored if it already has."""
        with self._lock:
            known = self._watched.get(key)
            if known and known.uid == uid:
                self._laid[key] = Entry(uid, _DELETED, None)
                self._show(key)

    # Under the lock.

    def _watch(self, key: str, entry: Entry[T] | None) -> Change[T] | None:
        """Make `entry` what the watch says of `key`. None forgets it, and so does a value that is not kept."""
        old = self._watched.get(key)
        if entry is None or entry.value is None:
            self._watched.pop(key, None)
        else:
            self._watched[key] = entry
        laid = self._laid.get(key)
        if laid and laid.resource_version == _DELETED and (entry is None or entry.uid != laid.uid):
            del self._laid[key]
        self._show(key)
        before, after = old.value if old else None, entry.value if entry else None
        return None if before == after else Change(key, before, after)

    def _reach(self, resource_version: str) -> None:
        """Note how far the watch has delivered, and drop the writes of ours that this includes."""
        self._reached = max(self._reached, _number(resource_version))
        while self._awaited and self._awaited[0][0] <= self._reached:
            _, key = heapq.heappop(self._awaited)
            laid = self._laid.get(key)
            if laid and 0 <= _number(laid.resource_version) <= self._reached:
                del self._laid[key]
                self._show(key)

    def _show(self, key: str) -> None:
        """Bring what is visible of `key` up to date, the indexes included."""
        entry = self._laid.get(key) or self._watched.get(key)
        new, old = entry.value if entry else None, self._visible.get(key)
        if new is old or new == old:
            return
        for name, function in self._index_functions.items():
            index = self._indexes[name]
            if old is not None:
                for value in set(function(old)):
                    del index[value][key]
                    if not index[value]:
                        del index[value]
            if new is not None:
                for value in set(function(new)):
                    index.setdefault(value, {})[key] = new
        if new is None:
            del self._visible[key]
        else:
            self._visible[key] = new
        self._snapshot = None
        self._version += 1


_DELETED: Final = ""  # in place of the resourceVersion, which the answer to a deletion does not bring


def _number(resource_version: str) -> int:
    """Return it as a number, or -1 if it is none."""
    return int(resource_version) if resource_version.isdecimal() else -1
