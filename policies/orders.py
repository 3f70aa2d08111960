"""What agents are told: new layouts, and whether slices that have been withdrawn may be destroyed (docs/adr/0003)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from policies.annotations import listed
from policies.decision import Cut, Layout
from policies.geometry import Placements
from policies.nodesets import Nodes, nodes_in
from policies.placement import beside
from policies.plan import Plan, admits
from policies.plots import Plot, left_over
from policies.supply import held_on, slices_of
from policies.view import NodeView, PodView


def destroyed(plan: Plan, site: int, plot: int) -> frozenset[str]:
    """Return the profiles of which a plan destroys slices on a board, also such as are on their way."""
    board, target = plan.seating.sites[site].plots[plot], plan.seating.states[site][plot].target
    if target is None:
        return frozenset()
    return frozenset(item.profile for item in Counter(board.existing + board.face.coming) - Counter(target))


def free_after_cut(plan: Plan, site: int) -> Counter[str]:
    """Return the slices that nobody holds on a node when it has been cut as far as it can be now, by profile."""
    free: Counter[str] = Counter()
    for board, state in zip(plan.seating.sites[site].plots, plan.seating.states[site], strict=True):
        slices = board.existing if state.target is None else _meanwhile(board, state.target)
        held = Counter(board.face.fixed) - Counter(board.face.open) + Counter(board.leaving)
        free.update(item.profile for item in (Counter(slices) - held).elements())
    return free


def layouts(plan: Plan, landing: Mapping[str, Nodes], clearing: Mapping[str, Nodes]) -> list[Layout]:
    """Return the orders that carry out a plan, by node name; a node that has one to carry out gets no second.

    Args:
        plan: the plan. Slices of pods that are still on their way out stay until those have ended.
        landing: profile -> nodes where a pod could land that is being released now: a board that loses such slices keeps
            its layout until that pod is bound.
        clearing: profile -> nodes where a pod waits until such slices have gone: they go, be there room for others or not.
    """
    ordered: list[Layout] = []
    for position in nodes_in(plan.seating.shared):
        site = plan.seating.sites[position]
        if site.node.in_flight:
            continue
        target: dict[int, Placements] = {}
        basis: dict[int, Placements] = {}
        for plot, state in enumerate(plan.seating.states[position]):
            board = site.plots[plot]
            if state.target is None:
                continue
            wanted = _meanwhile(board, state.target)
            gone = {item.profile for item in Counter(board.existing) - Counter(wanted)}
            useful = Counter(wanted) - Counter(board.existing) or _meet(clearing, gone, position)
            if useful and not _meet(landing, gone, position):
                target[board.index], basis[board.index] = wanted, board.existing
        if target:
            lost = any(Counter(basis[index]) - Counter(layout) for index, layout in target.items())
            ordered.append(Layout(node=site.node.name, target=target, basis=basis, destroys=lost))
    return ordered


def _meet(where: Mapping[str, Nodes], profiles: Iterable[str], site: int) -> bool:
    return any(where.get(profile, 0) >> site & 1 for profile in profiles)


def _meanwhile(board: Plot, target: Placements) -> Placements:
    """Return what of a layout can be had while pods on their way out still hold slices."""
    # MPS slices have no place of their own, so those of pods that stay are counted too.
    held = Counter(board.face.fixed) - Counter(board.face.open) + Counter(board.leaving) - Counter(target)
    if not held:
        return target
    created = Counter(target) - Counter(board.existing)
    staying = listed([*(Counter(target) - created).elements(), *held.elements()])
    new = beside(board.face.model, board.face.mode, staying, listed(created.elements()))
    return listed(staying + new)


def judge_withdrawn(node: NodeView, bound: Sequence[PodView], promised: Iterable[PodView]) -> Cut | Layout | None:
    """Return what becomes of the slices that a node's agent has withdrawn: cut, kept by a new plan, or nothing yet.

    Args:
        node: the node, whose agent has an order to carry out.
        bound: the pods that hold something there. One may have been bound to a slice before it was withdrawn.
        promised: released pods that are not bound. While one of them could still come to a withdrawn slice, nothing
            is decided.
    """
    if node.cut == node.spec_plan:
        return None
    slices = [item for board in node.boards for item in board.slices]
    withdrawn = {item.profile for item in slices if item.withdrawn}
    if not withdrawn:
        return None
    staying = Counter(item.profile for item in slices if not item.withdrawn)
    need = held_on(node, bound)
    if any(need[profile] > staying[profile] for profile in withdrawn) or any(
        item.withdrawn and item.used for item in slices
    ):
        return _keep(node)
    if any(withdrawn & slices_of([pod]).keys() and admits(node, pod.constraints) for pod in promised):
        return None
    return Cut(node=node.name, plan=node.spec_plan)


def take_back(node: NodeView, now: float) -> Layout | None:
    """Return the order to leave everything as it is, in place of an overdue one that threatens slices still announced.

    An agent that wakes up finds this one: so what is free can be given away meanwhile.
    """
    if not node.overdue(now):
        return None
    threatened = any(
        Counter(item.placement for item in board.slices if not item.withdrawn) - Counter(node.target(board))
        for board in node.boards
    )
    return _keep(node) if threatened else None


def clear_for_mode(node: NodeView, bound: Sequence[PodView], others: Iterable[PodView]) -> Layout | None:
    """Return the order to take away what is left from another mode, so that boards can change theirs; None if it stays.

    It stays as long as a pod holds any of it on that board, or could come to it (pain P06).

    Args:
        node: the node.
        bound: the pods that hold something there, shown by the agent or not yet.
        others: the pods that are released and not bound, or wait.
    """
    old = [board for board in node.boards if board.cuttable and left_over(board)]
    if node.in_flight or not old:
        return None
    shown = Counter(item.profile for board in node.boards for item in board.slices if item.used)
    wanted = (held_on(node, bound) - shown) + slices_of(pod for pod in others if admits(node, pod.constraints))
    basis: dict[int, Placements] = {
        board.index: board.layout
        for board in old
        if not any(item.used or item.profile in wanted for item in board.slices)
    }
    return Layout(node=node.name, target=dict.fromkeys(basis, ()), basis=basis, destroys=True) if basis else None


def _keep(node: NodeView) -> Layout:
    """Return the order to leave everything as it is; from what the agent then reports a new plan is made."""
    existing: dict[int, Placements] = {board.index: board.layout for board in node.boards if board.index in node.spec}
    return Layout(node=node.name, target=existing, basis=existing, destroys=False)
