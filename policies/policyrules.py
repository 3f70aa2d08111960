"""What is refused of a policy when it is written, and what its author is warned about; every fault at once.

What gets past it all the same, since the webhook was not there, becomes a condition: `Policies` decides.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from policies import names
from policies.catalogue import by_product, models
from policies.faults import fault
from policies.gpupolicy import Policies
from policies.judgement import Judgement
from policies.policy import PolicyView
from policies.spelling import closest


def judge_policy(policy: PolicyView, others: Iterable[PolicyView], products: Collection[str]) -> Judgement:
    """Return what is to be said of a new or changed policy.

    `others` are all there are, itself included or not; `products` are the values of the product label that nodes have.
    """
    if policy.faults:
        return Judgement(faults=policy.faults)
    warnings = (*_beside(policy, tuple(others)), *_never_reached(policy), *_unknown_models(policy, products))
    return Judgement(warnings=warnings)


# ---------------------------------------------------------------------------------------------------------------------


def _beside(policy: PolicyView, present: Sequence[PolicyView]) -> Iterator[str]:
    """Yield which policy does not hold because of another one."""
    others = (other for other in present if other.title != policy.title)
    before, after = Policies(present).unready, Policies((*others, policy)).unready
    if policy.title in after:
        yield f"has no effect: {after[policy.title][1]}"
    for title in after.keys() - before.keys() - {policy.title}:
        yield f"{title} no longer has an effect: {after[title][1]}"


def _never_reached(policy: PolicyView) -> Iterator[str]:
    for index, rule in enumerate(policy.rules):
        for first, earlier in enumerate(policy.rules[:index]):
            if earlier.match.items() <= rule.match.items():
                fitted = "every pod that it fits" if earlier.match else "every pod"
                yield f"spec.rules[{index}] is never reached: spec.rules[{first}] fits {fitted}, and the first that fits holds"
                break


def _unknown_models(policy: PolicyView, products: Collection[str]) -> Iterator[str]:
    known = {name.lower(): name for name in (*products, *(model.name for model in models()))}
    for index, rule in enumerate(policy.rules):
        for which, product in enumerate(rule.gpu_models):
            if product not in products and not by_product(product):
                near = closest(product, known, 2)
                yield fault(
                    f"spec.rules[{index}].gpuModels[{which}]",
                    product,
                    f"no node of ours has that as {names.PRODUCT_LABEL} and no table knows it: nothing is made of it until "
                    f"one has{f'; is {known[near]} meant?' if near else ''}",
                )
