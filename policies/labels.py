"""Whether labels are as required: the operators of node affinity and of label selectors, which mean the same in both.

Source: k8s.io/apimachinery, labels.Requirement.Matches.
"""

from collections.abc import Mapping

from policies.model import LabelSelectorRequirement, NodeSelectorRequirement


def holds(requirement: NodeSelectorRequirement | LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet a requirement; a label that is absent is not in any list of values."""
    value = labels.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compares(value, values, above=True)
        case "Lt":
            return _compares(value, values, above=False)
        case _:
            return False  # the API server refuses other operators; a file may still hold one


# ---------------------------------------------------------------------------------------------------------------------


def _compares(value: str | None, values: tuple[str, ...], *, above: bool) -> bool:
    try:
        (bound,) = values
        return value is not None and (int(value) > int(bound) if above else int(value) < int(bound))
    except ValueError:
        return False
