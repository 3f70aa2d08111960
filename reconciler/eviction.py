"""The two writes of an eviction: a mark on the victim, for whom it goes, and the Eviction itself; nothing is remembered.

The mark (annotation `evicted-for`) comes first, with preconditions, so that whoever leads next knows what an ending pod
counts for. A mark alone counts for nothing. A pod that goes for nobody, since the scheduler cannot place it, needs no
mark: it holds nothing that anybody could have.

The condition `DisruptionTarget` on a victim is the API server's, which writes it with the eviction: Jobs read it.
"""

from collections.abc import Callable
from typing import Literal

import msgspec
import structlog

from kube.client import Client
from kube.errors import ApiError, Conflict, NotFound, Unreachable, outcome_unknown
from kube.informer import Informer
from kube.resource import PODS
from policies.decision import Evict
from policies.view import PodView
from reconciler.patches import eviction, mark_patch

Outcome = Literal["done", "refused", "stale", "unknown", "put off", "stopped"]


class Ended(msgspec.Struct, frozen=True):
    """How an attempt ended, the pause in seconds that the server asks for, and why it refuses."""

    outcome: Outcome
    pause_s: float = 0.0
    why: str = ""


class Evictions:
    """Evicts single pods; any thread may. `held` is asked before each write, `timeout_s` bounds one."""

    def __init__(self, client: Client, pods: Informer[PodView], *, held: Callable[[], bool], timeout_s: float) -> None:
        self._client, self._pods, self._held, self._timeout_s = client, pods, held, timeout_s
        self._log = structlog.get_logger()

    def evict(self, evict: Evict, pod: PodView) -> Ended:
        """Mark a pod and have it evicted."""
        if not self._held():
            return Ended("stopped")
        marked = pod
        if evict.claimant and pod.evicted_for != evict.claimant:
            try:
                found = self._mark(pod, evict.claimant)
            except (Conflict, NotFound) as error:
                self._log.info("victim_stale", pod=evict.pod, error=str(error))
                self.read_again(pod)
                return Ended("stale")
            except (ApiError, Unreachable, msgspec.DecodeError) as error:
                self._log.warning("victim_not_marked", pod=evict.pod, error=str(error))
                if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                    return Ended("refused", why=error.message)
                return Ended("put off", error.retry_after_s if isinstance(error, ApiError) else 0.0)
            if found is None:  # it has ended
                return Ended("stale")
            marked = found
        return self._ask(evict, marked) if self._held() else Ended("stopped")

    def take_back(self, pod: PodView) -> None:
        """Take a mark back. If that fails, it counts for nothing all the same, and the next cycle tries again."""
        if not self._held():
            return
        try:
            self._mark(pod, None)
        except (Conflict, NotFound):
            self.read_again(pod)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            self._log.warning("mark_not_taken_back", pod=pod.key, error=str(error))

    def read_again(self, pod: PodView) -> bool:
        """See the pod as the API server has it now, or that it has gone; return whether that could be had."""
        return self._pods.read_again(pod.key, pod.uid, timeout_s=self._timeout_s)

    def _ask(self, evict: Evict, pod: PodView) -> Ended:
        """Ask the API server to evict a pod that bears its mark."""
        path = PODS.path(pod.namespace, pod.name, "eviction")
        try:
            self._client.create(path, eviction(evict), timeout_s=self._timeout_s)
        except (Conflict, NotFound) as error:
            self._log.info("victim_stale", pod=evict.pod, error=str(error))
            self.read_again(pod)
            return Ended("stale")
        except (ApiError, Unreachable) as error:
            if outcome_unknown(error):
                self._log.warning("eviction_unknown", pod=evict.pod, error=str(error))
                return Ended("unknown", why=str(error))
            self._log.info("eviction_refused", pod=evict.pod, error=str(error))
            if evict.claimant:
                self.take_back(pod)
            asked_s = error.retry_after_s if isinstance(error, ApiError) else 0.0
            return Ended("refused", asked_s, error.message if isinstance(error, ApiError) else str(error))
        self._log.info("evicted", pod=evict.pod, claimant=evict.claimant, why=evict.message)
        return Ended("done")

    def _mark(self, pod: PodView, claimant: str | None) -> PodView | None:
        """Write or remove the mark and return the pod as it is then. Raises what the client and decoding raise."""
        path = PODS.path(pod.namespace, pod.name)
        answer = self._client.merge_patch(path, mark_patch(pod, claimant), timeout_s=self._timeout_s)
        self._pods.lay_over(answer)
        return self._pods.project(answer)
