"""Carries out a `Decision`: patches with preconditions, several at a time, each answer laid over what we know.

A write ends in one of five ways. *Done*: its answer is laid over the store, so that the next cycle sees it before the
watch tells. *Stale*: the object has changed or gone; it is read again and the next cycle decides anew. *Refused*:
nothing has changed; tried again later, at growing intervals, others undisturbed. *Unknown*: no answer, so it counts as
done until the object is seen in a later state. *Stopped*: the lease is no longer ours. An unknown write is repeated with
its precondition: whichever way it went, a second one does no harm, and once the object has a newer resourceVersion the
first can no longer happen.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

import msgspec
import structlog

from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Conflict, NotFound, Unreachable, outcome_unknown
from kube.informer import Informer
from kube.paging import pages
from kube.resource import NODES, PODS, Resource
from policies.decision import Cut, Decision, Layout, Relabel, Release
from policies.view import NodeView, PodView
from reconciler.metrics import WRITES
from reconciler.observe import ObservedNode, Picture
from reconciler.patches import Body, cut_patch, order_patch, plan_id, relabel_patch, release_patch

# Writes at a time: the API server answers one in about 4 ms, and 200 pods are to be released a second.
WORKERS: Final = 8
BATCH: Final = 400  # writes in a cycle, two seconds' worth: what is decided meanwhile must not wait longer
PAGE: Final = 500
AGAIN: Final = Backoff(base_s=0.5, cap_s=60.0)

Outcome = Literal["done", "stale", "refused", "unknown", "stopped"]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One patch.

    Attributes:
        what: `release`, `relabel`, `order` or `cut`.
        resource: pods or nodes.
        key: store key of the object: namespace/name, or a node's name.
        uid: of the object.
        version: the resourceVersion that it was decided from, its precondition.
        body: of the merge patch.
        done: the object as it is once this is done; stands in for it while the outcome is unknown.
    """

    what: str
    resource: Resource
    key: str
    uid: str
    version: str
    body: Body
    done: PodView | ObservedNode


class Applier:
    """Applies decisions of one term of leadership; used by one thread, writing on several.

    `held` tells whether the lease is still ours; it is asked before each write. `timeout_s` bounds a write, so that one
    begun while the lease was held has ended before another can hold it.
    """

    def __init__(
        self,
        client: Client,
        pods: Informer[PodView],
        nodes: Informer[ObservedNode],
        *,
        held: Callable[[], bool],
        clock: Callable[[], float],
        timeout_s: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._pods, self._nodes = client, pods, nodes
        self._held, self._clock, self._chance, self._timeout_s = held, clock, chance, timeout_s
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="write")
        self._unknown: dict[str, Write] = {}
        self._failed: dict[str, tuple[int, float]] = {}  # key -> failures in a row, not again before
        self._log = structlog.get_logger()

    def apply(self, decision: Decision, picture: Picture) -> float:
        """Carry out a decision; return in how many seconds there is something to try again, infinity if nothing.

        Zero if an object was not as decided from, or if there is more to write than a cycle may: the answer is to
        decide again.
        """
        wanted = writes(decision, picture)
        tried = {write.key for write in wanted} | self._unknown.keys()
        self._failed = {key: failed for key, failed in self._failed.items() if key in tried}
        if self._send_due(wanted):
            return 0.0
        now = self._clock()
        return min((max(0.0, at - now) for _, at in self._failed.values()), default=math.inf)

    def repeat_unknown(self) -> Mapping[str, PodView | ObservedNode]:
        """Repeat the writes of unknown outcome that are due; return, by key, what to take for what is there meanwhile."""
        self._unknown = {key: write for key, write in self._unknown.items() if self._unchanged(write)}
        self._send_due(list(self._unknown.values()))
        return {key: write.done for key, write in self._unknown.items()}

    def read_pods_of(self, node: str) -> bool:
        """Lay over what the API server itself says of the pods bound to a node; False if that could not be had.

        A slice that has been withdrawn goes to no pod any more, so what may still hold one is bound by now, or was
        released by us, and that we know from our own writes.
        """
        selector = {"fieldSelector": f"spec.nodeName={node}"}
        try:
            for page in pages(self._client, PODS.path(), selector, timeout_s=self._timeout_s):
                for item in page.items:
                    self._pods.lay_over(bytes(item))
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            self._log.warning("pods_not_read", node=node, error=str(error))
            return False
        return True

    def close(self) -> None:
        """Let no more writes begin; those under way end within their timeout."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _send_due(self, candidates: Iterable[Write]) -> bool:
        """Send the writes that no failure holds back for now, as many as a cycle may, and note how they ended.

        Return whether any was stale or left over.
        """
        now = self._clock()
        due = [write for write in candidates if self._failed.get(write.key, (0, 0.0))[1] <= now]
        stale, due = len(due) > BATCH, due[:BATCH]
        for write, (outcome, asked_s) in zip(due, self._pool.map(self._send, due), strict=True):
            WRITES.labels(write.what, outcome).inc()
            stale = stale or outcome == "stale"
            self._unknown.pop(write.key, None)
            failures = self._failed.pop(write.key, (0, 0.0))[0] + 1
            if outcome == "unknown":
                self._unknown[write.key] = write
            if outcome in {"unknown", "refused"}:
                pause_s = max(asked_s, AGAIN.delay_s(failures, self._chance()))
                self._failed[write.key] = failures, self._clock() + pause_s
        return stale

    def _send(self, write: Write) -> tuple[Outcome, float]:
        """Return how a write ended and the pause in seconds that the server asks for. Runs on the pool."""
        if not self._held():
            return "stopped", 0.0
        log = self._log.bind(what=write.what, object=write.key)
        try:
            answer = self._client.merge_patch(_path(write), write.body, timeout_s=self._timeout_s)
        except (Conflict, NotFound) as error:
            log.info("write_stale", error=str(error))
            self._read_again(write)
            return "stale", 0.0
        except (ApiError, Unreachable) as error:
            if outcome_unknown(error):
                log.warning("write_unknown", error=str(error))
                return "unknown", 0.0
            log.warning("write_refused", error=str(error))
            return "refused", error.retry_after_s if isinstance(error, ApiError) else 0.0
        try:
            self._informer(write).lay_over(answer)
        except msgspec.DecodeError as error:
            log.warning("answer_unreadable", error=str(error))
            return "unknown", 0.0
        log.info("written")
        return "done", 0.0

    def _read_again(self, write: Write) -> None:
        """Lay over the object's state, or its absence; if neither can be had, the watch will tell."""
        try:
            self._informer(write).lay_over(self._client.request("GET", _path(write), timeout_s=self._timeout_s))
        except NotFound:
            self._informer(write).lay_over_deleted(write.key, write.uid)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            self._log.warning("not_read_again", object=write.key, error=str(error))

    def _unchanged(self, write: Write) -> bool:
        """Return whether the object is still seen as it was before the write."""
        seen = self._informer(write).store.get(write.key)
        return seen is not None and seen.version == write.version

    def _informer(self, write: Write) -> Informer[PodView] | Informer[ObservedNode]:
        return self._pods if write.resource == PODS else self._nodes


