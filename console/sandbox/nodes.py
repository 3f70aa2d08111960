"""Simulated GPU nodes: how people name them, and the Node objects that stand for them.

A node is plain data here. The API server keeps it, kwok renews its lease and runs its pods, and the node agent with
the simulated driver cuts its boards; what a board of a product can do is in `policies/catalogue.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from policies import catalogue, names

# Short names for `--nodes` -> product label as GPU feature discovery writes it. One product stands for its family.
PRODUCTS: Final[Mapping[str, str]] = {
    "a30": "NVIDIA-A30",
    "a100-40": "NVIDIA-A100-SXM4-40GB",
    "a100-80": "NVIDIA-A100-SXM4-80GB",
    "h100": "NVIDIA-H100-80GB-HBM3",
    "h100-nvl": "NVIDIA-H100-NVL",
    "h200": "NVIDIA-H200",
    "gh200": "NVIDIA-GH200-480GB",
    "b200": "NVIDIA-B200",
    "gb200": "NVIDIA-GB200",
    "b300": "NVIDIA-B300-SXM6-AC",
    "rtx-pro-6000": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    "t4": "Tesla-T4",
    "v100": "Tesla-V100-SXM2-32GB",
    "a10": "NVIDIA-A10",
    "a40": "NVIDIA-A40",
    "l4": "NVIDIA-L4",
    "l40s": "NVIDIA-L40S",
}

MAX_BOARDS: Final = 16  # Of one node: NVIDIA's largest machines (HGX, DGX-2) have as many.
MAX_NODES: Final = 5000  # Of one group: Kubernetes' own bound for a cluster.

# Room beside the GPUs, ample enough that slices run out first: seven per board on eight boards, or 48 MPS clients each.
_ROOM: Final = {"cpu": "192", "memory": "1536Gi", "ephemeral-storage": "2Ti", "pods": "500"}

# kwok manages the nodes that carry this annotation (its documented convention).
KWOK_ANNOTATION: Final = ("kwok.x-k8s.io/node", "fake")


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are alike.

    Attributes:
        name: what their names start with; a number from 0 follows.
        product: product label of their boards.
        boards: boards of each, 1 to 16.
        mode: `mig`, `mps` or `timeslicing`: the label by which the node is partitioned.
        count: how many, 1 to 5000.
    """

    name: str
    product: str
    boards: int
    mode: str
    count: int


class NodesFault(ValueError):  # noqa: N818 - as in the rest of the project: faults of what a user wrote
    """A description of nodes that cannot be followed. `faults` has one line for each thing wrong in it."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def parse_nodes(text: str) -> tuple[NodeGroup, ...]:
    """Return the groups that a text such as `a100-40x8=2,a30:mps=1` names; none for an empty text.

    Each entry is `MODEL[xBOARDS][:MODE]=COUNT`: BOARDS is 1 unless given, MODE `mig` where the board has it, else
    `mps`. Raises NodesFault with every fault.
    """
    groups: list[NodeGroup] = []
    faults: list[str] = []
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        group = _parse_entry(entry, faults)
        if group is None:
            continue
        if any(group.name == other.name for other in groups):
            faults.append(f"{entry}: {group.name} is named twice; write one entry with the sum")
        groups.append(group)
    if faults:
        raise NodesFault(faults)
    return tuple(groups)


def node_names(groups: Sequence[NodeGroup]) -> list[str]:
    """Return the names of the nodes of the groups, in the order of `node_objects`."""
    return [f"{group.name}-{ordinal}" for group in groups for ordinal in range(group.count)]


def node_objects(groups: Sequence[NodeGroup], kubelet_version: str) -> list[dict[str, object]]:
    """Return the Node objects of the groups, Ready and with room, in the order of the groups."""
    return [_node(name, group, kubelet_version) for group in groups for name in node_names((group,))]


def _parse_entry(entry: str, faults: list[str]) -> NodeGroup | None:
    """Return the group of one entry, or None after adding what is wrong with it to `faults`."""
    before = len(faults)
    kind, equals, count_text = entry.partition("=")
    if not equals:
        faults.append(f"{entry}: no count; write {entry}=1")
    count = _number(count_text, MAX_NODES) if equals else 1
    if count is None:
        faults.append(f"{entry}: count {count_text!r}: write a whole number from 1 to {MAX_NODES}")
    hardware, colon, mode = kind.strip().partition(":")
    short, boards_text = _split_boards(hardware)
    boards = _number(boards_text, MAX_BOARDS)
    if boards is None:
        faults.append(f"{entry}: boards {boards_text!r}: write a whole number from 1 to {MAX_BOARDS} after the x")
    product = PRODUCTS.get(short)
    if product is None:
        faults.append(f"{entry}: no model {short!r}; there are {', '.join(PRODUCTS)}")
    else:
        modes = _modes(product)
        mode = mode if colon else modes[0]
        if mode not in modes:
            faults.append(f"{entry}: {product} has no mode {mode!r}; it has {', '.join(modes)}")
    if len(faults) > before or product is None or count is None or boards is None:
        return None
    name = short + (f"x{boards}" if boards > 1 else "") + (f"-{mode}" if colon else "")
    return NodeGroup(name=name, product=product, boards=boards, mode=mode, count=count)


def _split_boards(hardware: str) -> tuple[str, str]:
    """Return model and boards of `a100-40x8`. A model's own x (as in `rtx-pro-6000`) is no multiplication sign."""
    if hardware in PRODUCTS:
        return hardware, "1"
    short, times, boards = hardware.rpartition("x")
    return (short, boards) if times and short in PRODUCTS else (hardware, "1")


def _number(text: str, largest: int) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdecimal() and 1 <= int(digits) <= largest else None


def _modes(product: str) -> tuple[str, ...]:
    """Return the modes that boards of a product can be used in, the usual one first."""
    return names.MODES if _model(product).profiles else (names.MPS, names.TIMESLICING)


def _model(product: str) -> catalogue.BoardModel:
    model = catalogue.by_product(product)
    if model is None:
        raise LookupError(f"{product}: not in the catalogue of boards")
    return model


def _node(name: str, group: NodeGroup, kubelet_version: str) -> dict[str, object]:
    key, value = KWOK_ANNOTATION
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                names.SIMULATED_LABEL: "true",
                names.PARTITIONING_LABEL: group.mode,
                names.PRODUCT_LABEL: group.product,
                names.COUNT_LABEL: str(group.boards),
                names.MEMORY_LABEL: str(_model(group.product).memory_mib),
            },
            "annotations": {key: value},
        },
        # Created with its status, so that nobody ever sees it without room and no second write can race with the agent.
        "status": {
            "capacity": _ROOM,
            "allocatable": _ROOM,
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Simulated", "message": "a node of the sandbox"}
            ],
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "simulated://",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": kubelet_version,
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "",
                "systemUUID": "",
            },
        },
    }
