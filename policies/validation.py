"""What users may not change on pods that are admitted: the gate, the record, the capacity label, the way past a slice.

Asked for updates only, and only where one of these differs; our own service accounts are not asked about.
"""

from collections.abc import Iterator
from typing import Final

from policies import names
from policies.faults import fault
from policies.model import Pod

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
        ("annotations", pod.metadata.annotations, old.metadata.annotations, (names.RECORD, names.EVICTED_FOR)),
        ("labels", pod.metadata.labels, old.metadata.labels, (names.CAPACITY_LABEL,)),
    ):
        for key in keys:
            if (now or {}).get(key) != (before or {}).get(key):
                yield fault(f"metadata.{what}[{key}]", (now or {}).get(key), _OURS)


def has_slices(pod: Pod) -> bool:
    """Return whether a pod was given slices of ours."""
    return names.RECORD in (pod.metadata.annotations or {})


# ---------------------------------------------------------------------------------------------------------------------


def _gated(pod: Pod) -> bool:
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())
