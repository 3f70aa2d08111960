"""What keeps boards from being cut now, in words: who has to do something about it reads on which node, and what it is."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from policies.nodesets import Counts, Nodes, nodes_in, set_of
from policies.packing import State
from policies.seating import Seating
from policies.shortages import number_of
from policies.supply import Supply
from policies.timestamps import LAST, timestamp
from policies.view import NodeView

_MOST_TOLD: Final = 2  # kinds of faults
_SILENT: Final = "silent"  # among causes: the node's agent does not do as it is told

Causes = Mapping[str, Counts]
"""How many boards each node has that cannot be cut now, by the cause."""


def hindered(seating: Seating, making: Collection[State]) -> Causes:
    """Return what keeps boards from being cut that are in some states, in which they cannot be."""
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for place, (site, states) in enumerate(zip(seating.sites, seating.states, strict=True)):
        for cause, state in zip(_causes(site), states, strict=True):
            if state in making:
                found[cause][place] += 1
    causes: dict[str, Counts] = {}
    for cause, boards in found.items():
        counts = causes[cause] = Counts()
        for having in range(max(boards.values())):
            counts.add(set_of([place for place, count in boards.items() if count > having]))
    return causes


def told(causes: Causes, nodes: Nodes, sites: Sequence[Supply]) -> str:
    """Return what keeps boards of some nodes from being cut, as the end of a sentence: the causes of most boards first."""
    boards = {cause: count for cause, counts in causes.items() if (count := counts.on(nodes))}
    where = {cause: [sites[place].node for place in nodes_in(_having(causes[cause]) & nodes)] for cause in boards}
    said = [silence(where[_SILENT])] if boards.pop(_SILENT, 0) else []
    if boards:
        faults = sorted(boards, key=lambda cause: (-boards[cause], cause))
        whys = [f"{_on(where[cause])}: {cause}" for cause in faults[:_MOST_TOLD]]
        if others := sum(boards[cause] for cause in faults[_MOST_TOLD:]):
            whys.append(f"{number_of(others, 'board')} for other reasons")
        said.append(f"{number_of(sum(boards.values()), 'board')} cannot be cut now ({'; '.join(whys)})")
    return ", and ".join(said)


def silence(nodes: Sequence[NodeView]) -> str:
    """Return that the agents of nodes, of the first of which is told more, do not do as they are told."""
    node, *others = nodes
    if node.unable:
        return f"the agent of node {node.name} can do nothing: {node.unable}"
    given = f" of {timestamp(node.ordered_at)}" if node.ordered_at <= LAST else ""
    also = f", nor have those of {number_of(len(others), 'other node')}" if others else ""
    return f"the agent of node {node.name} has not answered an order{given}{also}"


# ---------------------------------------------------------------------------------------------------------------------


def _causes(site: Supply) -> Iterator[str]:
    """Yield what keeps each board of a node from being cut, if it cannot be."""
    node = site.node
    idle = f"its agent can do nothing: {node.unable}" if node.unable else _SILENT if node.silent else ""
    if not node.boards:
        yield idle or "another tool cuts it"
    for board in node.boards:
        yield idle or board.fault or "slices of another mode are left on it"


def _having(counts: Counts) -> Nodes:
    """Return the nodes that have any."""
    having: Nodes = 0
    for digit in counts.digits:
        having |= digit
    return having


def _on(nodes: Sequence[NodeView]) -> str:
    return f"node {nodes[0].name}" if len(nodes) == 1 else f"{len(nodes)} nodes, {nodes[0].name} first"
