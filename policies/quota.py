"""The arithmetic of quotas: who uses what, what is lent, what a pod lacks. Exact integers; knows no boards.

Amounts are thousandths throughout, and a resource that is absent is not zero: one that `min` does not name is neither
lent nor governed by it, one that `max` does not name has no cap. Everything is added up afresh from lists.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from policies import names
from policies.decision import QuotaStatus
from policies.governing import Governed, QuotaView
from policies.quantity import Amounts, amount

WITHIN_MIN, WITHIN_GUARANTEED, BEYOND = range(3)
"""Classes of waiting pods: by what their quota uses with them."""


class Lack(msgspec.Struct, frozen=True):
    """A dimension in which a quota does not let a pod in.

    Attributes:
        resource: the dimension.
        limit: `max` of its own quota, `sum` of all mins, or `min` for a pod that may not borrow.
        used: what is used without the pod.
        asked: what the pod costs.
        bound: what may be used at most.
        kept: what is kept besides for pods that stand before this one.
    """

    resource: str
    limit: str
    used: int
    asked: int
    bound: int
    kept: int = 0

    def said(self, quota: QuotaView) -> str:
        """Return it with its numbers, as a part of a sentence."""
        used, asked = amount(self.resource, self.used), amount(self.resource, self.asked)
        who = "all quotas together use" if self.limit == "sum" else f"{quota.key} uses"
        kept = f" besides {amount(self.resource, self.kept)} kept for pods before this one" if self.kept else ""
        return f"{who} {used} {self.resource}{kept}, the pod asks for {asked}, and {self.limited(quota)}"

    def limited(self, quota: QuotaView) -> str:
        """Return the limit, as a part of a sentence."""
        bound = amount(self.resource, self.bound)
        match self.limit:
            case "max":
                return f"the max of {quota.key} is {bound}"
            case "min":
                return f"the min of {quota.key} is {bound}: a pod that may not be evicted may not borrow"
            case _:
                return f"the mins of all quotas add up to {bound}"


class Usage:
    """What every quota uses at one time, and all together.

    Attributes:
        used: by title of the quota: of each resource that its min or max names.
        total: of each resource, by the quotas whose min names it.
    """

    __slots__ = ("_mins", "_unused", "total", "used")

    def __init__(self, quotas: Iterable[QuotaView]) -> None:
        self.used: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}
        self._mins: dict[str, int] = {}
        self._unused: dict[str, int] = {}
        for quota in quotas:
            self.used[quota.title] = dict.fromkeys((*quota.min, *quota.max), 0)
            for name, least in quota.min.items():
                self.total.setdefault(name, 0)
                self._mins[name] = self._mins.get(name, 0) + least
                self._unused[name] = self._unused.get(name, 0) + least

    def add(self, quota: QuotaView, amounts: Amounts, sign: int = 1) -> None:
        """Count a pod's cost for a quota (`sign` -1: no longer)."""
        used = self.used[quota.title]
        for name in amounts.keys() & used.keys():
            before = used[name]
            used[name] = after = before + sign * amounts[name]
            least = quota.min.get(name)
            if least is not None:
                self.total[name] += after - before
                self._unused[name] += max(0, least - after) - max(0, least - before)

    def add_to_total(self, quota: QuotaView, amounts: Amounts) -> None:
        """Count a cost in the sum over all quotas only: it is on its way from this quota to another."""
        for name in amounts.keys() & quota.min.keys():
            self.total[name] += amounts[name]

    def add_to_own(self, quota: QuotaView, amounts: Amounts) -> None:
        """Count a cost against its quota's own bounds only: whom these keep out takes nothing from other quotas."""
        used = self.used[quota.title]
        for name in amounts.keys() & used.keys():
            used[name] += amounts[name]

    def of(self, quota: QuotaView) -> Mapping[str, int]:
        """Return what a quota uses."""
        return self.used[quota.title]

    def is_above_min(self, quota: QuotaView) -> bool:
        """Return whether a quota borrows something."""
        used = self.used[quota.title]
        return any(used[name] > least for name, least in quota.min.items())

    def sum_of_mins(self, resource: str) -> int:
        """Return what all quotas own together of a resource."""
        return self._mins.get(resource, 0)

    def guaranteed(self, quota: QuotaView, resource: str) -> int:
        """Return how much above its min a quota may take back: its min's share of what stands unused in all mins."""
        whole = self.sum_of_mins(resource)
        return quota.min.get(resource, 0) * self._unused.get(resource, 0) // whole if whole else 0

    def lacks(self, quota: QuotaView, charge: Amounts, *, borrows: bool = True) -> list[Lack]:
        """Return the dimensions that keep a pod out, by name; `borrows` is false for a pod that may not be evicted."""
        return self._lacks(quota, charge, self.used[quota.title], self.total, borrows=borrows)

    def never(self, quota: QuotaView, charge: Amounts, *, borrows: bool = True) -> list[Lack]:
        """Return the dimensions that would keep a pod out if it were alone: it can never run."""
        return self._lacks(quota, charge, {}, {}, borrows=borrows)

    def _lacks(
        self, quota: QuotaView, charge: Amounts, own: Amounts, together: Amounts, *, borrows: bool
    ) -> list[Lack]:
        """Return the dimensions that keep a pod out where its quota, and all together, use so much."""
        found: list[Lack] = []
        for name in sorted(charge.keys() & self.used[quota.title].keys()):
            asked = charge[name]
            if not asked:
                continue
            used, most, least = own.get(name, 0), quota.max.get(name), quota.min.get(name)
            if most is not None and used + asked > most:
                found.append(Lack(name, "max", used, asked, most))
            if least is not None and (total := together.get(name, 0)) + asked > self._mins[name]:
                found.append(Lack(name, "sum", total, asked, self._mins[name]))
            if least is not None and not borrows and used + asked > least:
                found.append(Lack(name, "min", used, asked, least))
        return found

    def rank(self, quota: QuotaView, charge: Amounts, more: Amounts) -> int:
        """Return the class of a pod: WITHIN_MIN or WITHIN_GUARANTEED in all that it asks for, or BEYOND.

        `more` is used besides; negative amounts are used less.
        """
        used, found = self.used[quota.title], WITHIN_MIN
        for name, least in quota.min.items():
            if asked := charge.get(name):
                above = used[name] + asked + more.get(name, 0) - least
                if above > 0:
                    if above > self.guaranteed(quota, name):
                        return BEYOND
                    found = WITHIN_GUARANTEED
        return found


