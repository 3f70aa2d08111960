"""What a pod costs a quota: its request, and what follows from its GPU resources, in one unit for every form (pain Q33).

`nos.nebuly.com/gpu-memory` counts the GB of slices, and so many for a whole GPU; `nvidia.com/gpu` counts a slice by its
share of the board, so that slicing does not escape a quota of GPUs. The board is one of the node where the pod is
bound; before that the one, among those that it may land on, of which the slice is the largest part.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from policies import names
from policies.catalogue import UNKNOWN, BoardModel, by_product, models
from policies.constraints import Constraints
from policies.hosts import Hosts
from policies.placement import bin_gb, profile_of, size_of
from policies.quantity import Amounts
from policies.settings import QuotaSettings
from policies.view import NodeView, PodView

_WHOLE: Final = 1000  # thousandths
_REMEMBERED: Final = 1 << 10  # kinds of nodes; and what pods need at a moment, with the place
_MOST_PLACES: Final = 1 << 14  # nodes and constraints, some that are no more, until all are forgotten

Moments = tuple[tuple[tuple[str, int], ...], ...]
"""See PodView.moments."""


class Place(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The boards among which that of a pod is.

    Attributes:
        boards: (mode, model) of boards of ours.
        foreign: models on nodes where another tool announces slices.
        replicas: into how few parts one of the nodes divides a time-sliced GPU; 0 where no node says.
    """

    boards: frozenset[tuple[str, BoardModel]] = frozenset()
    foreign: frozenset[BoardModel] = frozenset()
    replicas: int = 0


_NOWHERE: Final = Place()

Size = tuple[int, int, int, int]
"""By what a request is smaller: GB of GPU memory, compute slices, CPU, memory."""


class Places:
    """The boards among which those of pods are, for one set of nodes; remembers what it was asked."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        """Begin with the nodes."""
        self._hosts = Hosts(nodes)
        self._on = self._hosts.sets(_place_on)
        self._by_name = {node.name: node for node in nodes}
        self._known: dict[str | Constraints, Place] = {}

    def of(self, pod: PodView) -> Place:
        """Return the place of a pod: its node's where it is bound, else that of all nodes on which it may come to run."""
        where = pod.node or pod.constraints
        if (place := self._known.get(where)) is None:
            if len(self._known) >= _MOST_PLACES:
                self._known.clear()
            place = self._known[where] = self._bound_to(pod.node) if pod.node else self._open_to(pod.constraints)
        return place

    def _bound_to(self, node: str) -> Place:
        return _place_on(self._by_name[node]) if node in self._by_name else _NOWHERE

    def _open_to(self, constraints: Constraints) -> Place:
        nodes = self._hosts.open_to(constraints, although_away=True)
        return _union([place for place, there in self._on.items() if there & nodes])


class Charge(NamedTuple):
    """What a pod costs.

    Attributes:
        amounts: of each resource, in thousandths.
        size: by what its request is smaller than another.
    """

    amounts: Amounts
    size: Size


class Charges:
    """Works out what pods cost; remembers what pods of the same needs and place cost."""

    def __init__(self, places: Places, settings: QuotaSettings) -> None:
        """Begin with the places of pods."""
        self._places, self._settings = places, settings
        # Pods that are alike share these objects (`view_pod`), which live as long as the pod that is kept here.
        self._known: dict[tuple[int, int, int], tuple[PodView, Charge]] = {}

    def of(self, pod: PodView) -> Charge:
        """Return what a pod costs."""
        place = self._places.of(pod) if pod.moments else _NOWHERE
        key = (id(pod.request), id(pod.moments), id(place))
        known = self._known.get(key)
        if known is None:
            amounts = {**pod.request, **derived(pod.moments, place, self._settings)} if pod.moments else pod.request
            known = self._known[key] = pod, Charge(amounts, _size(pod, amounts))
        return known[1]


def derived(moments: Moments, place: Place, settings: QuotaSettings) -> dict[str, int]:
    """Return what GPU resources cost as `nvidia.com/gpu` and as `nos.nebuly.com/gpu-memory`, in thousandths."""
    if not moments:
        return {}
    costs = [_cost(moment, place, settings) for moment in moments]
    return {names.GPU: max(gpus for gpus, _ in costs), names.GPU_MEMORY_QUOTA: max(memory for _, memory in costs)}


def largest_share(profile: str, place: Place) -> int:
    """Return how much of a GPU a slice is at most on one of these boards, in thousandths, rounded up.

    Where none of them is known to make it, any board of the table counts; a slice that nobody knows is a whole GPU.
    """
    mode = names.MIG if bin_gb(profile) is None else names.MPS
    near = place.foreign.union(model for how, model in place.boards if how == mode)
    for known in (near, models()):
        if shares := [share for model in known if (share := share_of(model, model.known_as(profile)))]:
            return max(shares)
    return _WHOLE


def share_of(model: BoardModel, profile: str) -> int:
    """Return the share of a board that a slice takes, in thousandths, rounded up; 0 if the board never makes it."""
    if (gigabytes := bin_gb(profile)) is not None:
        return -(-_WHOLE * gigabytes // model.nominal_gb) if 0 < gigabytes <= model.nominal_gb else 0
    known = model.profile(profile)
    return -(-_WHOLE * known.memory_units // model.memory_units) if known and model.memory_units else 0


# ---------------------------------------------------------------------------------------------------------------------


def _size(pod: PodView, amounts: Amounts) -> Size:
    compute = sum(size_of(profile_of(resource))[1] * count for resource, count in pod.slices)
    return amounts.get(names.GPU_MEMORY_QUOTA, 0), compute, amounts.get("cpu", 0), amounts.get("memory", 0)


def _place_on(node: NodeView) -> Place:
    """Return the boards of one node."""
    boards = frozenset((board.mode, board.model) for board in node.boards if board.model != UNKNOWN)
    product = "" if boards else node.labels.get(names.PRODUCT_LABEL, "")
    return _place_of(boards, product, node.labels.get(names.REPLICAS_LABEL, ""))


@lru_cache(maxsize=_REMEMBERED)
def _place_of(boards: frozenset[tuple[str, BoardModel]], product: str, replicas: str) -> Place:
    """Return boards as a place, the same object for nodes that are alike."""
    model = by_product(product)
    return Place(
        boards=boards,
        foreign=frozenset([model] if model else []),
        replicas=int(replicas) if replicas.isdecimal() else 0,
    )


def _union(places: Collection[Place]) -> Place:
    return Place(
        boards=frozenset(board for place in places for board in place.boards),
        foreign=frozenset(model for place in places for model in place.foreign),
        replicas=min((place.replicas for place in places if place.replicas), default=0),
    )


@lru_cache(maxsize=_REMEMBERED)
def _cost(moment: tuple[tuple[str, int], ...], place: Place, settings: QuotaSettings) -> tuple[int, int]:
    """Return (GPUs, GB) in thousandths of what a pod needs at one moment."""
    gpus = memory = 0
    replicas = place.replicas or settings.shared_replicas
    for resource, amount in moment:
        if resource == names.GPU:
            gpus += amount
            memory += amount * settings.gpu_memory_gb
        elif resource == names.GPU_SHARED:
            gpus += -(-amount // replicas)
            memory += -(-amount * settings.gpu_memory_gb // replicas)
        else:
            profile = profile_of(resource)
            gpus += amount // _WHOLE * largest_share(profile, place)
            memory += amount * size_of(profile)[0]
    return gpus, memory
