"""A budget covers the pods that its label selector matches, by the API server's rules."""

import pytest

from policies.budgets import view_budget
from policies.model import BudgetSpec, LabelSelector, LabelSelectorRequirement, ObjectMeta, PodDisruptionBudget

PODS = {"db": {"app": "db", "tier": "1"}, "web": {"app": "web"}, "bare": {}}


def requires(key, operator, *values):
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        pytest.param(None, [], id="no selector covers nobody"),
        pytest.param(LabelSelector(), ["db", "web", "bare"], id="an empty one covers all"),
        pytest.param(LabelSelector(match_labels={"app": "db"}), ["db"], id="labels"),
        pytest.param(requires("app", "In", "db", "web"), ["db", "web"], id="In"),
        pytest.param(requires("app", "NotIn", "db"), ["web", "bare"], id="NotIn: who has no such label too"),
        pytest.param(requires("tier", "Exists"), ["db"], id="Exists"),
        pytest.param(requires("tier", "DoesNotExist"), ["web", "bare"], id="DoesNotExist"),
        pytest.param(
            LabelSelector(
                match_labels={"app": "db"},
                match_expressions=(LabelSelectorRequirement(key="tier", operator="In", values=("2",)),),
            ),
            [],
            id="all must hold",
        ),
    ],
)
def test_a_budget_covers_the_pods_of_its_namespace_that_its_selector_matches(selector, covered):
    """Q11: budgets are counted before an eviction is tried."""
    budget = view_budget(
        PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="team"), spec=BudgetSpec(selector=selector))
    )
    assert [name for name, labels in PODS.items() if budget.covers("team", labels)] == covered
    assert not any(budget.covers("other", labels) for labels in PODS.values())
