"""What else of NVIDIA's works on the same node: a second device plugin, or mig-manager. Found, told, and left to a person.

Two plugins of one resource take turns at being the one that the kubelet knows, and two that cut the same boards undo each
other's work (pain A08): on such a node nothing that we say of its boards can be relied on.
"""

from collections.abc import Collection, Iterator
from typing import Final

from policies import names
from policies.needs import is_gpu
from reconciler.agent.node import NodeState

_KEEP_OFF: Final = (
    f"keep it off nodes of ours by a required node affinity in its DaemonSet: {names.PARTITIONING_LABEL} NotIn "
    f"[{', '.join(names.MODES)}]"
)


def neighbours(node: NodeState, announced: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield (reason, message) of what another tool does on a node, or would have to do, each with the way out.

    Args:
        node: the node.
        announced: the resources that are ours here.
    """
    others = sorted(
        name
        for name, amount in node.allocatable.items()
        if is_gpu(name) and name not in announced and str(amount) != "0"
    )
    if others:
        message = f"another device plugin announces {', '.join(others)} on this node: {_KEEP_OFF}"
        yield names.ANOTHER_PLUGIN, message
    config, state = node.labels.get(names.MIG_CONFIG_LABEL, ""), node.labels.get(names.MIG_STATE_LABEL, "")
    if state:
        message = (
            f"label {names.MIG_STATE_LABEL}: {state}: NVIDIA's mig-manager cuts boards of this node too: run the GPU operator "
            "with migManager.enabled=false, then take the label from the node"
        )
        yield names.MIG_MANAGER, message
    elif config not in ("", names.ALL_DISABLED) and names.MIG_PARTED_LABEL not in node.labels:
        message = (
            f"label {names.MIG_CONFIG_LABEL}: {config}: asks for a fixed layout, but nothing says which file has it: name "
            f"its ConfigMap in {names.SYSTEM_NAMESPACE} by the label {names.MIG_PARTED_LABEL}, or take the label from the node"
        )
        yield names.LAYOUT_INVALID, message


def unheeded(node: NodeState) -> Iterator[str]:
    """Yield the labels by which files are named on a node that is not ours, so that nobody reads them."""
    for label in (names.PLUGIN_CONFIGS_LABEL, names.MIG_PARTED_LABEL):
        if name := node.labels.get(label):
            yield (
                f"label {label}: {name}: has no effect on a node without the label {names.PARTITIONING_LABEL}: set it to one "
                f"of {', '.join(names.MODES)}"
            )
