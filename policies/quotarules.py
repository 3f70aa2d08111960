"""What is refused of a quota when it is written, and what its author is warned about; every fault at once.

What gets past it all the same, since the webhook's memory lags or was not there, becomes a condition: `govern` decides.
"""

from collections.abc import Iterable

import msgspec

from policies import names
from policies.faults import fault
from policies.governing import QuotaView


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the review of one quota.

    Attributes:
        faults: why it is refused; empty if it is not.
        warnings: what its author should know.
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge_quota(quota: QuotaView, others: Iterable[QuotaView], old: QuotaView | None = None) -> Judgement:
    """Return what is to be said of a new or changed quota; `others` are all there are, itself included or not.

    Of a changed one only the namespaces that it adds are looked at: who mends a conflict step by step is not hindered.
    """
    added = {*quota.namespaces} - {*(old.namespaces if old else ())}
    faults, warnings = list(quota.faults), []
    for other in sorted(others, key=lambda other: other.title):
        shared = sorted(added & {*other.namespaces})
        if other.title == quota.title or not shared:
            continue
        spaces = ", ".join(shared)
        if quota.kind == names.ELASTIC_QUOTA:
            advice = (
                "change that one" if other.kind == names.ELASTIC_QUOTA else "leave the namespace out of that one first"
            )
            faults.append(fault("metadata.namespace", spaces, f"{other.title} governs it already: {advice}"))
        elif other.kind == names.COMPOSITE_QUOTA:
            faults.append(
                fault("spec.namespaces", spaces, f"{other.title} lists it already: a namespace has one quota")
            )
        else:
            warnings.append(f"{other.title} is no longer in force: this quota governs {spaces}")
    return Judgement(faults=tuple(faults), warnings=tuple(warnings) if not faults else ())
