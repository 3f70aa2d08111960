"""A stand-in for the disruption controller: how many pods a budget lets go now, where its file does not say."""

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from policies.budgets import BudgetView
from policies.model import BudgetSpec
from policies.view import PodView


class SimulatedBudget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget during a story.

    Attributes:
        view: what decisions see of it.
        rule: by which what it allows is counted anew at each moment; None if its status said so, as of now.
    """

    view: BudgetView
    rule: BudgetSpec | None

    def seen(self, pods: Iterable[PodView]) -> BudgetView:
        """Return what decisions see of it among these pods, those that have ended left aside."""
        if self.rule is None:
            return self.view
        covered = [pod for pod in pods if self.view.covers(pod.namespace, pod.labels)]
        return replace(self.view, allowed=allowed(self.rule, covered))

    def spent(self) -> "SimulatedBudget":
        """Return it after the eviction of a pod that it covers."""
        return replace(self, view=replace(self.view, allowed=self.view.allowed - 1))


def allowed(rule: BudgetSpec, covered: Collection[PodView]) -> int:
    """Return how many of the pods that a budget covers may be evicted now, as Kubernetes counts.

    Percent and maxUnavailable are of the pods that have a controller, for only a controller says how many there should
    be; percent rounds up. Who is bound is healthy (here it runs at once), unless it is being deleted. maxUnavailable comes before minAvailable.
    """
    expected = sum(pod.controlled for pod in covered)
    if rule.max_unavailable is not None:
        healthy_at_least = max(0, expected - _of(rule.max_unavailable, expected))
    elif rule.min_available is not None:
        healthy_at_least = _of(rule.min_available, expected)
        expected = len(covered) if isinstance(rule.min_available, int) else expected
    else:
        return 0
    healthy = sum(bool(pod.node) and not pod.terminating for pod in covered)
    return max(0, healthy - healthy_at_least) if expected else 0


def _of(count: int | str, expected: int) -> int:
    """Return a number of pods, written as such or in percent of the expected ones."""
    return count if isinstance(count, int) else -(-int(count.removesuffix("%")) * expected // 100)
