"""What is refused of a quota when it is written, and what its author is warned about; every fault at once.

What gets past it all the same, since the webhook's memory lags or was not there, becomes a condition: `govern` decides.
"""

from collections.abc import Callable, Iterable, Iterator

from policies import names
from policies.catalogue import models
from policies.charges import share_of
from policies.faults import fault
from policies.governing import QuotaView
from policies.judgement import Judgement
from policies.needs import is_slice
from policies.placement import profile_of


def judge_quota(
    quota: QuotaView,
    others: Iterable[QuotaView],
    old: QuotaView | None = None,
    *,
    exists: Callable[[str], bool],
) -> Judgement:
    """Return what is to be said of a new or changed quota; `others` are all there are, itself included or not.

    Of a changed one only the namespaces that it adds are looked at: who mends a conflict step by step is not hindered.
    `exists` says whether there is a namespace of that name.
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
    if faults:
        return Judgement(faults=tuple(faults))
    absent = sorted(space for space in added if not exists(space))
    warnings += [
        fault("spec.namespaces", space, "is not there yet: it is governed once it is created") for space in absent
    ]
    return Judgement(warnings=(*warnings, *_oddities(quota)))


# ---------------------------------------------------------------------------------------------------------------------


def _oddities(quota: QuotaView) -> Iterator[str]:
    """Yield what is legal in the amounts of a quota, and hardly what its author wants."""
    if not quota.min and not quota.max:
        yield "spec: neither min nor max names a resource: this quota grants, lends and limits nothing"
    for name, least in sorted(quota.min.items()):
        if not least:
            yield fault(f"spec.min[{name}]", "0", "all that is used of it is borrowed, and may be taken back any time")
    for name in sorted(quota.max.keys() - quota.min.keys()):
        yield f"spec.max[{name}]: spec.min does not name it: it is limited, but neither guaranteed nor lent"
    for name in sorted(quota.min.keys() | quota.max.keys()):
        yield from _unheard_of(name)


def _unheard_of(name: str) -> Iterator[str]:
    if is_slice(name):
        if not any(share_of(model, profile_of(name)) for model in models()):
            yield f"{name}: no board of which Apportion knows makes such a slice"
    elif name.startswith(names.NVIDIA_PREFIX) and name not in (names.GPU, names.GPU_SHARED):
        yield f"{name}: is neither a GPU nor a slice: only pods that ask for it by this name are counted"
