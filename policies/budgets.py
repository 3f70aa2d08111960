"""PodDisruptionBudgets: how many pods may be evicted at once. Counted before an eviction is tried, not by trying."""

from collections.abc import Mapping

import msgspec

from policies.labels import holds
from policies.model import LabelSelector, PodDisruptionBudget


class BudgetView(msgspec.Struct, frozen=True, kw_only=True):
    """A budget as decisions see it.

    Attributes:
        namespace: its namespace.
        name: its name.
        selector: which pods it covers; None covers none.
        allowed: how many of them may be evicted now.
    """

    namespace: str
    name: str
    selector: LabelSelector | None = None
    allowed: int = 0

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it covers a pod of a namespace with these labels."""
        return namespace == self.namespace and self.selector is not None and _selects(self.selector, labels)


def view_budget(budget: PodDisruptionBudget) -> BudgetView:
    """Return what decisions see of a budget. One whose status nobody has written allows nothing."""
    return BudgetView(
        namespace=budget.metadata.namespace or "",
        name=budget.metadata.name or "",
        selector=budget.spec.selector if budget.spec else None,
        allowed=budget.status.disruptions_allowed if budget.status else 0,
    )


# ---------------------------------------------------------------------------------------------------------------------


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        holds(requirement, labels) for requirement in selector.match_expressions or ()
    )
