"""Carries out a `Decision`: patches with preconditions, several at a time, each answer laid over what we know.

A write ends in one of five ways. *Done*: its answer is laid over the store, so that the next cycle sees it before the
watch tells. *Stale*: the object has changed or gone; it is read again, and the next cycle decides anew, unless a node has
changed in nothing that its order was made from. *Refused*: nothing has changed; tried again later, at growing intervals,
others undisturbed. *Unknown*: no answer, so it counts as done until the object is seen in a later state. *Stopped*: the
lease is no longer ours. An unknown write is repeated with its precondition: whichever way it went, a second one does no
harm, and once the object has a newer resourceVersion the first can no longer happen.

A decision is carried out for as long as it is worth carrying out: what has been let through may bind and run meanwhile,
but once there is *news* (a pod comes or goes, a quota or a node changes) no more writes begin after a second, so that
what the news asks for need not wait for ten thousand releases.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeVar

import msgspec
import structlog

from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Conflict, NotFound, Unreachable, outcome_unknown
from kube.informer import Informer
from kube.resource import PODS
from policies.decision import Decision, Layout
from policies.view import PodView
from reconciler.lanes import Lanes
from reconciler.metrics import WRITES
from reconciler.observe import ObservedNode, Picture
from reconciler.writes import Step, Write, key_of, order_of, steps, still_holds, write_of

# Writes at a time. The API server takes a few ms for one, more under load, and shares itself out by what is asked of it:
# with 8, ten thousand pods are let through no faster than the scheduler and the kubelets write for those before them.
WORKERS: Final = 32
AT_LEAST_S: Final = 1.0  # for which writes begin in spite of news: else, where pods come all the time, deciding is all
AT_MOST_S: Final = 10.0  # for which writes begin without news
AT_ONCE: Final = 3  # times that an order is given again, while its node changes in nothing that decides
AGAIN: Final = Backoff(base_s=0.5, cap_s=60.0)

Outcome = Literal["done", "stale", "refused", "unknown", "stopped"]

_Ended = tuple[Write, Outcome, float]  # with the pause in seconds that the server asks for

A = TypeVar("A")


class Applier:
    """Applies decisions of one term of leadership; used by one thread, writing on several.

    `held` tells whether the lease is still ours; it is asked before each write. `news` tells whether something has
    happened since the decision was made that it did not know of. `now` is in seconds since the epoch, `clock` is
    monotonic. `timeout_s` bounds a write, so that one begun while the lease was held has ended before another can hold
    it.
    """

    def __init__(
        self,
        client: Client,
        pods: Informer[PodView],
        nodes: Informer[ObservedNode],
        *,
        held: Callable[[], bool],
        news: Callable[[], bool],
        now: Callable[[], float],
        clock: Callable[[], float],
        timeout_s: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._pods, self._nodes = client, pods, nodes
        self._held, self._news, self._now, self._clock, self._chance = held, news, now, clock, chance
        self._timeout_s = timeout_s
        self._lanes = Lanes(WORKERS, "write")
        self._unknown: dict[str, Write] = {}
        self._failed: dict[str, tuple[int, float]] = {}  # key -> failures in a row, not again before
        self._log = structlog.get_logger()

    def apply(self, decision: Decision, picture: Picture, due_s: float = math.inf) -> float:
        """Carry out a decision; return in how many seconds there is something to try again, infinity if nothing.

        Zero if an object was not as decided from, or if something was left for lack of time: the answer is to decide
        again. In `due_s` seconds there are other things to do, which may wait for a second.
        """
        wanted = steps(decision)
        tried = {key_of(step) for step in wanted} | self._unknown.keys()
        self._failed = {key: failed for key, failed in self._failed.items() if key in tried}
        due = [step for step in wanted if self._is_due(key_of(step))]
        if self._carry_out(lambda step: self._do(step, picture), due, due_s):
            return 0.0
        now = self._clock()
        return min((max(0.0, at - now) for _, at in self._failed.values()), default=math.inf)

    def repeat_unknown(self) -> Mapping[str, PodView | ObservedNode]:
        """Repeat the writes of unknown outcome that are due; return, by key, what to take for what is there meanwhile."""
        self._unknown = {key: write for key, write in self._unknown.items() if self._unchanged(write)}
        self._carry_out(self._send, [write for write in self._unknown.values() if self._is_due(write.key)])
        return {key: write.done for key, write in self._unknown.items()}

    def close(self) -> None:
        """Let no more writes begin; those under way end within their timeout."""
        self._lanes.close()

    def _is_due(self, key: str) -> bool:
        """Return whether no failure holds back the next write to an object."""
        failed = self._failed.get(key)
        return failed is None or failed[1] <= self._clock()

    def _carry_out(self, send: Callable[[A], _Ended], items: Sequence[A], due_s: float = math.inf) -> bool:
        """Send as many as there is time for, and note how they ended. Return whether any was stale or left over."""
        began = self._clock()

        def go_on() -> bool:
            spent_s = self._clock() - began
            return spent_s < AT_LEAST_S or (spent_s < min(AT_MOST_S, due_s) and not self._news())

        ended = self._lanes.map(send, items, go_on)
        for write, outcome, asked_s in ended:
            WRITES.labels(write.what, outcome).inc()
            self._unknown.pop(write.key, None)
            failures = self._failed.pop(write.key, (0, 0.0))[0] + 1
            if outcome == "unknown":
                self._unknown[write.key] = write
            if outcome in {"unknown", "refused"}:
                pause_s = max(asked_s, AGAIN.delay_s(failures, self._chance()))
                self._failed[write.key] = failures, self._clock() + pause_s
        return len(ended) < len(items) or any(outcome == "stale" for _, outcome, _ in ended)

    def _do(self, step: Step, picture: Picture) -> _Ended:
        """Carry out a step; an order that was late, but is as right as before, again for the node as it is now."""
        ended = self._send(write_of(step, picture, self._now()))
        for _ in range(AT_ONCE):
            if ended[1] != "stale" or not isinstance(step, Layout):
                break
            node = self._nodes.store.get(step.node)
            if (
                node is None
                or node.version == ended[0].version
                or not still_holds(step, picture.nodes[step.node], node)
            ):
                break
            ended = self._send(order_of(step, node, self._now()))
        return ended

    def _send(self, write: Write) -> _Ended:
        """Return a write, how it ended, and the pause in seconds that the server asks for. Runs on the lanes."""
        if not self._held():
            return write, "stopped", 0.0
        log = self._log.bind(what=write.what, object=write.key)
        try:
            answer = self._client.merge_patch(write.path, write.body, timeout_s=self._timeout_s)
        except (Conflict, NotFound) as error:
            log.info("write_stale", error=str(error))
            self._informer(write).read_again(write.key, write.uid, timeout_s=self._timeout_s)
            return write, "stale", 0.0
        except (ApiError, Unreachable) as error:
            if outcome_unknown(error):
                log.warning("write_unknown", error=str(error))
                return write, "unknown", 0.0
            log.warning("write_refused", error=str(error))
            return write, "refused", error.retry_after_s if isinstance(error, ApiError) else 0.0
        try:
            self._informer(write).lay_over(answer)
        except msgspec.DecodeError as error:
            log.warning("answer_unreadable", error=str(error))
            return write, "unknown", 0.0
        log.info("written")
        return write, "done", 0.0

    def _unchanged(self, write: Write) -> bool:
        """Return whether the object is still seen as it was before the write."""
        seen = self._informer(write).store.get(write.key)
        return seen is not None and seen.version == write.version

    def _informer(self, write: Write) -> Informer[PodView] | Informer[ObservedNode]:
        return self._pods if write.resource == PODS else self._nodes
