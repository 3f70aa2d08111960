"""Why a pod waits, in one sentence with numbers that a person understands (pain L01)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from policies import names
from policies.catalogue import MEDIA
from policies.constraints import Constraints
from policies.packing import Packing, State
from policies.placement import bin_gb, capacity_for, is_made, resource_of, size_of
from policies.plan import Plan, admits
from policies.plots import Plot
from policies.quantity import amount
from policies.seating import Kind, Nodes, Seating, nodes_in
from policies.supply import Room
from policies.view import NodeView, PodView

Reason = tuple[str, str]
"""PascalCase code and sentence."""

_AWAY: Final = "away"
_SCATTERED: Final = "none in one piece"


def slices(profiles: Iterable[str]) -> str:
    """Return profiles as people say them: `3g.20gb`, or `2 x 1g.5gb and 2g.10gb on one node`."""
    counts = Counter(profiles)
    text = " and ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
    return f"{text} on one node" if counts.total() > 1 else text


def needs(kind: Kind) -> str:
    """Return the slices that a pod needs, as the beginning of a sentence; nothing for a pod that needs none."""
    return f"needs {slices(kind.profiles)}; " if kind.profiles else ""


class Refusals:
    """Tells why no place was found for pods, when all that a plan admits have theirs.

    What boards have in common is looked at once for all of them, so a crowd that waits costs little more than one pod.
    """

    def __init__(self, plan: Plan, nodes: Sequence[NodeView]) -> None:
        """Begin with a plan that changes no more, and every node, those that are away included."""
        self._seating, self._nodes = plan.seating, nodes
        self._in_flight = sum(1 << place for place, site in enumerate(plan.seating.sites) if site.node.in_flight)
        self._having = _having(plan.seating)
        self._making: dict[str, list[State]] = {}
        self._boards: dict[State, _Board] = {}

    def why(self, pod: PodView, kind: Kind) -> Reason:
        """Return why no place was found for a pod of a kind."""
        makers = able = kind.candidates
        for profile in dict.fromkeys(kind.profiles):
            making = self._makers(profile)
            makers &= self._nodes_of(making)
            able &= self._nodes_of(state for state in making if self._seating.packing.add(state, profile))
        states = self._seating.states
        if not makers:
            code, why = _nobody_makes(pod, kind, self._nodes)
        elif placed := [site for site in nodes_in(able) if self._seating.spread(kind, states[site])]:
            code, why = names.NODES_FULL, _lacks_room(kind, self._seating, placed)
        else:
            code, why = names.NO_ROOM, self._lacks_slices(kind, makers, able)
        return code, f"{needs(kind)}{why}"

    def _makers(self, profile: str) -> list[State]:
        """Return the states of boards that ever make a slice, or have one."""
        if profile not in self._making:
            self._making[profile] = [state for state in self._having if _makes(state.plot, profile)]
        return self._making[profile]

    def _nodes_of(self, states: Iterable[State]) -> Nodes:
        """Return the nodes that have a board in one of some states."""
        return reduce(or_, (self._having[state][0] for state in states), 0)

    def _count(self, state: State, nodes: Nodes) -> int:
        """Return how many boards in a state some nodes have."""
        return sum((having & nodes).bit_count() for having in self._having[state])

    def _lacks_slices(self, kind: Kind, makers: Nodes, able: Nodes) -> str:
        """Return what is missing on the boards that make the slices; some nodes are able to take at least one of each."""
        making = dict.fromkeys(state for profile in dict.fromkeys(kind.profiles) for state in self._makers(profile))
        counts = {state: count for state in making if (count := self._count(state, makers))}
        cuttable = {state: count for state, count in counts.items() if not state.plot.rigid}
        if not cuttable:
            busy = sum(self._count(state, makers & self._in_flight) for state in counts)
            return _cannot_be_cut(kind, busy, sum(counts.values()) - busy)
        earlier = "when the pods before it are served, " if any(state.wanted for state in cuttable) else ""
        if len(set(kind.profiles)) > 1:
            return f"{earlier}no node has room for all of them"
        profile = kind.profiles[0]
        if len(kind.profiles) == 1:
            return earlier + _lacks_one(profile, {self._board(state): count for state, count in cuttable.items()})
        states, packing = self._seating.states, self._seating.packing
        most = max(
            (sum(_more(state, profile, packing) for state in states[site]) for site in nodes_in(able)), default=0
        )
        return f"{earlier}no node has room for more than {most} of them"

    def _board(self, state: State) -> "_Board":
        if state not in self._boards:
            self._boards[state] = _Board(state)
        return self._boards[state]


def _having(seating: Seating) -> dict[State, list[Nodes]]:
    """Return for each state of boards the nodes that have one such board, those that have a second, and so on."""
    having: dict[State, list[Nodes]] = {}
    for site, states in enumerate(seating.states):
        for state, count in Counter(states).items():
            nodes = having.setdefault(state, [])
            nodes += [0] * (count - len(nodes))
            for place in range(count):
                nodes[place] |= 1 << site
    return having


def _makes(plot: Plot, profile: str) -> bool:
    """Return whether a board ever makes a slice, or has one."""
    return is_made(plot.model, plot.mode, profile) or any(item.profile == profile for item in plot.fixed)


def _nobody_makes(pod: PodView, kind: Kind, nodes: Sequence[NodeView]) -> Reason:
    """Return why no node that is up and open to the pod ever gives it what it needs, by what the others have against it."""
    makers = [node for node in nodes if all(_ever_has(node, profile) for profile in kind.profiles)]
    closed = Counter(_closed(node, pod.constraints) for node in makers)
    if foreign := closed.pop("", 0):
        return names.NO_ROOM, f"{_have(foreign, 'node')} that from another tool, but not enough of it is free"
    if away := closed.pop(_AWAY, 0):
        return names.NODES_AWAY, f"only nodes that are cordoned or not Ready could give that ({away})"
    code = names.NO_BOARD if kind.profiles else names.NODES_FULL
    if not closed:
        return code, f"no board makes that ({_count(len(nodes), 'node')} in all)"
    against = " and ".join(f"{count} by {why}" for why, count in sorted(closed.items()))
    could = f"{_count(closed.total(), 'node')} could make that, but none" if kind.profiles else "no node"
    return code, f"{could} is open to the pod: closed are {against}"


def _ever_has(node: NodeView, profile: str) -> bool:
    """Return whether a node could give a slice if nobody else were there: its boards make it, or another tool has."""
    if node.boards:
        return any(capacity_for(board.model, board.mode, (), profile) for board in node.boards)
    return node.allocatable.get(resource_of(profile), 0) > 0


def _closed(node: NodeView, constraints: Constraints) -> str:
    """Return what keeps a pod off a node; nothing if it is open to it."""
    if not constraints.selects(node.name, node.labels):
        return "its selector or affinity"
    if not constraints.tolerates(node.taints, although_away=True):
        return "taints"
    return "" if admits(node, constraints) else _AWAY


def _lacks_room(kind: Kind, seating: Seating, sites: list[int]) -> str:
    """Return what is missing on nodes besides slices, first of all what none of them would ever have."""
    sizes = [seating.sites[site].node.allocatable for site in sites]
    beyond = [
        f"{name} (needs {amount(name, asked)}, the largest has {amount(name, most)})"
        for name, asked in kind.room
        if (most := max(size.get(name, 0) for size in sizes)) < asked
    ]
    if beyond:
        return f"no node open to the pod is large enough: {' and '.join(beyond)}"
    rooms: list[Room] = [seating.room[site] for site in sites]
    lacking = [
        f"{name} (needs {amount(name, asked)}, at most {amount(name, max(most, 0))} left)"
        for name, asked in kind.room
        if (most := max(room.get(name, 0) for room in rooms)) < asked
    ]
    without = " and ".join(lacking) or "all of " + ", ".join(name for name, _ in kind.room)
    place = "a place for that, but not" if kind.profiles else "not"
    return f"{_have(len(rooms), 'node')} {place} {without}"


def _cannot_be_cut(kind: Kind, busy: int, stuck: int) -> str:
    """Return why none of the boards that make the slices can be cut now; what is free on them does not suffice."""
    free = "none is free" if len(kind.profiles) == 1 else "not enough are free"
    causes = []
    if busy:
        causes.append(f"{_have(busy, 'board')} an order to carry out first")
    if stuck:
        off = "MIG mode is off, slices of another mode are there, it has a fault, or its layout is fixed"
        causes.append(f"{_count(stuck, 'board')} cannot be cut now ({off})")
    return f"{free}, and {' and '.join(causes)}"


def _more(state: State, profile: str, packing: Packing) -> int:
    """Return how many slices of a profile a board can still take."""
    count = 0
    while step := packing.add(state, profile):
        state, count = step.state, count + 1
    return count


class _Board:
    """What a board has left beside what is used, promised or planned: memory units and compute slices; of MPS GB, clients."""

    def __init__(self, state: State) -> None:
        self.model, self.mps = state.plot.model, state.plot.mode == names.MPS
        self.taken = [*(item.profile for item in state.plot.fixed), *state.wanted]
        needs = [self.needs(profile) for profile in self.taken]
        self.units = (self.model.nominal_gb if self.mps else self.model.memory_units) - sum(units for units, _ in needs)
        self.parts = (self.model.max_clients if self.mps else self.model.compute) - sum(parts for _, parts in needs)

    def needs(self, profile: str) -> tuple[int, int]:
        """Return what a slice takes, in the same terms."""
        known = self.model.profile(profile)
        return (known.memory_units, known.compute) if known else (bin_gb(profile) or 0, 1)

    def gigabytes(self) -> int:
        """Return what is left of its memory."""
        return self.units if self.mps else self.units * self.model.nominal_gb // self.model.memory_units

    def lacks(self, profile: str) -> str:
        """Return why a slice cannot be made although there is memory enough for it."""
        _, parts = self.needs(profile)
        if self.parts < parts:
            compute = "no compute slice left" if parts == 1 else f"fewer than {parts} compute slices left"
            return "no MPS client left" if self.mps else compute
        known = self.model.profile(profile)
        if known and known.max and self.taken.count(profile) >= known.max:
            return f"already as many {profile} as can be"
        media = sum(other.media for name in (profile, *self.taken) if (other := self.model.profile(name)))
        return "no media engines left" if media > MEDIA else _SCATTERED


def _lacks_one(profile: str, boards: Mapping[_Board, int]) -> str:
    """Return why no board can take a slice that all of them make; so many there are of each."""
    gigabytes, _ = size_of(profile)
    able = [board for board in boards if board.units >= board.needs(profile)[0]]
    if not able:
        most = max(board.gigabytes() for board in boards)
        return f"no board has {gigabytes} GB free (the freest of {sum(boards.values())} has {most} GB)"
    count = sum(boards[board] for board in able)
    found = f"{_have(count, 'board')} {gigabytes} GB free"
    causes: Counter[str] = Counter()
    for board in able:
        causes[board.lacks(profile)] += boards[board]
    if causes.keys() == {_SCATTERED}:
        return f"{found}, {'not' if count == 1 else 'none'} contiguous"
    if len(causes) == 1:
        return f"{found}, but {next(iter(causes))}"
    return f"{found}, but {' and '.join(f'{cause} on {number}' for cause, number in sorted(causes.items()))}"


def _have(count: int, thing: str) -> str:
    return f"{_count(count, thing)} {'has' if count == 1 else 'have'}"


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
