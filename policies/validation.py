"""What users may not change on pods that are admitted: the gate, the record, the capacity label, the way past a slice.

And on namespaces: the label that says which quota governs them.

Asked for updates only, and only where one of these differs; our own service accounts are not asked about.
"""

from collections.abc import Iterator
from typing import Final

from policies import names
from policies.faults import fault
from policies.model import Namespace, Pod

_OURS: Final = "is written by Apportion alone, and decides what the pod holds: leave it as it is"


def changed_by_users(pod: Pod, old: Pod) -> Iterator[str]:
    """Yield a fault for everything of ours that an update changes; a pod on its way out may be changed as one likes."""
    if pod.metadata.deletion_timestamp or old.metadata.deletion_timestamp:
        return
    if _gated(old) and not _gated(pod):
        yield fault(
            "spec.schedulingGates",
            names.GATE,
            "is removed by Apportion when the pod's slice is there: create the pod anew if it is to wait no longer",
        )
    for what, now, before, keys in (
        ("annotations", pod.metadata.annotations, old.metadata.annotations, names.OUR_MARKS),
        ("labels", pod.metadata.labels, old.metadata.labels, (names.CAPACITY_LABEL,)),
    ):
        for key in keys:
            if (now or {}).get(key) != (before or {}).get(key):
                yield fault(f"metadata.{what}[{key}]", (now or {}).get(key), _OURS)

    if _stays(pod) and not _stays(old):
        yield fault(
            f"metadata.annotations[{names.NON_PREEMPTIBLE}]",
            "true",
            "decides at admission what the pod may have, so it cannot be added later: create the pod anew with it",
        )


def relabelled_by_users(namespace: Namespace, old: Namespace) -> Iterator[str]:
    """Yield a fault if an update changes which quota governs a namespace."""
    now, before = ((each.metadata.labels or {}).get(names.QUOTA_LABEL) for each in (namespace, old))
    if now != before:
        yield fault(
            f"metadata.labels[{names.QUOTA_LABEL}]",
            now,
            f"is written by Apportion alone: an {names.ELASTIC_QUOTA} in the namespace, "
            f"or a {names.COMPOSITE_QUOTA} that lists it, is how it gets a quota",
        )


def has_slices(pod: Pod) -> bool:
    """Return whether a pod was given slices of ours."""
    return names.RECORD in (pod.metadata.annotations or {})


# ---------------------------------------------------------------------------------------------------------------------


def _stays(pod: Pod) -> bool:
    return (pod.metadata.annotations or {}).get(names.NON_PREEMPTIBLE) == "true"


def _gated(pod: Pod) -> bool:
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())
