"""The one order in which waiting pods are served (design section 4)."""

from collections.abc import Callable, Iterable

from policies.ledger import Ledger
from policies.quota import WITHIN_GUARANTEED, WITHIN_MIN
from policies.view import PodView


def in_order(ledger: Ledger, waiting: Iterable[PodView], could_run: Callable[[PodView], bool]) -> list[PodView]:
    """Return waiting pods in the one order: within min, within what is guaranteed above it, the rest.

    In each by higher priority, older, smaller request, namespace/name. The class counts what a quota uses and its
    waiting pods that stand before this one; not those that could never run, by quota or on any node. Before all of
    them stand those for whom others have left, and then those for whom others are on their way out: what these leave
    is theirs.
    """
    everybody = sorted(waiting, key=ledger.queue_order)
    if not ledger.then.used:
        return everybody
    before: dict[str, dict[str, int]] = {}
    first, others = _split(ledger, everybody, WITHIN_MIN, before, could_run)
    second, rest = _split(ledger, others, WITHIN_GUARANTEED, before, could_run)
    going = set(ledger.leaving.values())
    return sorted([*first, *second, *rest], key=lambda pod: (pod.key not in ledger.claimants, pod.key in going))


def _split(
    ledger: Ledger,
    waiting: Iterable[PodView],
    worst: int,
    before: dict[str, dict[str, int]],
    could_run: Callable[[PodView], bool],
) -> tuple[list[PodView], list[PodView]]:
    """Return those of a class or a better one with all who stand before them, and the others; `before` grows."""
    inside: list[PodView] = []
    outside: list[PodView] = []
    for pod in waiting:
        quota = ledger.quota(pod)
        if quota is None:
            inside.append(pod)
            continue
        charge, more = ledger.charge(pod), before.setdefault(quota.title, {})
        besides = more if pod.gated else {name: more.get(name, 0) - amount for name, amount in charge.items()}
        if ledger.then.rank(quota, charge, besides) > worst:
            outside.append(pod)
            continue
        inside.append(pod)
        beyond = ledger.then.never(quota, charge, borrows=not pod.non_preemptible)
        if pod.gated and not beyond and could_run(pod):  # who is not gated is counted already
            for name, amount in charge.items():
                more[name] = more.get(name, 0) + amount
    return inside, outside
