"""Keep the certificates in order while the process runs, and give the server the leaf to serve.

Look, decide, take one step, look again, until nothing is left to do; then again every few seconds, which finds
what others changed (an emptied Secret, a configuration applied anew). Every replica does this, leader or not.
Without the API server, what is served stays served.
"""

import datetime as dt
import threading
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from certs.issue import KeyPair
from certs.rotation import Step, decide
from certs.sslcontext import ServerContext, handshake_fault
from certs.store import CertificateStore, Observation
from kube.errors import ApiError, Conflict, Invalid, Unreachable

LOOK_EVERY_S: Final = 5.0
FIRST_RETRY_S: Final = 0.5  # doubles up to LOOK_EVERY_S
# A bootstrap needs two steps; more are lost races, each of which leaves the state better than it was.
MOST_STEPS: Final = 8

_log = structlog.get_logger(__name__)


class Waiter(Protocol):
    """What `Keeper.run` needs of a threading.Event: wait so many seconds, True when it is time to stop."""

    def wait(self, timeout: float) -> bool:
        """Return whether to stop, after so many seconds at most."""


class Unsettled(Exception):  # noqa: N818 - a state, not an error of the caller
    """The certificates did not come to rest within `MOST_STEPS`: someone else keeps changing them."""


class Keeper:
    """The certificates of one server that is called by `names`. Its reading side is thread-safe."""

    def __init__(
        self, store: CertificateStore, names: tuple[str, ...], *, clock: Callable[[], dt.datetime] | None = None
    ) -> None:
        self._store = store
        self._names = names
        self._clock = clock or _utc_now
        self._leaf: KeyPair | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.context = ServerContext(self.leaf)
        self.fault: str | None = "no certificate yet"

    def leaf(self) -> KeyPair | None:
        """Return the pair to serve; None until there has been one."""
        return self._leaf

    def start(self) -> None:
        """Begin to keep the certificates, in a thread of its own."""
        self._thread = threading.Thread(target=self.run, args=(self._stop,), name="certificates", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop keeping them; a request under way is not waited for."""
        self._stop.set()

    def run(self, stop: Waiter) -> None:
        """Settle again and again until told to stop; failures are logged and tried again, less and less often."""
        retry_s = FIRST_RETRY_S
        while True:
            try:
                self.settle()
                pause_s, retry_s = LOOK_EVERY_S, FIRST_RETRY_S
            except (ApiError, Unreachable, Unsettled) as error:
                _log.warning("certificates_unsettled", error=str(error), retry_in_s=retry_s, serving=bool(self._leaf))
                pause_s, retry_s = retry_s, min(retry_s * 2, LOOK_EVERY_S)
            if stop.wait(pause_s):
                return

    def settle(self) -> None:
        """Take steps until the Secret and every caBundle agree, and check that the outcome can be served.

        Afterwards `fault` is None if a client that trusts the published authority would talk to us, else why
        not. Raises ApiError, Unreachable or Unsettled; `fault` then stays as it was.
        """
        lost: str = ""
        for _ in range(MOST_STEPS):
            observation = self._store.observe()
            decision = decide(observation.seen, names=self._names, now=self._clock())
            if decision.step in {Step.SERVE, Step.PUBLISH}:
                self._adopt(observation)  # before it is published: whoever trusts it must find it served
            if decision.step is Step.SERVE:
                return
            _log.info("certificates_step", step=decision.step.value, reason=decision.reason, detail=decision.message)
            try:
                self._store.take(decision.step, observation, names=self._names, now=self._clock())
            except (Conflict, Invalid) as error:  # another replica was faster: look at what it did
                lost = f"; the last write: {error}"
        raise Unsettled(f"not settled after {MOST_STEPS} steps, the last reason {decision.reason}{lost}")

    def _adopt(self, observation: Observation) -> None:
        material = observation.seen.material
        if material is None:
            return
        self._leaf = material.leaf
        context = self.context.current()
        if context is None:
            self.fault = "the certificate cannot be served"
        else:
            # Against what the API server really has; before there is a configuration, against what it would get.
            bundles = set(observation.seen.published) or {material.authority.certificate}
            faults = (handshake_fault(context, bundle, name) for bundle in bundles for name in self._names)
            self.fault = next((fault for fault in faults if fault), None)


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