def writes(decision: Decision, picture: Picture) -> list[Write]:
    """Return what a decision comes to, orders to nodes first: a long way begins with them. Labels can wait."""
    nodes, pods, now = picture.nodes, picture.pods, picture.view.now
    return [
        *(_order(layout, nodes[layout.node], now) for layout in decision.layouts),
        *(_cut(cut, nodes[cut.node]) for cut in decision.cuts),
        *(_release(release, pods[release.pod], now) for release in decision.ungate),
        *(_relabel(relabel, pods[relabel.pod]) for relabel in decision.relabel),
    ]


def _order(layout: Layout, node: ObservedNode, now: float) -> Write:
    plan = plan_id(node, now)
    ordered = msgspec.structs.replace(node.view, spec=layout.target, spec_plan=plan)
    return _node_write("order", node, order_patch(node, layout, plan), ordered)


def _cut(cut: Cut, node: ObservedNode) -> Write:
    return _node_write("cut", node, cut_patch(node, cut), msgspec.structs.replace(node.view, cut=cut.plan))


def _node_write(what: str, node: ObservedNode, body: Body, done: NodeView) -> Write:
    return Write(
        what=what,
        resource=NODES,
        key=node.view.name,
        uid=node.uid,
        version=node.version,
        body=body,
        done=msgspec.structs.replace(node, view=done),
    )


def _release(release: Release, pod: PodView, now: float) -> Write:
    done = msgspec.structs.replace(pod, gated=False, released_at=int(now), capacity=release.capacity or pod.capacity)
    return _pod_write("release", release, release_patch(pod, release, now), done)


def _relabel(relabel: Relabel, pod: PodView) -> Write:
    done = msgspec.structs.replace(pod, capacity=relabel.capacity)
    return _pod_write("relabel", relabel, relabel_patch(relabel), done)


def _pod_write(what: str, decided: Release | Relabel, body: Body, done: PodView) -> Write:
    return Write(
        what=what,
        resource=PODS,
        key=decided.pod,
        uid=decided.uid,
        version=decided.version,
        body=body,
        done=done,
    )


def _path(write: Write) -> str:
    namespace, _, name = write.key.rpartition("/")
    return write.resource.path(namespace or None, name)
