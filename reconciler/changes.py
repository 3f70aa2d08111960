"""Which changes start a cycle, and which of them end the one under way; told by informers, on their threads.

Most of what a cluster tells changes no decision: heartbeats, pods that ask nothing of us, the echo of our own status.
"""

import threading
from collections.abc import Collection

from policies.budgets import BudgetView
from policies.view import PodView
from reconciler.observe import ObservedNode, Picture, is_bystander, same_pod
from reconciler.policies import ObservedPolicy
from reconciler.quotas import ObservedQuota


class Changes:
    """What has changed since the last decision.

    Attributes:
        any: set when something that decisions read is not as it was.
        news: set when that may call for another decision than the last one.
    """

    def __init__(self) -> None:
        self.any, self.news = threading.Event(), threading.Event()
        self._managed: Collection[str] = ()
        self._governed: Collection[str] = ()

    def forget(self) -> None:
        """Begin anew, before the cluster is looked at: what changes from now on is for the next decision."""
        self.any.clear()
        self.news.clear()

    def heed(self, seen: Picture) -> None:
        """Take what was seen last, by which is judged what matters: nodes of ours, and governed namespaces."""
        self._managed = {node.name for node in seen.view.nodes if node.managed}
        self._governed = seen.governed.by_namespace.keys()

    def pod(self, _key: str, old: PodView | None, new: PodView | None) -> None:
        """Take a change of a pod."""
        if old and new and same_pod(old, new):
            return
        if any(pod and self._matters(pod) for pod in (old, new)):
            self._note(news=is_news(old, new))

    def node(self, _key: str, old: ObservedNode | None, new: ObservedNode | None) -> None:
        """Take a change of a node."""
        if not (old and new and old.view == new.view):
            self._note(news=True)

    def quota(self, _key: str, old: ObservedQuota | None, new: ObservedQuota | None) -> None:
        """Take a change of a quota; our own writes of its status change nothing."""
        if not (old and new and old.view == new.view):
            self._note(news=True)

    def policy(self, _key: str, old: ObservedPolicy | None, new: ObservedPolicy | None) -> None:
        """Take a change of a policy: whether pods wait for their quota stands in it."""
        if not (old and new and old.view == new.view):
            self._note(news=True)

    def budget(self, _key: str, _old: BudgetView | None, _new: BudgetView | None) -> None:
        """Take a change of a PodDisruptionBudget."""
        self._note(news=True)

    def _note(self, *, news: bool) -> None:
        if news:
            self.news.set()
        self.any.set()

    def _matters(self, pod: PodView) -> bool:
        """Return whether a pod is one that decisions read, as of the last cycle."""
        if self._governed and (pod.node or pod.namespace in self._governed):
            return True
        return pod.node in self._managed or not is_bystander(pod)


def is_news(old: PodView | None, new: PodView | None) -> bool:
    """Return whether a change may call for another decision than the last one: room is wanted, or has become free.

    A pod that loses our gate, is bound and runs only does what was decided.
    """
    if old is None or new is None:
        return True
    return (old.uid, old.terminating, old.held, old.request) != (new.uid, new.terminating, new.held, new.request)
