"""Leader election on a Lease of coordination.k8s.io/v1: who may take it is decided purely, the rest is thin.

Safe by three rules. (1) No clock of another machine is believed: a lease has run out when its record has not changed
for its duration *as measured here*, since we first saw it so. (2) A leader counts from the moment it *sent* its last
successful renewal, and stops at `renew_s`, before `lease_s`, at which another may take over. (3) Every write carries
the resourceVersion that was read, so that of two candidates one loses.

The work runs in the caller's thread and lives no longer than the lease, nor the lease than the work: it must look at
`Leadership.held()` before each step that changes something, and each such step must carry a precondition (uid or
resourceVersion), since a request that was sent in time may still arrive late. Needs the verbs get, create and patch.
"""

import enum
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from kube.client import Client
from kube.errors import ApiError, Conflict, NotFound, Unreachable
from kube.resource import LEASES, Meta

DURATION_S: Final = 15  # of a Lease that does not say, as client-go has it
JITTER: Final = 0.2  # of the retry period, so that candidates do not ask in step


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a Lease says. `holder` is empty if it was released."""

    holder: str
    duration_s: float
    transitions: int
    version: str


class Sighting(msgspec.Struct, frozen=True):
    """A record (None: there is no Lease) and the local time in seconds at which it was first seen like that."""

    record: Record | None
    since: float


class Step(enum.Enum):
    """What a candidate does next."""

    CREATE = "create"  # there is no Lease
    TAKE = "take"  # it is free: released, or not renewed for its duration
    RENEW = "renew"  # it is ours
    WAIT = "wait"  # it is another's


def sight(before: Sighting | None, record: Record | None, now: float) -> Sighting:
    """Return what is now known of the Lease, remembering since when it has not changed."""
    return before if before and before.record == record else Sighting(record, now)


def decide(lease: Sighting, identity: str, now: float) -> Step:
    """Return what the candidate of this identity does at the local time `now`, in seconds."""
    record = lease.record
    if record is None:
        return Step.CREATE
    if record.holder == identity:
        return Step.RENEW
    if not record.holder or now - lease.since >= record.duration_s:
        return Step.TAKE
    return Step.WAIT


class Leadership:
    """One term as leader, as its work sees it."""

    def __init__(self, until: float, clock: Callable[[], float]) -> None:
        self.lost = threading.Event()  # set when the term is over, for whatever reason; held() may know earlier
        self._until = until
        self._clock = clock

    def held(self) -> bool:
        """Tell whether we may act now. False as soon as the renew deadline has passed, and for ever after."""
        if self.remaining_s() <= 0.0:
            self.lost.set()
        return not self.lost.is_set()

    def remaining_s(self) -> float:
        """Return for how many seconds we may still act if no renewal succeeds; zero or less: not at all."""
        return self._until - self._clock()

    def _extend(self, until: float) -> None:
        self._until = until


class Elector:
    """A candidate for one Lease. `identity` is unique among processes that may run at the same time."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_s: int = 15,
        renew_s: float = 10.0,
        retry_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        chance: Callable[[], float] = random.random,
        pause: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        if not 0 < retry_s < renew_s < lease_s:
            raise ValueError(f"need 0 < retry_s < renew_s < lease_s, not {retry_s}, {renew_s}, {lease_s}")
        self._client, self._identity = client, identity
        self._namespace, self._name = namespace, name
        self._path = LEASES.path(namespace, name)
        self._lease_s, self._renew_s, self._retry_s = lease_s, renew_s, retry_s
        self._clock, self._wall, self._chance, self._pause = clock, wall, chance, pause
        self._seen: Sighting | None = None
        self._log = structlog.get_logger().bind(lease=f"{namespace}/{name}", identity=identity)

    def run(self, work: Callable[[Leadership], None], stop: threading.Event) -> None:
        """Stand for election, and run `work` in this thread while leading, until it returns of itself or `stop` is set.

        When the lease is lost, `work` is waited for and the candidate stands again. What `work` raises comes out here,
        after the lease was released. `stop` ends the waiting; that `work` sees it is the caller's affair.
        """
        while not stop.is_set():
            if leadership := self._stand():
                if self._lead(leadership, work):
                    return
                self._log.error("leader_lost")
            else:
                self._pause(stop, self._retry_s * (1 + JITTER * self._chance()))

    def _stand(self) -> Leadership | None:
        """Try once to become leader."""
        try:
            record = self._read()
            self._seen = sight(self._seen, record, self._clock())
            step = decide(self._seen, self._identity, self._clock())
            if step is Step.WAIT:
                return None
            sent = self._clock()
            self._note(self._create() if record is None else self._write(record, self._claim(record)))
        except Conflict:
            return None  # another candidate was quicker
        except (ApiError, Unreachable) as error:
            self._log.warning("lease_not_taken", error=str(error))
            return None
        leadership = Leadership(sent + self._renew_s, self._clock)
        if not leadership.held():
            return None  # the answer took too long
        self._log.info("leader_elected", how=step.value)
        return leadership

    def _lead(self, leadership: Leadership, work: Callable[[Leadership], None]) -> bool:
        """Work while another thread renews; return whether the work has ended before the term."""
        renewing = threading.Thread(target=self._keep, args=(leadership,), name=f"lease {self._name}", daemon=True)
        renewing.start()
        try:
            work(leadership)
            return leadership.held()
        finally:
            leadership.lost.set()
            renewing.join()
            self._release()

    def _keep(self, leadership: Leadership) -> None:
        """Renew until the term is over; whatever ends this ends the term."""
        try:
            while leadership.held():
                if not self._pause(leadership.lost, min(self._retry_s, leadership.remaining_s())):
                    self._renew(leadership)
        finally:
            leadership.lost.set()

    def _renew(self, leadership: Leadership) -> None:
        """Renew once. A failure is no loss until the deadline; another holder, or no Lease at all, is one at once."""
        record = self._seen.record if self._seen else None
        sent, timeout_s = self._clock(), min(self._renew_s / 2, leadership.remaining_s())
        if record is None or timeout_s <= 0:
            return
        try:
            self._note(self._write(record, self._renewal(), timeout_s))
            leadership._extend(sent + self._renew_s)  # noqa: SLF001 (only the elector may)
        except Conflict:
            self._reread(leadership)
        except NotFound:
            leadership.lost.set()
        except (ApiError, Unreachable) as error:
            self._log.warning("lease_not_renewed", error=str(error), remaining_s=round(leadership.remaining_s(), 1))

    def _reread(self, leadership: Leadership) -> None:
        """See who has changed the Lease: someone who edited it, a renewal of ours that got no answer, or a new holder."""
        try:
            record = self._read()
        except (ApiError, Unreachable) as error:
            self._log.warning("lease_not_read", error=str(error))
            return
        if record is None or record.holder != self._identity:
            leadership.lost.set()
        self._note(record)

    def _release(self) -> None:
        """Give the lease up if it is ours, so that the next leader need not wait for it to run out."""
        try:
            record = self._read()
            if record and record.holder == self._identity:
                # A released lease lasts 1 s, the least that is valid, as client-go writes it.
                self._write(record, {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._time()})
                self._log.info("lease_released")
        except (ApiError, Unreachable) as error:
            self._log.warning("lease_not_released", error=str(error))

    # Input and output.

    def _read(self) -> Record | None:
        try:
            return _read_record(self._client.request("GET", self._path, timeout_s=self._renew_s / 2))
        except NotFound:
            return None

    def _create(self) -> Record:
        spec = {**self._renewal(), "acquireTime": self._time(), "leaseTransitions": 0}
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        return _read_record(self._client.create(LEASES.path(self._namespace), lease))

    def _write(self, record: Record, spec: dict[str, object], timeout_s: float | None = None) -> Record:
        """Change the Lease, if it is still as in `record`; Conflict otherwise."""
        body = {"metadata": {"resourceVersion": record.version}, "spec": spec}
        return _read_record(self._client.merge_patch(self._path, body, timeout_s=timeout_s or self._renew_s / 2))

    def _claim(self, record: Record) -> dict[str, object]:
        """Return the spec with which a free Lease becomes ours, or ours (after a restart) stays so."""
        if record.holder == self._identity:
            return self._renewal()
        return {**self._renewal(), "acquireTime": self._time(), "leaseTransitions": record.transitions + 1}

    def _renewal(self) -> dict[str, object]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._lease_s,
            "renewTime": self._time(),
        }

    def _time(self) -> str:
        return self._wall().isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _note(self, record: Record | None) -> None:
        self._seen = sight(self._seen, record, self._clock())


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _Spec | None = None


_LEASE: Final = msgspec.json.Decoder(_Lease)


def _read_record(raw: bytes) -> Record:
    try:
        lease = _LEASE.decode(raw)
    except msgspec.DecodeError as error:  # a proxy's page, say: no API server has answered
        raise Unreachable(f"the answer is no Lease: {error}") from error
    spec = lease.spec or _Spec()
    return Record(
        holder=spec.holder_identity or "",
        duration_s=float(spec.lease_duration_seconds or DURATION_S),
        transitions=spec.lease_transitions or 0,
        version=lease.metadata.resource_version,
    )
