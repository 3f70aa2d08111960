"""What keeps a pod off every node whose boards could be cut for it, for people: no label, a selector, a taint."""

from collections.abc import Collection, Iterator
from typing import Final

from policies import names
from policies.constraints import Constraints
from policies.model import NodeSelectorTerm
from policies.site import Site

_LABEL: Final = names.PARTITIONING_LABEL
_NONE: Final = f"no node that is labelled {_LABEL} and whose boards are known"


def barrier(sites: Collection[Site], constraints: Constraints) -> str:
    """Return what keeps a pod off, and what to change; "" if it may use a node of ours, be that away for now."""
    managed = [site for site in sites if site.traits.managed]
    if not managed:
        return f"no node is labelled {_LABEL}: label one (kubectl label node NODE {_LABEL}=mig)"
    known = [site for site in managed if site.traits.kinds]
    if not known:
        return (
            f"the boards of no node that is labelled {_LABEL} are known: "
            f"its agent, or its label {names.PRODUCT_LABEL}, has to say what they are"
            + next((f" (node {site.name}: {site.traits.unable})" for site in managed if site.traits.unable), "")
        )
    if wants := _selection(known, constraints):
        return f"{_NONE} has {wants}: change that"
    selected = [site for site in known if constraints.selects(site.name, site.traits.labels)]
    if any(constraints.tolerates(site.traits.taints, although_away=True) for site in selected):
        return ""
    borne = [
        f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        for site in selected
        for taint in site.traits.taints
        if not constraints.tolerates([taint], although_away=True)
    ]
    return (
        f"{_NONE} is free of taints that the pod does not tolerate ({', '.join(dict.fromkeys(borne))}): tolerate them"
    )


# ---------------------------------------------------------------------------------------------------------------------


def _selection(sites: Collection[Site], constraints: Constraints) -> str:
    """Return what the pod wants of its node that none of these has; "" if one has it all."""

    def found(part: Constraints) -> bool:
        return any(part.selects(site.name, site.traits.labels) for site in sites)

    if found(constraints):
        return ""
    rare = [pair for pair in constraints.selector if not found(Constraints(selector=(pair,)))] or constraints.selector
    selector = ", ".join("=".join(pair) for pair in rare)
    affinity = " or ".join(map(_told, constraints.terms or ())) or "nothing"
    if not found(Constraints(selector=constraints.selector)):
        return f"what the pod's nodeSelector wants ({selector})"
    if not found(Constraints(terms=constraints.terms)):
        return f"what the pod's required node affinity wants ({affinity})"
    return f"what the pod's nodeSelector ({selector}) and its required node affinity ({affinity}) want together"


def _told(term: NodeSelectorTerm) -> str:
    return " and ".join(_requirements(term)) or "nothing"


def _requirements(term: NodeSelectorTerm) -> Iterator[str]:
    for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
        values = f" [{', '.join(each.values)}]" if each.values else ""
        yield f"{each.key} {each.operator}{values}"
