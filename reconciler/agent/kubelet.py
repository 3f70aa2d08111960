"""What the node agent needs of the kubelet: to announce devices, and to know which it offers and which pods hold.

Behind it are, on a real node, our device plugins (one per resource) and the pod-resources service. The kubelet chooses
the device of a pod; `preferred` is what a plugin answers when it is asked which.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from policies import names
from policies.annotations import Placement
from policies.catalogue import BoardModel
from policies.placement import to_hold
from reconciler.agent.driver import base_id, read_device_id

Devices = Mapping[str, Mapping[str, bool]]
"""Resource -> device id -> healthy. A resource without devices is one that has none now: its plugin stays."""

Models = Callable[[], Mapping[str, BoardModel]]
"""Returns the models of boards by UUID, as far as they are known."""

Holder = str
"""namespace/name of a pod."""


class Kubelet(Protocol):
    """The kubelet of one node. No call waits for anything but the kubelet's own answer; all raise KubeletError."""

    def announce(self, devices: Devices) -> Mapping[str, str]:
        """Make these the devices of our plugins; the kubelet takes them over in its own time: see `allocatable`.

        Return why it refuses resources, of those that it does: it gives nobody their devices, and goes on with the others.
        """
        ...

    def allocatable(self) -> frozenset[str]:
        """Return the ids of our healthy devices that it may give to pods, held or not (GetAllocatableResources)."""
        ...

    def allocated(self) -> Mapping[str, Holder]:
        """Return device id, of whatever plugin -> pod that holds it; pods that have ended hold nothing (pod-resources List)."""
        ...


class KubeletError(Exception):
    """The kubelet did not answer, or lacks a service that the agent needs; the message says which."""


class KubeletBehind(KubeletError):  # noqa: N818 (it is no fault, unless it lasts)
    """The kubelet has just started and does not know all pods yet: what it does not name is not free for that."""


def preferred(
    available: Collection[str],
    size: int,
    held: Collection[str],
    must: Sequence[str] = (),
    models: Mapping[str, BoardModel] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Return which `size` of the available devices of one resource a pod should get; fewer if there are fewer.

    Those that it must get come first.

    The slices of one pod are spread over boards, since two on one board are no more than a larger one. Among boards
    the one with most held devices comes first, so that different pods are packed and whole boards stay free; but of
    devices on which pods take turns that with the fewest, since each takes time from the others. On a board whose model
    is known (by its UUID) the MIG slice comes first that leaves most room beside those held. Deterministic.
    """
    packed, turns = Counter(map(_board, held)), Counter(base_id(device) for device in held if base_id(device) != device)
    chosen = list(must)
    own, left = Counter(map(_board, must)), set(available).difference(must)
    while left and len(chosen) < size:
        best = min(
            left, key=lambda device: (own[_board(device)], turns[base_id(device)], -packed[_board(device)], device)
        )
        best = _on_board(best, left, [*held, *chosen], models.get(_board(best)))
        chosen.append(best)
        left.remove(best)
        own[_board(best)] += 1
    return tuple(chosen)


def _on_board(device: str, left: Collection[str], held: Collection[str], model: BoardModel | None) -> str:
    """Return which device of the same board and resource to take, by the planner's rule; this one if that knows none."""
    if model is None or read_device_id(device)[1].start is None:
        return device
    board = _board(device)
    free = {_placement(other): other for other in left if _board(other) == board}
    beside = tuple(_placement(other) for other in held if _board(other) == board)
    best = to_hold(model, names.MIG, beside, tuple(free))
    return device if best is None else free[best]


def _placement(device: str) -> Placement:
    _, item = read_device_id(device)
    return Placement(item.profile, item.start)


def _board(device: str) -> str:
    return device.partition("/")[0]
