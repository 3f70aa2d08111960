"""Takes back what is lent, at a measured pace: who may go now, how it ended, and what is known of those who go.

A leader may be killed between any two writes: a mark whose eviction is no longer decided is taken back, and the next
leader chooses the same victim and goes on, or chooses otherwise and cleans up. Never deletes.

An eviction ends in one of six ways. *Done*: the pod counts as ending from now on, before the watch tells. *Refused*, by
a budget (429) or otherwise: the mark is taken back, and the pod is no victim again until the pause that the server asks
for, or ours, is over. *Stale*: the pod is gone or another one; decide anew. *Unknown*: no answer, so it counts as done
until the pod has been read again, no earlier than the request could still have its way. *Put off*: the API server could
not take the mark, so everybody's eviction waits. *Stopped*: the lease is no longer ours.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
import structlog

from kube.backoff import Backoff
from kube.client import Client
from kube.events import EventRecorder, ObjectRef
from kube.informer import Informer
from policies import names
from policies.decision import Evict
from policies.view import PodView
from reconciler.eviction import Ended, Evictions
from reconciler.lanes import Lanes
from reconciler.metrics import WRITES
from reconciler.observe import ENDING, MARK, MARKED

WORKERS: Final = 8
A_SECOND: Final = 64  # evictions: a mistake in a quota should be seen before all it asks for has happened
A_SECOND_OF_QUOTA: Final = 32  # of them for the claimants of one quota, so that others get theirs
LATE_S: Final = 60.0  # after its grace; then people are told of a victim that does not end
PUT_OFF_S: Final = 1.0
AGAIN: Final = Backoff(base_s=2.0, cap_s=300.0)


class _Going(msgspec.Struct, frozen=True):
    """An eviction that the watch has not told of yet; `read_at`: when to look, if its outcome is unknown."""

    uid: str
    claimant: str
    read_at: float = math.inf


class _Refused(msgspec.Struct, frozen=True):
    """A pod that may not be evicted: failures in a row, and until when it is left alone, by the clock that never jumps."""

    uid: str
    failures: int
    until: float


class Evictor:
    """Evicts for one term of leadership; used by one thread, writing on several.

    `held` tells whether the lease is still ours; it is asked before each write. `timeout_s` bounds a write. `now` is in
    seconds since the epoch, `clock` is monotonic.
    """

    def __init__(
        self,
        client: Client,
        pods: Informer[PodView],
        recorder: EventRecorder,
        *,
        held: Callable[[], bool],
        now: Callable[[], float],
        clock: Callable[[], float],
        timeout_s: float,
        max_grace_s: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._pods, self._recorder = pods, recorder
        self._held, self._now, self._clock, self._chance = held, now, clock, chance
        self._timeout_s, self._max_grace_s = timeout_s, max_grace_s
        self._evictions = Evictions(client, pods, held=held, timeout_s=timeout_s)
        self._lanes = Lanes(WORKERS, "evict")
        self._going: dict[str, _Going] = {}
        self._refused: dict[str, _Refused] = {}
        self._ending: dict[str, float] = {}  # uid -> since when, or infinity once people have been told
        self._second = self._not_before = -math.inf
        self._evicted: Counter[str] = Counter()  # in this second: by the claimant's quota
        self._log = structlog.get_logger()

    def assumed(self) -> Mapping[str, PodView]:
        """Return, by namespace/name, what to take for the pods of which we know more than they say themselves."""
        self._read_back()
        known: dict[str, PodView] = {}
        for key, refused in list(self._refused.items()):
            pod = self._pods.store.get(key)
            if pod is None or pod.uid != refused.uid:
                del self._refused[key]
            else:
                left_s = refused.until - self._clock()
                known[key] = msgspec.structs.replace(pod, refused_until=self._now() + left_s)
        for key, going in list(self._going.items()):
            pod = self._pods.store.get(key)
            if pod is None or pod.uid != going.uid or pod.terminating:
                del self._going[key]
            else:
                known[key] = msgspec.structs.replace(pod, terminating=True, evicted_for=going.claimant)
        return known

    def apply(self, evictions: Iterable[Evict], pods: Mapping[str, PodView]) -> float:
        """Carry out what is decided about these pods; return in how many seconds there is something to do again.

        Zero if a pod was not as decided from: the answer is to decide again.
        """
        wanted = {evict.pod: evict for evict in evictions}
        self._take_back_stale(wanted.keys())
        allowed, again_s = self._allowed(wanted.values())
        ended = self._lanes.map(lambda evict: (evict, self._evictions.evict(evict, pods[evict.pod])), allowed)
        for evict, end in ended:
            WRITES.labels("evict", end.outcome).inc()
            self._note(evict, end)
        if any(end.outcome == "stale" for _, end in ended):
            return 0.0
        self._tell_of_late_ones()
        at = self._clock()
        return min([
            again_s,
            *(refused.until - at for refused in self._refused.values() if refused.until > at),
            *(max(0.0, going.read_at - at) for going in self._going.values()),
        ])  # fmt: skip

    def close(self) -> None:
        """Let no more evictions begin; those under way end within their timeout."""
        self._lanes.close()

    def _allowed(self, evictions: Iterable[Evict]) -> tuple[list[Evict], float]:
        """Return what may be evicted now, and in how many seconds the rest may be; infinity if there is none."""
        at = self._clock()
        if at < self._not_before:
            return [], self._not_before - at
        if at - self._second >= 1.0:
            self._second, self._evicted = at, Counter()
        allowed, left = [], False
        for evict in evictions:
            if self._evicted[evict.quota] < A_SECOND_OF_QUOTA and self._evicted.total() < A_SECOND:
                self._evicted[evict.quota] += 1
                allowed.append(evict)
            else:
                left = True
        return allowed, max(0.0, self._second + 1.0 - at) if left else math.inf

    def _note(self, evict: Evict, end: Ended) -> None:
        """Remember how an attempt ended, and tell people."""
        victim = claimant = _ref(evict.pod, evict.uid)
        if evict.claimant:
            claimant = _ref(evict.claimant, evict.claimant_uid)
        if end.outcome in {"done", "unknown"}:
            read_at = math.inf if end.outcome == "done" else self._clock() + self._timeout_s
            self._going[evict.pod] = _Going(evict.uid, evict.claimant, read_at)
        if end.outcome == "done":
            self._refused.pop(evict.pod, None)
            whom = f"evicted for {evict.claimant}" if evict.claimant else "evicted"
            self._recorder.record(victim, "Warning", evict.reason, f"{whom}: {evict.message}")
            if evict.claimant:
                self._recorder.record(claimant, "Normal", names.EVICTING, f"{evict.pod} is evicted: {evict.message}")
        if end.outcome == "put off":
            self._not_before = max(self._not_before, self._clock() + max(end.pause_s, PUT_OFF_S))
        if end.outcome == "refused":
            pause_s = self._refuse(evict.pod, evict.uid, end.pause_s)
            said = f"{evict.pod} cannot be evicted: {end.why}; not tried again for {math.ceil(pause_s)} s"
            self._recorder.record(claimant, "Warning", names.EVICTION_REFUSED, said)

    def _refuse(self, key: str, uid: str, asked_s: float) -> float:
        """Leave a pod alone for a while; return for how many seconds."""
        before = self._refused.get(key)
        failures = before.failures + 1 if before and before.uid == uid else 1
        pause_s = max(asked_s, AGAIN.delay_s(failures, self._chance()))
        self._refused[key] = _Refused(uid, failures, self._clock() + pause_s)
        return pause_s

    def _read_back(self) -> None:
        """Look at the victims whose eviction had no answer: one that still runs was not evicted."""
        at = self._clock()
        for key, going in [(key, going) for key, going in self._going.items() if going.read_at <= at]:
            pod = self._pods.store.get(key)
            if pod is None or pod.uid != going.uid or pod.terminating or not self._held():
                continue
            if not self._evictions.read_again(pod):
                self._going[key] = msgspec.structs.replace(going, read_at=at + self._timeout_s)
                continue
            seen = self._pods.store.get(key)
            if seen and seen.uid == going.uid and not seen.terminating:
                del self._going[key]
                self._refuse(key, going.uid, 0.0)

    def _take_back_stale(self, wanted: Iterable[str]) -> None:
        """Take back the marks of pods that are no victims any more: a leader before us, or a refusal, left them."""
        keep = {*wanted, *self._going}
        stale = [pod for pod in self._pods.store.by_index(MARK, MARKED) if pod.key not in keep]
        self._lanes.map(self._evictions.take_back, stale)

    def _tell_of_late_ones(self) -> None:
        """Tell people, once, of victims that are long past their grace: a finalizer, or a node that is away."""
        at = self._clock()
        ending = {pod.uid: pod for pod in self._pods.store.by_index(MARK, ENDING)}
        self._ending = {uid: self._ending.get(uid, at) for uid in ending}
        for uid, since in self._ending.items():
            pod = ending[uid]
            if at - since > min(pod.grace_s, self._max_grace_s) + LATE_S:
                self._ending[uid] = math.inf
                message = (
                    f"evicted for {pod.evicted_for}, and still there {int(at - since)} s later: "
                    f"what it holds is kept for that pod; look for finalizers, and at node {pod.node}"
                )
                self._log.warning("victim_stays", pod=pod.key, claimant=pod.evicted_for)
                self._recorder.record(_ref(pod.key, uid), "Warning", names.VICTIM_STAYS, message)


def _ref(key: str, uid: str) -> ObjectRef:
    namespace, _, name = key.rpartition("/")
    return ObjectRef(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=uid)
