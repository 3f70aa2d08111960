"""Runs agents: a pass over a node whenever something about it has changed, and whenever a pass asks for another.

One informer of nodes and one of the pods bound to them; a queue of node names, worked off by a few threads, never two
on one node. On a real node there is one agent, which sees that node and its pods only; of simulated nodes one process
serves all.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from kube.client import Client
from kube.errors import ApiError, NotFound, Unreachable
from kube.informer import Informer
from kube.resource import NODES, PODS
from kube.workqueue import WorkQueue
from policies.view import PodView
from reconciler.agent.agent import NodeAgent
from reconciler.agent.node import NodeState, read_node
from reconciler.agent.pods import Pods, read_pod
from reconciler.agent.report import Patch, report_hung
from reconciler.health import Pulse

WRITE_S: Final = 5.0
RESYNC_S: Final = 30.0  # boards may change without anything being written: every node is looked at this often
HUNG_S: Final = 30.0  # a call to a board that lasts this long is told of: new pods had better go elsewhere
STOP_S: Final = 5.0  # for passes that are under way
STUCK_S: Final = (
    120.0  # a pass waits for driver and kubelet, some seconds each; one that lasts this long hangs in a call
)

MakeAgent = Callable[[NodeState, Pods], NodeAgent]
"""Makes the agent of a node."""

_log: Final = structlog.get_logger()


class Service:
    """The agents of all nodes that a selector names, or of one node. Start it once.

    Args:
        client: of the API server.
        make_agent: called for each node when it is first seen, and again if it is another machine.
        labels: label selector of the nodes.
        node: name of the only node to serve; "" for all.
        workers: passes that may go on at a time, each of another node.
        clock: seconds since the epoch.
        ticks: seconds, never set back.
    """

    def __init__(
        self,
        client: Client,
        make_agent: MakeAgent,
        *,
        labels: str = "",
        node: str = "",
        workers: int = 4,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._make_agent = make_agent
        self._clock = clock
        self._node = node
        name, bound = (f"metadata.name={node}", f"spec.nodeName={node}") if node else ("", "spec.nodeName!=")
        self._nodes = Informer(client, NODES, read_node, label_selector=labels, field_selector=name)
        self._pods = Informer(client, PODS, read_pod, field_selector=bound, indexes={"node": lambda pod: (pod.node,)})
        self._queue: WorkQueue[str] = WorkQueue()
        self._agents: dict[str, tuple[object, NodeAgent]] = {}
        self._seen: set[str] = set()
        self._pulses = [Pulse(ticks, STUCK_S) for _ in range(workers)]
        self._workers = [
            threading.Thread(target=self._run, args=(pulse,), name=f"agent {number}", daemon=True)
            for number, pulse in enumerate(self._pulses)
        ]
        self._nodes.on_change(lambda name, _old, _new: self._queue.add(name))
        self._pods.on_change(self._pod_changed)

    def start(self) -> None:
        """Begin; passes begin when nodes and pods are known, since a pod that is not known holds nothing."""
        self._nodes.start()
        self._pods.start()
        for worker in self._workers:
            worker.start()

    def alive(self) -> bool:
        """Return whether all workers go on, and none hangs."""
        return all(worker.is_alive() for worker in self._workers) and not self.hangs()

    def hangs(self, longer_s: float = STUCK_S) -> str:
        """Return where a pass has been for so long, as `file, line and function`; "" if none has.

        No thread can be ended from outside.
        """
        for worker, pulse in zip(self._workers, self._pulses, strict=True):
            frame = None if pulse.still_s() < longer_s else sys._current_frames().get(worker.ident or 0)  # noqa: SLF001 (its documented name)
            if frame:
                return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}, {frame.f_code.co_name}"
        return ""

    def ready(self) -> bool:
        """Return whether every node that is known, or is to be, has been looked at by a pass that came to its end."""
        synced = self._nodes.synced.is_set() and self._pods.synced.is_set()
        names = {self._node} if self._node else {node.name for node in self._nodes.store.list()}
        return synced and names <= self._seen and not self.hangs()

    def pods(self, node: str) -> tuple[PodView, ...]:
        """Return the pods that are bound to a node."""
        return self._pods.store.by_index("node", node)

    def resync(self) -> None:
        """Look at every node, changed or not."""
        for node in self._nodes.store.list():
            self._queue.add(node.name)

    def stop(self) -> None:
        """End after the passes that are under way."""
        self._queue.close()
        self._nodes.stop()
        self._pods.stop()
        for worker in self._workers:
            worker.join(STOP_S)

    def say(self, of: Callable[[NodeState, float], Patch | None]) -> None:
        """Write a patch of every node: the last one, after `stop`, or for a pass that hangs.

        Of a node where that fails the API server tells what was so far.
        """
        for node in self._nodes.store.list():
            try:
                if patch := of(node, self._clock()):
                    self._write(node.name, patch)
            except (ApiError, Unreachable) as error:
                _log.warning("report_not_written", node=node.name, error=str(error))

    def say_if_hung(self, silent: Callable[[float], Iterable[int]]) -> bool:
        """Say on every node if a pass hangs; return whether one does.

        `silent` returns the indices of the boards that have owed an answer for so many seconds. Where none has, a pass is only
        long, for it may cut eight boards, until it lasts longer than any should.
        """
        boards = tuple(silent(HUNG_S))
        if where := self.hangs(HUNG_S if boards else STUCK_S):
            self.say(partial(report_hung, where, boards))
        return bool(where)

    def _pod_changed(self, _key: str, old: PodView | None, new: PodView | None) -> None:
        for pod in (old, new):
            if pod and self._nodes.store.get(pod.node):
                self._queue.add(pod.node)

    def _run(self, pulse: Pulse) -> None:
        while not (self._nodes.synced.wait(1.0) and self._pods.synced.wait(1.0)):
            if self._queue.closed:
                return
        if self._node and self._nodes.store.get(self._node) is None:
            _log.warning("no_such_node", node=self._node, hint="is --node-name the name of its Node?")
        while (name := self._queue.get()) is not None:
            pulse.beat()
            try:
                self._pass(name)
                self._queue.forget(name)
                self._seen.add(name)
            except (ApiError, Unreachable) as error:
                again_s = self._queue.retry(name)
                _log.warning("report_not_written", node=name, error=str(error), again_s=round(again_s, 2))
            except Exception:  # noqa: BLE001 (one node's fault must not stop the agents of the others)
                self._seen.discard(name)
                again_s = self._queue.retry(name)
                _log.exception("pass_failed", node=name, again_s=round(again_s, 2))
            finally:
                pulse.rest()
                self._queue.done(name)

    def _pass(self, name: str) -> None:
        node = self._nodes.store.get(name)
        if node is None:
            self._agents.pop(name, None)
            return
        agent = self._agent(node)
        try:
            outcome = agent.act(node, self._clock())
        except Exception as error:  # whatever it is, people are to see it where they look, and `_run` goes on
            if patch := agent.failed(node, error, self._clock()):
                with suppress(ApiError, Unreachable):  # it is in the log then, and written with the next pass
                    self._write(name, patch)
            raise
        if outcome.again_s is not None:
            self._queue.add_after(name, outcome.again_s)
        if outcome.patch:
            self._write(name, outcome.patch)

    def _write(self, name: str, patch: Patch) -> None:
        try:
            path = NODES.path(name=name, subresource="status")
            answer = self._client.strategic_patch(path, patch, timeout_s=WRITE_S)
        except NotFound:
            return  # the watch is about to tell
        self._nodes.lay_over(answer)

    def _agent(self, node: NodeState) -> NodeAgent:
        """Return the agent of a node; a new one if the node has been made anew, or is said to be another machine."""
        machine = node.uid, node.hardware
        known = self._agents.get(node.name)
        if known is None or known[0] != machine:
            agent = self._make_agent(node, partial(self.pods, node.name))
            known = self._agents[node.name] = machine, agent
        return known[1]
