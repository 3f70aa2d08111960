"""Why a pod waits, in one sentence with numbers that a person understands (pain L01)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from policies import names
from policies.packing import Packing, State
from policies.placement import bin_gb, capacity_for, size_of
from policies.plan import Plan
from policies.plots import Plot
from policies.quantity import amount
from policies.seating import Kind, Seating, nodes_in
from policies.supply import Room
from policies.view import NodeView, PodView

Reason = tuple[str, str]
"""PascalCase code and sentence."""


def slices(profiles: Iterable[str]) -> str:
    """Return profiles as people say them: `3g.20gb`, or `2 x 1g.5gb and 2g.10gb on one node`."""
    counts = Counter(profiles)
    text = " and ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
    return f"{text} on one node" if counts.total() > 1 else text


def needs(kind: Kind) -> str:
    """Return the slices that a pod needs, as the beginning of a sentence; nothing for a pod that needs none."""
    return f"needs {slices(kind.profiles)}; " if kind.profiles else ""


def refused(plan: Plan, pod: PodView, kind: Kind, nodes: Sequence[NodeView]) -> Reason:
    """Return why no place was found for a pod, when all that the plan admits have theirs.

    Args:
        plan: the plan that refused it.
        pod: the pod.
        kind: its kind.
        nodes: every node, those that are away included.
    """
    seating = plan.seating
    alike: dict[tuple[State, ...], list[int]] = {}  # nodes by their boards: a large cluster has few different ones
    for site in nodes_in(kind.candidates):
        alike.setdefault(tuple(seating.states[site]), []).append(site)
    makers = {
        boards: sites
        for boards, sites in alike.items()
        if all(any(_makes(board.plot, profile) for board in boards) for profile in kind.profiles)
    }
    if not makers:
        code, why = _nobody_makes(pod, kind, nodes)
    elif placed := [sites for boards, sites in makers.items() if seating.spreads(kind, list(boards))]:
        code, why = names.NODES_FULL, _lacks_room(kind, seating, [site for sites in placed for site in sites])
    else:
        nodes_alike = [
            ([board for board in boards if any(_makes(board.plot, name) for name in kind.profiles)], len(sites))
            for boards, sites in makers.items()
        ]
        code, why = names.NO_ROOM, _lacks_slices(kind, nodes_alike, seating.packing)
    return code, f"{needs(kind)}{why}"


def _makes(plot: Plot, profile: str) -> bool:
    """Return whether a board ever makes a slice, or has one."""
    return any(item.profile == profile for item in plot.fixed) or capacity_for(plot.model, plot.mode, (), profile) > 0


def _nobody_makes(pod: PodView, kind: Kind, nodes: Sequence[NodeView]) -> Reason:
    away = sum(
        (node.cordoned or not node.ready)
        and pod.constraints.selects(node.name, node.labels)
        and pod.constraints.tolerates(node.taints, although_away=True)
        and all(
            any(capacity_for(board.model, board.mode, (), profile) for board in node.boards)
            for profile in kind.profiles
        )
        for node in nodes
    )
    if away:
        return names.NODES_AWAY, f"only nodes that are cordoned or not Ready could give that ({away})"
    if not kind.profiles:
        return names.NODES_FULL, "no node is open to the pod (selector, affinity, taints), or up"
    if not kind.candidates:
        return names.NO_BOARD, "no node is open to the pod (selector, affinity, taints)"
    return names.NO_BOARD, f"no board makes that on the nodes open to the pod ({kind.candidates.bit_count()})"


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


def _lacks_slices(kind: Kind, nodes: list[tuple[list[State], int]], packing: Packing) -> str:
    """Return what is missing on the boards that make the slices, which so many nodes have."""
    cuttable: Counter[State] = Counter()
    for states, count in nodes:
        for state in states:
            if not state.plot.rigid:
                cuttable[state] += count
    if not cuttable:
        return "no board that makes that can be cut now, and none of its slices is free"
    if len(set(kind.profiles)) > 1:
        return "no node has room for all of them"
    profile = kind.profiles[0]
    if len(kind.profiles) == 1:
        return _lacks_one(profile, {_Board(state): count for state, count in cuttable.items()})
    most = max(sum(_more(state, profile, packing) for state in states) for states, _ in nodes)
    return f"no node has room for more than {most} of them"


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

    def has_all(self, profile: str) -> bool:
        """Return whether it bears as many slices of a profile as it ever can (`max`)."""
        known = self.model.profile(profile)
        return bool(known and known.max and self.taken.count(profile) >= known.max)


def _lacks_one(profile: str, boards: Mapping[_Board, int]) -> str:
    """Return why no board can take a slice that all of them make; so many there are of each."""
    gigabytes, _ = size_of(profile)
    able = [board for board in boards if board.units >= board.needs(profile)[0]]
    if not able:
        most = max(board.gigabytes() for board in boards)
        return f"no board has {gigabytes} GB free (the freest of {sum(boards.values())} has {most} GB)"
    count = sum(boards[board] for board in able)
    found = f"{_have(count, 'board')} {gigabytes} GB free"
    if all(board.parts < board.needs(profile)[1] for board in able):
        return (
            f"{found}, but {'no MPS client left' if able[0].mps else f'not {able[0].needs(profile)[1]} compute slices'}"
        )
    if all(board.has_all(profile) for board in able):
        return f"{found}, but already as many {profile} as can be"
    return f"{found}, {'not' if count == 1 else 'none'} contiguous"


def _have(count: int, thing: str) -> str:
    return f"{count} {thing} has" if count == 1 else f"{count} {thing}s have"