def beyond_min(quota: QuotaView, charges: Iterable[Amounts]) -> Iterator[bool]:
    """Yield for each pod that a quota counts, by its cost, whether it is over-quota; pods in the order of section 4."""
    running: dict[str, int] = {}
    for charge in charges:
        over = False
        for name, least in quota.min.items():
            if asked := charge.get(name, 0):
                running[name] = running.get(name, 0) + asked
                over = over or running[name] > least
        yield over


def statuses(governed: Governed, quotas: Iterable[QuotaView], usage: Usage) -> tuple[QuotaStatus, ...]:
    """Return the status of every quota, by namespace, name and kind."""
    everybody = sorted(quotas, key=lambda quota: (quota.namespace, quota.name, quota.kind))
    in_force = [quota for quota in everybody if quota.title in usage.used]
    lent = _lent(in_force, usage)
    found: list[QuotaStatus] = []
    for quota in everybody:
        reason, message = governed.unready.get(quota.title, (names.READY, ""))
        used = usage.used.get(quota.title, {})
        found.append(
            QuotaStatus(
                kind=quota.kind,
                namespace=quota.namespace,
                name=quota.name,
                generation=quota.generation,
                governs=governed.namespaces.get(quota.title, ()),
                min=quota.min,
                max=quota.max,
                used=dict(sorted(used.items())),
                borrowed=_above(quota, used),
                lent=lent.get(quota.title, {}),
                guaranteed={name: usage.guaranteed(quota, name) for name in sorted(quota.min)} if used else {},
                ready=quota.title in usage.used,
                reason=reason,
                message=message,
            )
        )
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------------------


def _above(quota: QuotaView, used: Amounts) -> dict[str, int]:
    return {name: used[name] - least for name, least in sorted(quota.min.items()) if used.get(name, 0) > least}


def _lent(quotas: list[QuotaView], usage: Usage) -> dict[str, dict[str, int]]:
    """Return what each quota lends: its unused min's share of all that is borrowed; what is left over goes by name."""
    lent: dict[str, dict[str, int]] = {}
    for resource in sorted(usage.total):
        owners = [quota for quota in quotas if resource in quota.min]
        unused = {q.title: max(0, q.min[resource] - usage.of(q)[resource]) for q in owners}
        borrowed = sum(max(0, usage.of(q)[resource] - q.min[resource]) for q in owners)
        whole = sum(unused.values())
        borrowed = min(borrowed, whole)
        if not borrowed:
            continue
        shares = {title: borrowed * left // whole for title, left in unused.items()}
        for title in [title for title in shares if unused[title] > shares[title]][: borrowed - sum(shares.values())]:
            shares[title] += 1
        for title, share in shares.items():
            if share:
                lent.setdefault(title, {})[resource] = share
    return lent
