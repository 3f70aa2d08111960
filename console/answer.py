"""What there is to say of one pod: why it waits, where it is or will be, the arithmetic of its quota."""

from collections.abc import Iterator

import msgspec

from console.amounts import shown
from policies import names
from policies.annotations import Placement
from policies.decision import Decision, Planned
from policies.governing import QuotaView
from policies.ledger import Ledger
from policies.settings import DEFAULTS
from policies.view import PodView, View


class Dimension(msgspec.Struct, frozen=True, kw_only=True):
    """One resource that a pod asks for and its quota names; amounts in thousandths, None where none is set.

    All that is used, and what follows from it, is without the pod, and as it will be once all victims have ended.

    Attributes:
        resource: its name.
        asks: what the pod costs of it.
        used: what its quota uses.
        min: of the quota.
        max: of the quota.
        all_used: what all quotas with a min of it use together.
        all_mins: what those mins add up to.
        guaranteed: what the quota may take back above its min.
        verdict: what follows, in a sentence.
    """

    resource: str
    asks: int
    used: int
    min: int | None
    max: int | None
    all_used: int | None
    all_mins: int | None
    guaranteed: int | None
    verdict: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything there is to say of a pod.

    Attributes:
        pod: namespace/name.
        state: in a few words.
        reason: code, if it waits.
        message: the sentence that stands on the pod.
        scheduler: why the scheduler finds no node for it, in its words; empty if it says nothing.
        slices: what it asks for of MIG and MPS slices: resource -> count.
        place: where it has them, or where they are planned; empty if neither is known.
        quota: which one governs it; empty if none does.
        when: what must have happened for the arithmetic to hold; empty if it holds now.
        dimensions: the arithmetic, by resource.
        evictions: what goes for it now: pod -> why.
        leaving: what is on its way out for it.
    """

    pod: str
    state: str
    reason: str = ""
    message: str = ""
    scheduler: str = ""
    slices: dict[str, int] = {}
    place: str = ""
    quota: str = ""
    when: str = ""
    dimensions: tuple[Dimension, ...] = ()
    evictions: dict[str, str] = {}
    leaving: tuple[str, ...] = ()


def explain_pod(pod: PodView, view: View, decision: Decision) -> Answer:
    """Return what there is to say of a pod of a view for which this was decided."""
    waiting = next((each for each in decision.waiting if each.pod == pod.key), None)
    ledger = Ledger(view, DEFAULTS.quota)
    quota = ledger.quota(pod)
    return Answer(
        pod=pod.key,
        state=_state(pod, released=any(each.pod == pod.key for each in decision.ungate)),
        reason=waiting.reason if waiting else "",
        message=waiting.message if waiting else "",
        slices=dict(pod.slices),
        place=_place(pod, view, decision.planned.get(pod.key)),
        quota=quota.title if quota else "",
        when="pods on their way out have ended" if ledger.going else "",
        dimensions=tuple(_dimensions(pod, quota, ledger)) if quota else (),
        evictions={evict.pod: evict.message for evict in decision.evict if evict.claimant == pod.key},
        leaving=tuple(sorted(each.key for each in view.pods if each.terminating and each.evicted_for == pod.key)),
    )


def _state(pod: PodView, *, released: bool) -> str:
    borrowed = " on what is borrowed, so it may be evicted" if pod.capacity == names.OVER_QUOTA else ""
    if pod.terminating:
        return f"is on its way out, for {pod.evicted_for}" if pod.evicted_for else "is being deleted"
    if pod.node:
        return f"{'runs' if pod.running else 'is bound'} on {pod.node}{borrowed}"
    if released:
        return "is let through the gate now"
    return "waits at the gate" if pod.gated or pod.held else f"is with the scheduler{borrowed}"


def _place(pod: PodView, view: View, planned: Planned | None) -> str:
    node, slices = planned.node if planned else pod.node, planned.slices if planned else _held(pod, view)
    boards = ", ".join(f"GPU {index}: {item.profile}{_at(item)}" for index, item in slices)
    return f"{'planned' if planned else 'held'} on {node} ({boards})" if boards else ""


def _held(pod: PodView, view: View) -> tuple[tuple[int, Placement], ...]:
    """Return the board and the placement of each slice that the agent of its node has reported as the pod's."""
    boards = next((node.boards for node in view.nodes if node.name == pod.node), ())
    return tuple((board.index, item.placement) for board in boards for item in board.slices if item.pod == pod.key)


def _at(item: Placement) -> str:
    return "" if item.start is None else f" at {item.start}"


def _dimensions(pod: PodView, quota: QuotaView, ledger: Ledger) -> Iterator[Dimension]:
    """Yield the arithmetic of each resource that the pod asks for and its quota names."""
    usage, charge = ledger.then, ledger.charge(pod)
    if pod.key not in ledger.going and any(member.pod.key == pod.key for member in ledger.standing[quota.title]):
        usage.add(quota, charge, -1)
    for name in sorted(name for name in usage.of(quota) if charge.get(name)):
        asks, used, total = charge[name], usage.of(quota)[name], usage.total.get(name, 0)
        guaranteed = usage.guaranteed(quota, name)
        lent = name in quota.min
        yield Dimension(
            resource=name,
            asks=asks,
            used=used,
            min=quota.min.get(name),
            max=quota.max.get(name),
            all_used=total if lent else None,
            all_mins=usage.sum_of_mins(name) if lent else None,
            guaranteed=guaranteed if lent else None,
            verdict=_verdict(name, pod, quota, asks, used, total, usage.sum_of_mins(name), guaranteed)
            if ledger.holds(pod)
            else f"{shown(name, used)} + {shown(name, asks)}: counted and labelled only, as the policy says",
        )


def _verdict(  # noqa: PLR0917 - the figures of one line of arithmetic
    name: str, pod: PodView, quota: QuotaView, asks: int, used: int, total: int, mins: int, guaranteed: int
) -> str:
    """Return what follows for one resource, and what would have to happen."""

    def said(thousandths: int) -> str:
        return shown(name, thousandths)

    after = f"{said(used)} + {said(asks)} = {said(used + asks)}"
    least, most = quota.min.get(name), quota.max.get(name)
    limits = {
        "max": most,
        "the sum of mins": None if least is None else mins,
        "min": least if pod.non_preemptible else None,
    }
    for what, bound in limits.items():
        if bound is not None and asks > bound:
            return f"{said(asks)} > {what} {said(bound)}: it can never run unless that is raised"
    if most is not None and used + asks > most:
        return f"{after} > max {said(most)}: pods of {quota.key} with {said(used + asks - most)} must end first"
    if least is None:
        return f"{after}: within max, and no min lends or guarantees it"
    if pod.non_preemptible and used + asks > least:
        return f"{after} > min {said(least)}: a pod that may not be evicted may not borrow"
    lacking = total + asks - mins
    own = f"<= min {said(least)}" if used + asks <= least else f"> min {said(least)}, it borrows"
    if lacking <= 0:
        return f"{after} {own}; all use {said(total)} + {said(asks)} <= {said(mins)}: granted by quota"
    need = f"{after} {own}; all use {said(total)} + {said(asks)} > {said(mins)}: {said(lacking)} must be given back"
    if used + asks <= least:
        return f"{need}, by quotas above their min"
    if used + asks <= least + guaranteed:
        return f"{need}, by quotas above their min and what is guaranteed to them"
    return f"{need}, of their own accord: it would have more than min and the guaranteed {said(guaranteed)}"
