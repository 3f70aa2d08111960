"""What admission says of a pod that a quota governs: its label as far as can be known then, and whether it can ever run.

And of one that is resized in place: no gate stands before it any more, so what its quota does not have is refused.

The webhook watches no pods: it knows what is used from the status of the quotas, which may lag. So the label is an
estimate; the reconciler writes the true one. What can never run does not depend on what is used.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from policies import names
from policies.faults import fault
from policies.governing import Governed, QuotaView, govern
from policies.quantity import Amounts, amount
from policies.quota import Usage


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said of a pod, new or resized.

    Attributes:
        capacity: its label; empty if none can be given.
        warnings: for the person who creates it.
        faults: why it can never run, or not grow.
        held: whether it waits at the gate for its quota.
    """

    capacity: str = ""
    warnings: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    held: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why the pod is changed."""
        return (f"waits at the gate {names.GATE} until its quota is granted",) if self.held else ()


class Standings:
    """All quotas with what they use, as their status says. Immutable; any thread may ask."""

    __slots__ = ("_governed", "_quotas", "_usage")

    def __init__(self, quotas: tuple[QuotaView, ...], governed: Governed, usage: Usage) -> None:
        self._quotas, self._governed, self._usage = quotas, governed, usage

    @classmethod
    def of(cls, quotas: Iterable[QuotaView], used: Mapping[str, Amounts]) -> Self:
        """Return the standings of quotas; `used` by title, in thousandths."""
        everybody = tuple(sorted(quotas, key=lambda quota: quota.title))
        governed = govern(everybody)
        in_force = tuple(quota for quota in everybody if quota.title not in governed.unready)
        usage = Usage(in_force)
        for quota in in_force:
            usage.add(quota, used.get(quota.title, {}))
        return cls(in_force, governed, usage)

    def governs(self, namespace: str) -> bool:
        """Return whether a quota governs a namespace, or would if it had no fault."""
        return namespace in self._governed.by_namespace

    def estimate(self, namespace: str, charge: Amounts, *, borrows: bool, gates: bool = True) -> Estimate:
        """Return what is to be said of a new pod.

        `borrows` is false for one that may not be evicted, `gates` where the policy only labels.
        """
        quota = self._governed.by_namespace.get(namespace)
        if quota is None:
            return Estimate()
        if not gates:
            return self._label(quota, charge, borrows=borrows)
        if quota.title in self._governed.unready:
            why = self._governed.unready[quota.title][1]
            return Estimate(warnings=(f"waits until its quota is put right: {quota.title}: {why}",), held=True)
        if lacks := self._usage.never(quota, charge, borrows=borrows):
            return Estimate(
                faults=tuple(
                    fault(lack.resource, amount(lack.resource, lack.asked), f"can never run: {lack.limited(quota)}")
                    for lack in lacks
                )
            )
        above = self._above(quota, charge)
        return Estimate(
            capacity=names.OVER_QUOTA if above else names.IN_QUOTA,
            held=any(charge.get(name) for name in self._usage.of(quota)),
            warnings=tuple(self._borrows(quota, name, more, borrows=borrows) for name, more in above.items()),
        )

    def resize(self, namespace: str, more: Amounts, *, borrows: bool, gates: bool = True) -> Estimate:
        """Return what is to be said of a pod that is counted and now asks for so much more, in thousandths.

        Where the policy only labels (`gates` is false), an old pod may grow to what a new one may have. Two resizes
        within the fraction of a second by which a status lags may both pass; what is too much together is then
        borrowed, and reclaimed like everything that is.
        """
        quota = self._governed.by_namespace.get(namespace)
        if quota is None or not more:
            return Estimate()
        if not gates:
            return self._label(quota, more, borrows=borrows)
        if quota.title in self._governed.unready:
            why = f"its quota is not in force, {quota.title}: {self._governed.unready[quota.title][1]}"
            return Estimate(faults=tuple(_grows(name, asked, why) for name, asked in sorted(more.items())))
        if lacks := self._usage.lacks(quota, more, borrows=borrows):
            return Estimate(faults=tuple(_grows(lack.resource, lack.asked, lack.said(quota)) for lack in lacks))
        above = self._above(quota, more)
        return Estimate(warnings=tuple(self._borrows(quota, name, by, borrows=borrows) for name, by in above.items()))

    def _label(self, quota: QuotaView, charge: Amounts, *, borrows: bool) -> Estimate:
        """Return what is to be said where pods are only labelled: they neither wait nor are they refused."""
        if quota.title in self._governed.unready:
            return Estimate()
        above = self._above(quota, charge)
        said = (f"is {amount(name, by)} {name} above the min of {quota.key}" for name, by in above.items())
        return Estimate(
            capacity=names.OVER_QUOTA if above else names.IN_QUOTA,
            warnings=tuple(f"{text}; may be evicted" for text in said) if borrows else (),
        )

    def _above(self, quota: QuotaView, charge: Amounts) -> dict[str, int]:
        """Return how much of a charge is above the quota's min."""
        used = self._usage.of(quota)
        return {
            name: min(charge[name], used[name] + charge[name] - least)
            for name, least in sorted(quota.min.items())
            if charge.get(name) and used[name] + charge[name] > least
        }

    def _borrows(self, quota: QuotaView, name: str, more: int, *, borrows: bool) -> str:
        if not borrows:
            return f"waits until {quota.key} has {amount(name, more)} {name} of its own: it may not be evicted, so it may not borrow"
        unused = [
            (-left, other.title, other)
            for other in self._quotas
            if name in other.min and (left := other.min[name] - self._usage.of(other)[name]) > 0 and other != quota
        ]
        if not unused:
            return f"is {amount(name, more)} {name} above the min of {quota.key}, and nobody has any to lend: it waits, and may be evicted"
        lender = min(unused)[2]
        whose = lender.namespace if lender.kind == names.ELASTIC_QUOTA else lender.key
        return f"borrows {amount(name, more)} of {whose}'s unused {name}; may be evicted"


def _grows(resource: str, more: int, why: str) -> str:
    return fault(resource, f"{amount(resource, more)} more", f"the pod cannot grow in place: {why}")


UNGOVERNED: Final = Standings.of((), {})
"""The standings where there is no quota."""
