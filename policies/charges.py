"""What a pod costs a quota: its request, and what follows from its GPU resources, in one unit for every form (pain Q33).

`nos.nebuly.com/gpu-memory` counts the GB of slices, and so many for a whole GPU; `nvidia.com/gpu` counts a slice by its
share of the board, so that slicing does not escape a quota of GPUs. The board is one of the node where the pod is
bound; before that the one, among those that it may land on, of which the slice is the largest part.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from policies import names
from policies.catalogue import BoardModel, by_product, models
from policies.constraints import Constraints
from policies.placement import bin_gb, profile_of
from policies.quantity import Amounts
from policies.settings import QuotaSettings
from policies.supply import size_of
from policies.view import NodeView, PodView

_WHOLE: Final = 1000  # thousandths


class Charges:
    """Works out what pods cost, for one set of nodes; remembers what pods of the same needs and place cost."""

    def __init__(self, nodes: Iterable[NodeView], settings: QuotaSettings) -> None:
        self._nodes, self._settings = {node.name: node for node in nodes}, settings
        self._derived: dict[tuple[object, ...], dict[str, int]] = {}
        self._places: dict[Constraints, Sequence[NodeView]] = {}

    def of(self, pod: PodView) -> Amounts:
        """Return what a pod costs of each resource, in thousandths."""
        if not pod.moments:
            return pod.request
        key = (pod.moments, pod.node or pod.constraints)
        derived = self._derived.get(key)
        if derived is None:
            derived = self._derived[key] = self._derive(pod)
        return {**pod.request, **derived}

    def _derive(self, pod: PodView) -> dict[str, int]:
        nodes = self._nodes_for(pod)
        costs = [self._cost(moment, nodes) for moment in pod.moments]
        return {names.GPU: max(gpus for gpus, _ in costs), names.GPU_MEMORY_QUOTA: max(memory for _, memory in costs)}

    def _nodes_for(self, pod: PodView) -> Sequence[NodeView]:
        if pod.node:
            return [self._nodes[pod.node]] if pod.node in self._nodes else []
        if pod.constraints not in self._places:
            self._places[pod.constraints] = [
                node
                for node in self._nodes.values()
                if pod.constraints.selects(node.name, node.labels)
                and pod.constraints.tolerates(node.taints, although_away=True)
            ]
        return self._places[pod.constraints]

    def _cost(self, moment: Iterable[tuple[str, int]], nodes: Sequence[NodeView]) -> tuple[int, int]:
        """Return (GPUs, GB) in thousandths of what a pod needs at one moment."""
        gpus = memory = 0
        for resource, amount in moment:
            if resource == names.GPU:
                gpus += amount
                memory += amount * self._settings.gpu_memory_gb
            elif resource == names.GPU_SHARED:
                gpus += -(-amount // self._replicas(nodes))
                memory += -(-amount * self._settings.gpu_memory_gb // self._replicas(nodes))
            else:
                profile = profile_of(resource)
                gpus += amount // _WHOLE * largest_share(profile, nodes)
                memory += amount * size_of(profile)[0]
        return gpus, memory

    def _replicas(self, nodes: Sequence[NodeView]) -> int:
        """Return into how few parts one of these nodes divides a time-sliced GPU."""
        written = [node.labels.get(names.REPLICAS_LABEL, "") for node in nodes]
        return min((int(text) for text in written if text.isdecimal() and int(text)), default=0) or (
            self._settings.shared_replicas
        )


def largest_share(profile: str, nodes: Sequence[NodeView]) -> int:
    """Return how much of a GPU a slice is at most on one of these nodes, in thousandths, rounded up.

    Where no board of theirs is known to make it, any board of the table counts; a slice that nobody knows is a whole GPU.
    """
    mode = names.MIG if bin_gb(profile) is None else names.MPS
    boards = {board.model for node in nodes for board in node.boards if board.mode == mode}
    foreign = {by_product(node.labels.get(names.PRODUCT_LABEL, "")) for node in nodes if not node.boards}
    for known in (boards | foreign, models()):
        if shares := [share for model in known if model and (share := share_of(model, profile))]:
            return max(shares)
    return _WHOLE


def share_of(model: BoardModel, profile: str) -> int:
    """Return the share of a board that a slice takes, in thousandths, rounded up; 0 if the board never makes it."""
    if (gigabytes := bin_gb(profile)) is not None:
        return -(-_WHOLE * gigabytes // model.nominal_gb) if 0 < gigabytes <= model.nominal_gb else 0
    known = model.profile(profile)
    return -(-_WHOLE * known.memory_units // model.memory_units) if known and model.memory_units else 0
