"""What users may not change on pods that are admitted: the gate, the record, the capacity label, the way past a slice.

On namespaces: the label that says which quota governs them. Besides, how far a pod may grow in place, and what other
webhooks may have put into a new one.

Asked only where one of these differs; our own service accounts are not asked about.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from policies import names
from policies.estimate import Estimate, Standings
from policies.faults import fault
from policies.model import Namespace, Pod
from policies.policy import BUILT_IN, Rule
from policies.requests import read_requests
from policies.view import view_pod

_OURS: Final = "is written by Apportion alone, and decides what the pod holds: leave it as it is"


def changed_by_users(pod: Pod, old: Pod) -> Iterator[str]:
    """Yield a fault for everything of ours that an update changes.

    A pod on its way out is no exception: until it ends, its marks say whose quota it counts in.
    """
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


def came_late(pod: Pod, foreign: Collection[str], rule: Rule = BUILT_IN) -> Iterator[str]:
    """Yield a fault for every wish in a new pod, as it is to be stored, that nobody has answered.

    The API server asks us again after other mutating webhooks only if it had asked us before: what one of them puts into
    a pod that named no GPU comes to us here for the first time. `foreign` are resources of another plugin; the rule says
    whether whole GPUs ask for an answer.
    """
    requests = read_requests(pod, foreign, rule)
    yield from requests.faults
    for wish in requests.wishes:
        if not wish.answered:
            yield fault(
                wish.path,
                wish.value,
                "came into the pod after Apportion had looked at it: have the webhook that adds it run first "
                "(they run in the order of their configurations' names)",
            )


def marked_by_binding(annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield a fault for everything of ours among the annotations of a Binding, which the API server copies to the pod."""
    for key in (*names.OUR_MARKS, names.NON_PREEMPTIBLE):
        if key in annotations:
            yield fault(f"metadata.annotations[{key}]", annotations[key], "is not for a Binding to give: leave it out")


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


def resized(pod: Pod, old: Pod, *, namespace: str, standings: Standings, gates: bool = True) -> Estimate:
    """Return what is to be said of a pod that is resized in place (the API lets only CPU and memory change).

    `gates` is false where the policy only labels.
    To shrink is always fine. One that still waits at a gate is judged by the reconciler like any other that waits.
    Raises QuantityError.
    """
    now, before = view_pod(pod), view_pod(old)
    if before.terminating or before.finished:
        return Estimate()
    had = before.request
    grown = {name: amount for name, amount in now.request.items() if amount > had.get(name, 0)}
    borrows = not before.non_preemptible
    if not (before.holds or before.released):
        return standings.estimate(namespace, grown, borrows=borrows, gates=gates)
    more = {name: amount - had.get(name, 0) for name, amount in grown.items()}
    return standings.resize(namespace, more, borrows=borrows, gates=gates)


def has_slices(pod: Pod) -> bool:
    """Return whether a pod was given slices of ours."""
    return names.RECORD in (pod.metadata.annotations or {})


# ---------------------------------------------------------------------------------------------------------------------


def _stays(pod: Pod) -> bool:
    return (pod.metadata.annotations or {}).get(names.NON_PREEMPTIBLE) == "true"


def _gated(pod: Pod) -> bool:
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())
