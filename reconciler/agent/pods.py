"""The pods of a node as its agent sees them, and how people are told of one."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from policies import names
from policies.model import Pod
from policies.view import PodView, view_pod

Pods = Callable[[], Iterable[PodView]]
"""Returns the pods that are bound to the node, as the API server has them."""

Tell = Callable[[PodView, str, str], None]
"""Tells people of a pod: reason and message."""

_POD: Final = msgspec.json.Decoder(Pod)


def read_pod(raw: bytes) -> PodView | None:
    """Return what a node's agent needs of a pod; None if it holds no devices of NVIDIA's. Raises msgspec.DecodeError.

    Its `slices` are all of these devices: with a fixed layout a slice may be announced under any name.
    """
    pod = view_pod(_POD.decode(raw))
    devices = {name: n // 1000 for name, n in pod.request.items() if n and name.startswith(names.NVIDIA_PREFIX)}
    if not pod.holds or not devices:
        return None
    # Of its status only that it runs, for by then the kubelet has given it its devices: other changes cause no passes.
    return PodView(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=pod.node,
        created=pod.created,
        slices=tuple(sorted(devices.items())),
        running=pod.running,
    )
