"""A cluster in memory: what becomes of a view when a decision is carried out, a pod is bound, a pod ends.

Agents take no time here: a layout is there as soon as it is ordered. `simulate` plays the cluster with these steps, and
tests let an adversary choose the nodes.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from policies.annotations import PlacedSlice
from policies.constraints import Constraints
from policies.decision import Decision, Release
from policies.geometry import Placements, by_start
from policies.model import NodeSelectorRequirement, NodeSelectorTerm
from policies.placement import profile_of, resource_of
from policies.plan import admits
from policies.supply import occupied, room_request, slices_of
from policies.view import Board, NodeView, PodView, View, is_slice


def begin(view: View) -> View:
    """Return the view with every slice at its place and every held one with its holder, where only pods or counts tell."""
    bound = {node.name: sorted(_bound(view, node.name), key=lambda pod: pod.key) for node in view.nodes}
    laid_out = (occupied(node, slices_of(bound[node.name])) for node in view.nodes)
    return replace(view, nodes=tuple(_with_holders(node, bound[node.name]) for node in laid_out))


def carry_out(view: View, decision: Decision) -> View:
    """Return the view when pods are released and boards are cut as decided."""
    released = {release.pod: release for release in decision.ungate}
    ordered = {layout.node: layout for layout in decision.layouts}
    return replace(
        view,
        pods=tuple(_released(pod, released[pod.key]) if pod.key in released else pod for pod in view.pods),
        nodes=tuple(_cut(node, {**ordered[node.name].target}) if node.name in ordered else node for node in view.nodes),
    )


def places(view: View, pod: PodView) -> list[str]:
    """Return the nodes on which the scheduler could bind a pod now, sorted: all that it needs is allocatable there."""
    return sorted(node.name for node in view.nodes if admits(node, pod.constraints) and _offers(node, view, pod))


def bind(view: View, key: str, node_name: str) -> View:
    """Return the view with a pod running on a node, on the first free slices of its kinds there."""
    pod = next(pod for pod in view.pods if pod.key == key)
    bound = replace(pod, node=node_name, gated=False, running=True)
    return replace(
        view,
        pods=tuple(bound if other is pod else other for other in view.pods),
        nodes=tuple(_with_holders(node, [bound]) if node.name == node_name else node for node in view.nodes),
    )


def end(view: View, key: str) -> View:
    """Return the view with a pod ended and its slices free."""
    return replace(
        view,
        pods=tuple(replace(pod, finished=True, running=False) if pod.key == key else pod for pod in view.pods),
        nodes=tuple(
            _map_slices(node, lambda item: replace(item, used=False, pod=None) if item.pod == key else item)
            for node in view.nodes
        ),
    )


def _bound(view: View, node_name: str) -> list[PodView]:
    return [pod for pod in view.pods if pod.holds and pod.node == node_name]


def _offers(node: NodeView, view: View, pod: PodView) -> bool:
    left = Counter(node.allocatable)
    for other in _bound(view, node.name):
        left.subtract(_request(other))
    return all(left[name] >= amount for name, amount in _request(pod).items())


def _request(pod: PodView) -> dict[str, int]:
    return dict(room_request(pod)) | {name: count * 1000 for name, count in pod.slices}


def _released(pod: PodView, release: Release) -> PodView:
    return replace(pod, gated=False, constraints=_avoiding(pod.constraints, release.avoid))


def _avoiding(constraints: Constraints, nodes: Sequence[str]) -> Constraints:
    """Return constraints with nodes excluded, in each term, since any one term admits a node."""
    if not nodes:
        return constraints
    off = tuple(NodeSelectorRequirement(key="metadata.name", operator="NotIn", values=(node,)) for node in nodes)
    terms = constraints.terms
    if terms is None:
        narrowed: tuple[NodeSelectorTerm, ...] = (NodeSelectorTerm(match_fields=off),)
    else:
        narrowed = tuple(
            replace(term, match_fields=(*(term.match_fields or ()), *off))
            for term in terms
            if term.match_expressions or term.match_fields
        )
    return replace(constraints, terms=narrowed)


def _cut(node: NodeView, target: dict[int, Placements]) -> NodeView:
    """Return the node with boards brought into a layout; what stays keeps its holder."""
    boards = tuple(_recut(board, target[board.index]) if board.index in target else board for board in node.boards)
    return _announced(replace(node, boards=boards))


def _recut(board: Board, target: Placements) -> Board:
    there = {id(item): item for item in board.slices}
    slices: list[PlacedSlice] = []
    for placement in target:
        same = [item for item in there.values() if item.placement == placement]
        stays = max(same, key=lambda item: item.used, default=None)
        if stays:
            del there[id(stays)]
        new = PlacedSlice(profile=placement.profile, start=placement.start, used=False)
        slices.append(replace(stays, withdrawn=False) if stays else new)
    lost = [item for item in there.values() if item.used]
    if lost:
        raise ValueError(f"board {board.index}: a slice in use is not in the new layout: {lost[0].placement}")
    return replace(board, slices=tuple(sorted(slices, key=lambda item: by_start(item.placement))), counted=())


def _announced(node: NodeView) -> NodeView:
    counts = Counter(resource_of(item.profile) for board in node.boards for item in board.slices if not item.withdrawn)
    offers = {name: 0 for name in node.allocatable if is_slice(name)} | {name: n * 1000 for name, n in counts.items()}
    return replace(node, allocatable={**node.allocatable, **offers}, capacity={**node.capacity, **offers})


def _with_holders(node: NodeView, pods: Sequence[PodView]) -> NodeView:
    """Return the node with slices given to pods: those that are used and nobody's first, then free ones."""
    named = Counter(item.pod for board in node.boards for item in board.slices)
    wanted = [
        (profile_of(name), pod.key) for pod in pods if not named[pod.key] for name, n in pod.slices for _ in range(n)
    ]
    for used in (True, False):

        def give(item: PlacedSlice, *, used: bool = used) -> PlacedSlice:
            if item.pod is not None or item.used != used or item.withdrawn:
                return item
            for position, (profile, key) in enumerate(wanted):
                if profile == item.profile:
                    del wanted[position]
                    return replace(item, used=True, pod=key)
            return item

        node = _map_slices(node, give)
    return node


def _map_slices(node: NodeView, change: Callable[[PlacedSlice], PlacedSlice]) -> NodeView:
    boards = tuple(replace(board, slices=tuple(map(change, board.slices))) for board in node.boards)
    return replace(node, boards=boards)
