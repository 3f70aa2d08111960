"""Teams with quotas on plain nodes of whole GPUs, and what becomes of them: evictions, ends, owners that make pods again."""

from collections import Counter

from msgspec.structs import replace

from policies import names
from policies.budgets import BudgetView
from policies.governing import QuotaView
from policies.model import LabelSelector, NodeSelectorRequirement, NodeSelectorTerm
from policies.settle import settle
from policies.view import NodeView, PodView, View

NOW = 10_000.0


def quota(space, least=None, most=None, *, cpu=None, name="quota", spaces=None, **fields):
    """Return a quota of GPUs (and CPUs) of one namespace, or of several."""
    low = {names.GPU: least, "cpu": cpu}
    return QuotaView(
        kind=names.COMPOSITE_QUOTA if spaces else names.ELASTIC_QUOTA,
        namespace=space,
        name=name,
        namespaces=tuple(spaces or (space,)),
        min={key: value * 1000 for key, value in low.items() if value is not None},
        max={} if most is None else {names.GPU: most * 1000},
        **fields,
    )


def machine(name="n1", gpus=4, cpu=64):
    """Return a node of whole GPUs that another plugin announces."""
    room = {"cpu": cpu * 1000, "memory": 1 << 50, "pods": 110_000, names.GPU: gpus * 1000}
    return NodeView(name=name, labels={}, ready=True, managed=False, allocatable=room, capacity=room)


def pod(key, gpus=1, *, cpu=0, node="", created=1000, **fields):
    """Return a pod: bound if it has a node, else gated."""
    space, _, name = key.rpartition("/")
    request = {resource: count * 1000 for resource, count in ((names.GPU, gpus), ("cpu", cpu)) if count}
    return PodView(
        **{
            "namespace": space,
            "name": name,
            "uid": f"uid of {key}",
            "version": "1",
            "node": node,
            "created": created,
            "gated": not node,
            "running": bool(node),
            "request": request,
            "moments": (((names.GPU, gpus * 1000),),) if gpus else (),
            **fields,
        }
    )


def budget(space, allowed, **labels):
    return BudgetView(namespace=space, name="budget", selector=LabelSelector(match_labels=labels), allowed=allowed)


def teams(nodes, quotas, pods, budgets=(), now=NOW):
    """Return the view, with the capacity labels as they should be."""
    view = View(nodes=tuple(nodes), quotas=tuple(quotas), pods=tuple(pods), budgets=tuple(budgets), now=now)
    return relabelled(view, settle(view))


def relabelled(view, decision):
    labels = {relabel.pod: relabel.capacity for relabel in decision.relabel}
    return with_pods(view, lambda one: replace(one, capacity=labels.get(one.key, one.capacity)))


def with_pods(view, change):
    return replace(view, pods=tuple(change(one) for one in view.pods))


def victims(decision, claimant=None):
    return [evict.pod for evict in decision.evict if claimant in (None, evict.claimant)]


def carried_out(view, decision):
    """Return the view when a decision is written down: victims are on their way out, gates gone, labels true."""
    gone = {evict.pod: evict.claimant for evict in decision.evict}
    released = {release.pod: release for release in decision.ungate}
    waiting = {item.pod: (item.reason, item.message) for item in decision.waiting}

    def change(one):
        stays = one.waiting if one.gated and one.key not in released else ("", "")
        one = replace(one, waiting=waiting.get(one.key, stays))
        if one.key in gone:
            one = replace(one, terminating=True, evicted_for=gone[one.key])
        if one.key in released:
            one = replace(
                let_go(one, released[one.key]), capacity=released[one.key].capacity, released_at=int(view.now)
            )
        return one

    return relabelled(with_pods(view, change), decision)


def let_go(one, release):
    """Return a pod without our gate, kept off the nodes that it is to avoid."""
    off = tuple(
        NodeSelectorRequirement(key="metadata.name", operator="NotIn", values=(name,)) for name in release.avoid
    )
    terms = one.constraints.terms
    if off:
        terms = tuple(
            replace(term, match_fields=(*(term.match_fields or ()), *off)) for term in terms or (NodeSelectorTerm(),)
        )
    return replace(one, gated=False, constraints=replace(one.constraints, terms=terms))


def left(view, node):
    """Return what a node has left, in thousandths."""
    room = Counter(node.allocatable)
    for one in view.pods:
        if one.holds and one.node == node.name:
            room.subtract(one.request)
            room["pods"] -= 1000
    return room


def landed(view):
    """Return the view when the scheduler has bound what is released, each on the first node that has room."""
    for waiting in [one for one in view.pods if one.released]:
        wanted = {**waiting.request, "pods": 1000}
        for node in view.nodes:
            if all(left(view, node)[name] >= n for name, n in wanted.items()):
                view = with_pods(
                    view,
                    lambda one, key=waiting.key, where=node.name: (
                        replace(one, node=where, running=True) if one.key == key else one
                    ),
                )
                break
    return view


def without(view, keys):
    return replace(view, pods=tuple(one for one in view.pods if one.key not in keys))


def used(view):
    """Return what each namespace's pods use that are bound or released, in thousandths of GPUs."""
    total = Counter()
    for one in view.pods:
        if not one.finished and (one.node or not (one.gated or one.terminating)):
            total[one.namespace] += one.request.get(names.GPU, 0)
    return total
